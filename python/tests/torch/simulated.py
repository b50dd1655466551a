"""A device of the CPU for tests: its streams are threads, and each copy takes a delay, so that a missing wait shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import torch
from ringo.torch import _device, _staging


class Event:
    def __init__(self) -> None:
        self._done = threading.Event()
        self.at = 0.0

    def end(self) -> None:
        self.at = time.perf_counter()
        self._done.set()

    def query(self) -> bool:
        return self._done.is_set()

    def synchronize(self) -> None:
        assert self._done.wait(60), "a stream waits for ever"


class Stream:
    """Does what it is given, in order, on a thread. On that thread it does all at once."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()

    def _run(self) -> None:
        HERE.stream = self
        while True:
            self._queue.get()()

    def put(self, work: Callable[[], Any]) -> None:
        if threading.current_thread() is self._thread:
            work()
            return
        with self._lock:  # a fork has no thread yet
            if not self._thread.ident:
                self._thread.start()
        self._queue.put(work)

    def record_event(self) -> Event:
        event = Event()
        self.put(event.end)
        return event

    def wait_event(self, event: Event) -> None:
        self.put(event.synchronize)


class Host:
    """The stream of a program of the CPU: all that it was given is done."""

    def put(self, work: Callable[[], Any]) -> None:
        work()

    def record_event(self) -> Event:
        event = Event()
        event.end()
        return event

    def wait_event(self, event: Event) -> None:
        event.synchronize()


HERE = threading.local()


class Device:
    """Stands for ringo.torch._device.Cuda."""

    places: list[Any] = []

    def __init__(self, delay: float = 0) -> None:
        self.delay = delay
        self.down, self.up = Stream("down"), Stream("up")
        self.made = 0  # bytes of pinned memory

    def current(self) -> Any:
        return getattr(HERE, "stream", None) or Host()

    def mark(self, timed: bool) -> Event:
        return self.current().record_event()

    def seconds_since(self, mark: Event) -> float:
        end = self.mark(True)
        end.synchronize()
        return end.at - mark.at

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, HERE.stream = getattr(HERE, "stream", None), stream
        try:
            yield
        finally:
            HERE.stream = before

    def run(self, stream: Any, work: Callable[[], Any]) -> None:
        stream.put(lambda: (time.sleep(self.delay), work()) if self.delay else work())

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        pass

    def pinned(self, size: int) -> torch.Tensor:
        self.made += size
        return torch.full((size,), 0xA5, dtype=torch.uint8)  # no operand is zeros by accident

    def tell(self, future: Any, value: Any) -> None:
        self.up.record_event().synchronize()
        future.set_result(value)


def force(delay: float = 0, chunk: int = _staging.CHUNK) -> Device:
    """Has tensors of the CPU take the way of those of a device from now on, cut into pieces of so many bytes."""
    device = Device(delay)
    _device.simulated, _staging.CHUNK = lambda _: device, chunk
    return device


@contextmanager
def direct() -> Iterator[None]:
    """Has them go the way of the CPU within it."""
    before, _device.simulated = _device.simulated, None
    try:
        yield
    finally:
        _device.simulated = before
