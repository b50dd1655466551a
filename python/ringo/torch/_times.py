"""Times of this rank's steps, without its waits for other ranks."""

from __future__ import annotations

import time
from typing import Any

REDUCTIONS = ("allreduce", "reduce", "reduce_scatter", "exchange")

measuring = False  # in steps that count
_waited = _begin = _last = _waited_before_last = 0.0
_ready: tuple[Any, Any] | None = None  # of the last reduction: its device, and the event with a time after its operand


def add_wait(seconds: float) -> None:
    """Counts a wait of the program for an operation."""
    global _waited
    _waited += seconds


def operation_begins(operation: str, device: Any = None) -> Any:
    """Counts the call of an operation. Its operand is computed now, or after the event of a device's stream, which is returned."""
    global _last, _ready, _waited_before_last
    counts = measuring and operation in REDUCTIONS
    event = None if device is None else device.mark(counts)
    if counts:
        _last, _waited_before_last, _ready = time.perf_counter(), _waited, (device, event) if device else None
    return event


def begin_step(measured: bool = True) -> None:
    global measuring, _waited, _begin, _ready
    measuring, _waited, _begin, _ready = measured, 0.0, time.perf_counter(), None


def step_seconds() -> float:
    """The seconds from begin_step until the operand of the last reduction is computed, or to now without one, less the waits before its call."""
    if _last > _begin:
        since = 0.0 if _ready is None else _ready[0].seconds_since(_ready[1])
        last = _last if _ready is None else time.perf_counter() - since
        return max(last - _begin - _waited_before_last, 1e-9)
    return max(time.perf_counter() - _begin - _waited, 1e-9)
