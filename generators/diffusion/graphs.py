"""Evaluations of a denoiser as CUDA graphs: all kernels of one are launched at once.

A denoiser is evaluated once or twice in each step, always with inputs of the same shapes
while images of one size are drawn. So one evaluation is captured for each form of the
inputs, over tensors that the graph keeps, and replayed in every step after these have been
filled: the same kernels on the same values.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plait.generators.cuda_graphs import are_wanted, suits, try_capture

_DRAWING = "drawing"
_MOST_GRAPHS = 4
"""Each keeps the memory of one evaluation. Prompts and negative prompts of two lengths, at
two sizes of batches, are four forms."""
_TRIED = 8
"""Captures after which it is asked whether they are worth it: inputs may take a new form
for every prompt."""
_WORTH = 4
"""Evaluations that a capture has to serve on average: it takes the time of about three."""
_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)
"""Inputs that a graph can be known by: their values never change."""


class UnknownFormError(TypeError):
    """Inputs or outputs that hold something else than tensors and plain values."""


def form_of(value: Any) -> Hashable:
    """Return all that inputs are besides the numbers in their tensors.

    UnknownFormError for any object that could hold tensors, or change, unseen: GLM-Image's
    transformer is handed its cache of keys and values.
    """
    if isinstance(value, Tensor):
        return Tensor, tuple(value.shape), value.dtype
    kind = type(value)
    if kind in _PLAIN:
        # The kind stands beside it because True equals 1.
        return kind, value
    if kind in (list, tuple):
        return kind, tuple(form_of(part) for part in value)
    if kind is dict:
        return kind, tuple((name, form_of(part)) for name, part in value.items())
    raise UnknownFormError(f"it is given, or gives, a {kind.__name__}")


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return a value that `form_of` knows, in new containers, with all tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: map_tensors(change, part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([map_tensors(change, part) for part in value])
    return value


def _tensors_of(value: Any) -> list[Tensor]:
    """Return all tensors of a value, in order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, value)
    return found


def _fill(own: Any, given: Any) -> None:
    """Copy the numbers of `given` into tensors of the same form, on a GPU."""
    for target, source in zip(_tensors_of(own), _tensors_of(given), strict=True):
        if source.dim() == 0 and source.device.type == "cpu":
            # A timestep on the host, which a kernel is launched with: no copy to wait for.
            target.fill_(source.item())
        else:
            target.copy_(source, non_blocking=True)


@dataclass(frozen=True)
class _Evaluation:
    """One captured evaluation."""

    inputs: Any
    """What the graph reads."""
    replay: Callable[[], Any]

    def __call__(self, given: Any) -> Any:
        _fill(self.inputs, given)
        # The next replay writes over what this one gave, and guidance needs two of them.
        return map_tensors(torch.clone, self.replay())


class DenoiserGraphs:
    """The graphs of a denoiser, whose `forward` is computed by them from now on.

    What its layers, inputs or memory do not allow is told by a warning, and computed
    without: evaluations of one form, such as those of Qwen-Image for prompts of several
    lengths, or all of them.
    """

    def __init__(self, denoiser: Any) -> None:
        self._denoiser = denoiser
        self._inner: Callable[..., Any] = denoiser.forward
        self._known: OrderedDict[Hashable, _Evaluation | None] = OrderedDict()
        """By the form of their inputs, the latest used last; None where it failed."""
        self._gave_up = False
        self._tried = 0
        self._replays = 0
        self._without = 0
        """Evaluations that were not replayed since this was last taken."""

        # Pipelines look for the names of its parameters.
        @functools.wraps(self._inner)
        def forward(*given: Any, **named: Any) -> Any:
            return self._evaluate(given, named)

        # An attribute of the instance hides the method of its class; hooks on the denoiser
        # stay outside of the graph.
        denoiser.forward = forward

    def forget(self) -> None:
        """Drop all graphs, and the memory that they keep."""
        self._known.clear()

    def take_all_replayed(self) -> bool:
        """Return whether every evaluation since the last call was a replay."""
        is_so = self._without == 0
        self._without = 0
        return is_so

    def _evaluate(self, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        evaluation = None
        if are_wanted() and not self._gave_up:
            evaluation = self._find((given, named))
        if evaluation is None:
            self._without += 1
            return self._inner(*given, **named)
        self._replays += 1
        return evaluation((given, named))

    def _find(self, inputs: Any) -> _Evaluation | None:
        """Return the evaluation of inputs of this form, captured where it is the first."""
        try:
            form = form_of(inputs)
            if form not in self._known:
                self._known[form] = self._capture(inputs)
        except UnknownFormError as error:
            self._give_up(str(error))
            return None
        self._known.move_to_end(form)
        if len(self._known) > _MOST_GRAPHS:
            self._known.popitem(last=False)
        return self._known[form]

    def _capture(self, given: Any) -> _Evaluation | None:
        if self._tried >= _TRIED and self._replays < _WORTH * self._tried:
            self._give_up(f"{self._tried} captures have served {self._replays} evaluations")
            return None
        device = next(self._denoiser.parameters()).device
        if not suits(self._denoiser, device):
            self._give_up("its weights are not all on one GPU")
            return None
        self._tried += 1
        # Inputs on the host, such as a UNet's timesteps, are moved there as well: a graph
        # cannot read them.
        inputs = map_tensors(lambda tensor: torch.empty_like(tensor, device=device), given)
        _fill(inputs, given)

        def run() -> Any:
            # In new containers each time, because a forward pass may empty the given ones.
            positional, named = map_tensors(lambda tensor: tensor, inputs)
            outputs = self._inner(*positional, **named)
            form_of(outputs)
            return outputs

        replay = try_capture(run, device, _DRAWING)
        return None if replay is None else _Evaluation(inputs, replay)

    def _give_up(self, reason: str) -> None:
        kind = type(self._denoiser).__name__
        warnings.warn(f"{_DRAWING} without CUDA graphs: {kind}: {reason}", stacklevel=2)
        self._gave_up = True
        self.forget()
