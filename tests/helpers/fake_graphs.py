"""CUDA graphs without a driver: what `fake_gpu` computes is captured, and repeated.

    with fake_gpus(graphs=True) as traffic:
        load_stage(spec)(inputs)
    assert traffic.replays

A graph is a tape of the operations on tensors of GPUs. As on a GPU, replaying it runs no
Python: the same operations read the same tensors and write the same results again, whatever
stands in them by then. Capturing computes nothing: until the first replay, results hold
NaN, and what was written in place is as it was. Copies between the host and a GPU, and
questions to the GPU, fail while it captures; a tensor from outside that no longer exists
fails a replay.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

NOT_PERMITTED = "operation not permitted when stream is capturing"


@dataclass(frozen=True)
class _Operation:
    """One operation on the values of GPU tensors, which lie on the CPU."""

    run: Callable[[], Any]
    results: Sequence[torch.Tensor | None]
    """What it gave, in order; None for views and for what was written in place."""


class Tape:
    """What was captured."""

    def __init__(self) -> None:
        self._operations: list[_Operation] = []
        self._own: set[int] = set()
        """Memory that was allocated while capturing; its tensors are kept."""
        self._made: dict[int, torch.Tensor] = {}
        """By identity, values that operations gave, views of outside memory among them."""
        self._outside: list[weakref.ref[torch.Tensor]] = []
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Tensors from outside that were written in place, and what stood in them."""

    def before(self, func: Any, args: Sequence[Any], values: Sequence[Any]) -> None:
        """Note what an operation reads, and is about to write, from outside."""
        for given in tensors_in(args):
            own = getattr(given, "values", None)
            if isinstance(own, torch.Tensor) and id(own) not in self._made:
                self._outside.append(weakref.ref(given))
        for value, about in zip(values, func._schema.arguments, strict=False):
            written = about.alias_info is not None and about.alias_info.is_write
            if written and _memory(value) not in self._own:
                self._before.append((value, value.clone()))

    def after(self, run: Callable[[], Any], given: Sequence[Any], result: Any) -> None:
        """Note an operation and what it gave."""
        known = {_memory(value) for value in tensors_in(given)}
        new: list[torch.Tensor | None] = []
        for value in tensors_in(result):
            self._made[id(value)] = value
            new.append(None if _memory(value) in known else value)
        self._own |= {_memory(value) for value in new if value is not None}
        self._operations.append(_Operation(run, new))

    def end(self) -> None:
        """Undo what was computed: a GPU only notes it."""
        for operation in self._operations:
            for result in operation.results:
                if result is not None:
                    result.fill_(torch.nan if result.is_floating_point() else 0)
        for value, before in reversed(self._before):
            value.copy_(before)
        self._before.clear()

    def replay(self) -> None:
        """Do it all again, over the same memory."""
        if any(tensor() is None for tensor in self._outside):
            raise RuntimeError("a graph reads memory that is no longer in use")
        for operation in self._operations:
            made = tensors_in(operation.run())
            for result, again in zip(operation.results, made, strict=True):
                if result is not None:
                    result.copy_(again)


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Return the tensors in lists, tuples and dicts, in order; `tree_leaves` is slower."""
    found: list[torch.Tensor] = []
    _collect(values, found)
    return found


def _collect(values: Any, found: list[torch.Tensor]) -> None:
    kind = type(values)
    if kind is tuple or kind is list:
        for value in values:
            _collect(value, found)
    elif kind is dict:
        for value in values.values():
            _collect(value, found)
    elif isinstance(values, torch.Tensor):
        found.append(values)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class _Stream:
    """A stream, all of which are one."""

    def wait_stream(self, other: _Stream) -> None:
        pass


def graph_functions(gpus: Any) -> dict[str, Any]:
    """What takes the place of names of `torch.cuda`; `gpus` have `tape` and `traffic`."""

    class Graph:
        def __init__(self) -> None:
            self.tape = Tape()

        def replay(self) -> None:
            gpus.traffic.replays += 1
            self.tape.replay()

    @contextlib.contextmanager
    def capturing(graph: Graph, stream: Any, capture_error_mode: str) -> Iterator[None]:
        assert gpus.tape is None, "one capture at a time"
        gpus.tape = graph.tape
        try:
            yield
        finally:
            gpus.tape = None
            graph.tape.end()
        gpus.traffic.captures += 1

    return {
        "Stream": _Stream,
        "CUDAGraph": Graph,
        "graph": capturing,
        "stream": contextlib.nullcontext,
        "device": contextlib.nullcontext,
        "set_stream": lambda stream: None,
        "current_stream": lambda *_: _Stream(),
    }
