"""Times of this rank's steps, without its waits for other ranks."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

REDUCTIONS = ("allreduce", "reduce", "reduce_scatter", "exchange")


class Steps:
    """The times of the steps of one share. Operations and waits count for all shares that there are."""

    def __init__(self) -> None:
        self._measuring = False  # in steps that count
        self._waited = self._begin = self._last = self._waited_before_last = 0.0
        self._ready: tuple[Any, Any] | None = None  # of the last reduction: its device, and the event with a time after its operand
        with _lock:
            _every.add(self)

    def begin(self, measured: bool = True) -> None:
        self._measuring, self._waited, self._begin, self._ready = measured, 0.0, time.perf_counter(), None

    def seconds(self) -> float:
        """The seconds from begin until the operand of the last reduction is computed, or to now without one, less the waits before its call."""
        if self._last > self._begin:
            since = 0.0 if self._ready is None else self._ready[0].seconds_since(self._ready[1])
            last = self._last if self._ready is None else time.perf_counter() - since
            return max(last - self._begin - self._waited_before_last, 1e-9)
        return max(time.perf_counter() - self._begin - self._waited, 1e-9)


_every: weakref.WeakSet[Steps] = weakref.WeakSet()
_lock = threading.Lock()  # of _every


def add_wait(seconds: float) -> None:
    """Counts a wait of the program for an operation."""
    with _lock:
        for steps in _every:
            steps._waited += seconds


def operation_begins(operation: str, device: Any = None) -> Any:
    """Counts the call of an operation. Its operand is computed now, or after the event of a device's stream, which is returned."""
    with _lock:
        counts = [s for s in _every if s._measuring] if operation in REDUCTIONS else []
    event = None if device is None else device.mark(bool(counts))
    for s in counts:
        s._last, s._waited_before_last, s._ready = time.perf_counter(), s._waited, (device, event) if device else None
    return event
