"""GPUs without a driver: tensors that say they lie on `cuda:N` and are computed on the CPU.

    with fake_gpus(2) as traffic:
        stage = load_stage(spec)      # torch.cuda says that there are two GPUs
        outcomes = stage(inputs)
    assert traffic.between_gpus

What a GPU would refuse is refused: an operation on tensors of several devices, and NumPy on
a tensor of a GPU. Values are those of the CPU, so results can be compared bit by bit; what
only a kernel of a GPU does (its rounding, speed and memory) is not shown. With
`graphs=True`, CUDA graphs are captured and replayed too (`fake_graphs`).

As torch's `FakeTensorMode`, this is a dispatch mode under the key `FAKE`, which alone keeps
torch from asking for a driver. Works on torch 2.10.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch._dynamo.trace_rules
from fake_graphs import NOT_PERMITTED, Tape, graph_functions, tensors_in
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_MOVES = {_aten._to_copy.default, _aten.copy_.default}
_INDEXING = {
    _aten.index.Tensor,
    _aten.index_put.default,
    _aten.index_put_.default,
    _aten._index_put_impl_.default,
}
"""Take indices from the CPU, too."""
_WHOLE = (torch.int64, torch.int32, torch.bool)
"""Types of indices; where one is bool, the host has to know how many are true."""
_ASKING = {
    _aten._local_scalar_dense.default,
    _aten.equal.default,
    _aten.masked_select.default,
    _aten.nonzero.default,
    _aten._unique2.default,
}
"""The host waits for what these give, or for its shape."""
_WITH_NUMBERS = {*_INDEXING, _aten.fill_.Tensor, _aten.masked_fill.Tensor}
"""Besides pointwise operations, these take single numbers from the CPU."""
_NO_NUMBERS = contextlib.nullcontext()


class SeveralDevices(RuntimeError):
    """An operation on tensors of several devices."""


@dataclass
class Traffic:
    """What moved between GPUs and the host, and what was asked of GPUs."""

    between_gpus: int = 0
    reads: int = 0
    """How often the host took values of a GPU, or a shape that depends on them."""
    uploads: int = 0
    """How often a GPU took values of the host, which waits for that as well."""
    operations: int = 0
    """On tensors of GPUs, those of replays not counted."""
    captures: int = 0
    """CUDA graphs that were captured."""
    replays: int = 0
    """How often any of them was launched."""


class GpuTensor(torch.Tensor):
    """A tensor of `values`, which lie on the CPU, that says it lies on a GPU."""

    values: torch.Tensor

    @staticmethod
    def __new__(
        cls, values: torch.Tensor, device: torch.device | None = None, **_: Any
    ) -> GpuTensor:
        # accelerate makes parameters of the class of their values.
        is_parameter = isinstance(values, GpuTensor)
        if isinstance(values, GpuTensor):
            values, device = values.values, values.device
        self: GpuTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            layout=values.layout,
            device=device,
        )
        self.values = values
        if is_parameter:
            self._is_param = True
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
        return _active().computed(func, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.values.data_ptr()

    def tolist(self) -> Any:
        _active().traffic.reads += 1
        if _active().tape is not None:
            raise RuntimeError(f"{NOT_PERMITTED}: tolist")
        return self.values.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"cannot convert a tensor on {self.device} to numpy")

    __array__ = numpy


class _Gpus(TorchDispatchMode):
    """Computes on the CPU what is asked of GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE
        self.traffic = Traffic()
        self.tape: Tape | None = None
        """Of the graph that is being captured."""
        self._numbers = _CpuGenerator("cuda").manual_seed(0).get_state()
        """State of the generator of the GPUs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
        return self.computed(func, args, kwargs or {})

    def computed(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operation, on the device on which it would lie."""
        if func is _aten._fused_sdp_choice.default:
            return 0  # without a kernel of its own
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        given = tensors_in((args, kwargs))
        device = _device_of_result(func, given, kwargs)
        self._count(func, given, device)
        moved = func in _MOVES and device.type == given[-1].device.type == "cuda"
        self.traffic.between_gpus += moved and device != given[-1].device
        if kwargs.get("device") is not None and device.type == "cuda":
            kwargs = {**kwargs, "device": "cpu", "pin_memory": None}
        numbers = self._numbers_of(func, device, kwargs)
        values = _change(_on_cpu, args)
        named = _change(_on_cpu, kwargs)
        tape = self.tape if device.type == "cuda" else None
        if tape is not None:
            tape.before(func, args, values)
        with numbers:
            result = func(*values, **named)
        if tape is not None:
            run = functools.partial(func, *values, **named)
            tape.after(run, (values, named), result)
        if func._schema.name.endswith("_") and isinstance(args[0], torch.Tensor):
            return args[0]  # written in place
        return _change(functools.partial(_on, device), result)

    def _count(
        self, func: Any, given: Sequence[torch.Tensor], device: torch.device
    ) -> None:
        there = [t for t in given if isinstance(t, GpuTensor)]
        before = self.traffic.reads + self.traffic.uploads
        self.traffic.operations += bool(there) or device.type == "cuda"
        if func in _MOVES:
            source = given[-1]
            self.traffic.reads += source.device.type == "cuda" and device.type == "cpu"
            self.traffic.uploads += source.device.type == "cpu" and device.type == "cuda"
        elif there and func in _INDEXING:
            indices = [t for t in given[1:] if t.dtype in _WHOLE and t.dim()]
            self.traffic.uploads += sum(t.device.type == "cpu" for t in indices)
            self.traffic.reads += sum(t.dtype == torch.bool for t in indices[:1])
        elif there and func in _ASKING:
            self.traffic.reads += 1
        if self.tape is not None and self.traffic.reads + self.traffic.uploads > before:
            raise RuntimeError(f"{NOT_PERMITTED}: {func}")

    def _numbers_of(
        self, func: Any, device: torch.device, kwargs: Any
    ) -> AbstractContextManager[None]:
        """Random numbers of `device`, which are others than those of the CPU."""
        given = kwargs.get("generator")
        if given is not None and torch.device(given.device).type != device.type:
            raise SeveralDevices(f"{func}: a generator of {given.device} for {device}")
        if given is not None or device.type == "cpu" or not _draws_numbers(func):
            return _NO_NUMBERS
        return self._own_numbers()

    @contextlib.contextmanager
    def _own_numbers(self) -> Iterator[None]:
        cpu = torch.default_generator
        before = cpu.get_state()
        cpu.set_state(self._numbers)
        try:
            yield
        finally:
            self._numbers = cpu.get_state()
            cpu.set_state(before)


@functools.cache
def _is_composite(func: Any) -> bool:
    """Whether an operation is others one after another, of which a mode sees each.

    `Tensor.to` is one: its device is not among the named arguments.
    """
    key = "CompositeImplicitAutograd"
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


def _device_of_result(
    func: Any, given: Sequence[torch.Tensor], kwargs: dict[str, Any]
) -> torch.device:
    """Where the result lies; SeveralDevices where a GPU would refuse."""
    if (named := kwargs.get("device")) is not None:
        return torch.device(named)
    if not given:
        return torch.device("cpu")
    if func in _MOVES:
        return given[0].device
    sized = [t for t in given if t.dim() or not _takes_numbers(func)] or given
    if func in _INDEXING and isinstance(given[0], GpuTensor):
        indices = [t for t in sized[1:] if t.dtype in _WHOLE and t.device.type == "cpu"]
        sized = [t for t in sized if not any(t is index for index in indices)]
    devices = {tensor.device for tensor in sized}
    if len(devices) > 1:
        shapes = ", ".join(f"{tuple(t.shape)} on {t.device}" for t in given)
        raise SeveralDevices(f"{func} of tensors of several devices: {shapes}")
    (device,) = devices
    return device


@functools.cache
def _takes_numbers(func: Any) -> bool:
    return torch.Tag.pointwise in func.tags or func in _WITH_NUMBERS


@functools.cache
def _draws_numbers(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _change(change: Callable[[Any], Any], values: Any) -> Any:
    """`values` with each that is no list, tuple or dict changed; `tree_map` is slower."""
    kind = type(values)
    if kind is tuple or kind is list:
        return kind([_change(change, value) for value in values])
    if kind is dict:
        return {name: _change(change, value) for name, value in values.items()}
    return change(values)


def _on_cpu(value: Any) -> Any:
    return value.values if isinstance(value, GpuTensor) else value


def _on(device: torch.device, value: Any) -> Any:
    is_plain = isinstance(value, torch.Tensor) and not isinstance(value, GpuTensor)
    return GpuTensor(value, device) if is_plain and device.type == "cuda" else value


class _Numbered(TorchFunctionMode):
    """`cuda` is the first GPU; torch would ask the driver which one is current."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
        if func is torch.device:
            return func(*args, **kwargs or {})
        named = {name: _numbered(value) for name, value in (kwargs or {}).items()}
        return func(*map(_numbered, args), **named)


def _numbered(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda" and value.index is None:
        return torch.device("cuda", 0)
    return "cuda:0" if isinstance(value, str) and value == "cuda" else value


class _CpuGenerator(torch.Generator):
    """A generator that says it is of `device`; those of GPUs give other numbers."""

    device: Any = None

    def __new__(cls, device: Any = "cpu") -> _CpuGenerator:
        self: _CpuGenerator = super().__new__(cls, "cpu")
        self.device = torch.device(device)
        return self

    def manual_seed(self, seed: int) -> _CpuGenerator:
        super().manual_seed(seed + (self.device.type == "cuda") * 1_000_003)
        return self


_MEMORY = 80 << 30
_DONE_BY_DRIVER = (
    *("_lazy_init", "set_device", "synchronize", "empty_cache"),
    *("set_rng_state", "manual_seed", "manual_seed_all"),
)
_running: list[_Gpus] = []


def _active() -> _Gpus:
    return _running[-1]


def _of_driver(count: int) -> dict[str, Callable[..., Any]]:
    """What `torch.cuda` says without a driver."""
    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "is_bf16_supported": lambda *_, **__: True,
        "device_count": lambda: count,
        "current_device": lambda: 0,
        "current_stream": lambda *_: None,
        "get_device_capability": lambda *_: (9, 0),
        "mem_get_info": lambda *_: (_MEMORY, _MEMORY),
        "get_rng_state": lambda *_: torch.zeros(1, dtype=torch.uint8),
        **dict.fromkeys(_DONE_BY_DRIVER, nothing),
    }


@contextlib.contextmanager
def fake_gpus(count: int = 1, *, graphs: bool = False) -> Iterator[Traffic]:
    """This process has `count` GPUs; gradients are off, as graphs are unless asked for."""
    torch._C._ensureCUDADeviceGuardSet()
    # Lists torch's functions, which it does not find again once they are replaced.
    torch._dynamo.trace_rules.get_torch_obj_rule_map()
    with contextlib.ExitStack() as stack:
        gpus = _Gpus()
        replaced = _of_driver(count)
        if graphs:
            replaced |= graph_functions(gpus)
        for name, value in replaced.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch, "Generator", _CpuGenerator))
        stack.enter_context(mock.patch.object(torch.cuda, "Event", mock.MagicMock()))
        # A mode is of one thread, and transformers loads in several.
        one = {"HF_DEACTIVATE_ASYNC_LOAD": "1", "PLAIT_CUDA_GRAPHS": str(int(graphs))}
        stack.enter_context(mock.patch.dict(os.environ, one))
        # Tensors made under inference mode cannot be wrapped.
        plain = mock.Mock(side_effect=lambda _: torch.no_grad())
        stack.enter_context(mock.patch.object(torch._C, "_InferenceMode", plain))
        stack.enter_context(_swapped_parameters())
        _running.append(gpus)
        stack.callback(_running.pop)
        for entered in (torch.no_grad(), _Numbered(), gpus):
            stack.enter_context(entered)
        yield gpus.traffic


@contextlib.contextmanager
def _swapped_parameters() -> Iterator[None]:
    """`Module.to` replaces parameters, and `torch.tensor` moves what it has made."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
        torch.__future__.set_swap_module_params_on_conversion(before)
