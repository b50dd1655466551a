"""Devices beside the CPU: streams, events, copies and pinned memory, and which device has a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


class Cuda:
    """A CUDA device with a stream for copies to the host (down) and one for copies back (up).

    Tests replace it by a device of the CPU with the same methods: all work on a device passes
    through run.
    """

    def __init__(self, place: torch.device) -> None:
        self.places = [place]  # devices of futures
        self.down: Any = torch.cuda.Stream(place)
        self.up: Any = torch.cuda.Stream(place)

    def current(self) -> Any:
        """The stream of the calling thread."""
        return torch.cuda.current_stream(self.places[0])

    def mark(self, timed: bool) -> Any:
        """An event after all that the current stream has to do. timed: seconds_since takes it."""
        return self.current().record_event(torch.cuda.Event(enable_timing=True) if timed else None)

    def seconds_since(self, mark: Any) -> float:
        """The seconds between an event and the end of all that the current stream has to do, which it waits for."""
        end = self.mark(True)
        end.synchronize()
        return float(mark.elapsed_time(end)) / 1e3

    def on(self, stream: Any) -> Any:
        """A context in which stream is the current one."""
        return torch.cuda.stream(stream)

    def run(self, stream: Any, work: Callable[[], Any]) -> None:
        """Has stream do work after all that it has to do already."""
        with torch.cuda.stream(stream):
            work()

    def keep(self, tensor: Tensor, stream: Any) -> None:
        """Has the memory of a tensor not used again before stream has done what it has to do."""
        if tensor.layout == torch.sparse_coo:
            self.keep(tensor._indices(), stream)
            self.keep(tensor._values(), stream)
        else:
            tensor.record_stream(stream)

    def pinned(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def tell(self, future: Any, value: Any) -> None:
        """Sets the result of a future, whose wait has the waiter's stream wait for up."""
        with torch.cuda.stream(self.up):
            future.set_result(value)


# What tests put in place of Cuda for tensors of the CPU; None: these need no copies.
simulated: Callable[[Tensor], Any] | None = None


@lru_cache(maxsize=None)
def _cuda(place: torch.device) -> Cuda:
    return Cuda(place)


def present() -> bool:
    """Whether this process may have tensors on a device."""
    return simulated is not None or torch.cuda.is_available()


def device_of(operation: str, rank: int, tensors: Sequence[Tensor]) -> Any:
    """The device of an operation's tensors, None for the CPU. Errors: one that is neither CPU nor CUDA; two of them."""
    first = tensors[0].device
    for t in tensors:
        if t.device != first:
            raise ValueError(f"{operation}: rank {rank}: tensors on {first} and {t.device}: want one device, see {described(tensors)}")
    if first.type == "cpu":
        return None if simulated is None else simulated(tensors[0])
    if first.type != "cuda":
        raise ValueError(f"{operation}: rank {rank}: {described(tensors)}: backend ringo has tensors of the CPU and of CUDA: use tensor.cpu()")
    return _cuda(first)


def described(tensors: Sequence[Any]) -> str:
    """Shapes, types and devices, for errors."""
    return ", ".join(f"{tuple(t.shape)} {str(t.dtype).rpartition('.')[2]} on {t.device}" for t in tensors)
