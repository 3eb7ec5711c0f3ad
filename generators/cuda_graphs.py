"""CUDA graphs: the kernels of a computation, captured once and then launched all at once.

A GPU computes a token of a model of some billions of parameters, or a step of a small
image, in less time than the host needs to launch its hundreds of kernels one by one. A
graph repeats the same kernels over the same memory: whoever captures one keeps what it
reads in tensors of its own. Here is what steps of decoding (`decoding.graphs`) and
evaluations of a denoiser (`diffusion.graphs`) have in common.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TypeVar

import torch

from plait.generators.checkpoints import first_line

ResultT = TypeVar("ResultT")
_eagerly: ContextVar[bool] = ContextVar("eagerly", default=False)
_capturing = Lock()
"""PyTorch allows one capture at a time in a process."""


class CannotCapture(RuntimeError):
    """A computation that runs, and cannot be captured; the message says why."""


@contextmanager
def eagerly() -> Iterator[None]:
    """Compute without graphs inside, for hooks and counters, which see no replay."""
    token = _eagerly.set(True)
    try:
        yield
    finally:
        _eagerly.reset(token)


def are_wanted() -> bool:
    """Return whether graphs may be used here and now.

    PLAIT_CUDA_GRAPHS=0 in the environment says no.
    """
    return not _eagerly.get() and os.environ.get("PLAIT_CUDA_GRAPHS") != "0"


def suits(module: torch.nn.Module, device: torch.device) -> bool:
    """Return whether a module can be captured: all of it is on `device`, a GPU."""
    if device.type != "cuda":
        return False
    return all(parameter.device == device for parameter in module.parameters())


def try_capture(
    run: Callable[[], ResultT], device: torch.device, doing: str
) -> Callable[[], ResultT] | None:
    """Return what repeats `run`; None, and a warning, where it cannot be captured.

    The warning says what goes on without graphs: `doing`, such as "decoding".
    """
    try:
        return capture(run, device)
    except CannotCapture as error:
        warnings.warn(f"{doing} without CUDA graphs: {error}", stacklevel=2)
        return None


def capture(run: Callable[[], ResultT], device: torch.device) -> Callable[[], ResultT]:
    """Capture what `run` does on a GPU; return what repeats it.

    Whatever `run` returns lies in the graph's memory, which the next replay writes over.
    `run` is called twice. What fails the first time is no matter of capturing, a lack of
    memory for the computation itself among it, and is raised as it is; what fails the
    second time, a lack of memory for the graph among it, is raised as CannotCapture.
    """
    with _capturing, torch.cuda.device(device):
        current = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            run()  # libraries allocate what they need at a first call
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            # By default PyTorch captures on a stream of the GPU that was captured first: on
            # another GPU the graph would be empty. Other workers of this process may use
            # the GPU in the meantime.
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                result = run()
        except RuntimeError as error:
            # Where an operation fails, ending the capture fails as well, and says less.
            cause = error.__context__ or error
            raise CannotCapture(first_line(cause)) from error
        finally:
            # A failed capture leaves its stream the current one.
            torch.cuda.set_stream(current)

    def replay() -> ResultT:
        graph.replay()
        return result

    return replay
