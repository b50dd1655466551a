"""Times of this rank's steps, without its waits for other ranks."""

from __future__ import annotations

import time

REDUCTIONS = ("allreduce", "reduce", "reduce_scatter", "exchange")

_waited = _begin = _last = _waited_before_last = 0.0


def add_wait(seconds: float) -> None:
    """Counts a wait of the program for an operation."""
    global _waited
    _waited += seconds


def operation_begins(operation: str) -> None:
    """Counts the begin of an operation of the library: the operand is computed, and is in memory of the host."""
    global _last, _waited_before_last
    if operation in REDUCTIONS:
        _last, _waited_before_last = time.perf_counter(), _waited


def begin_step() -> None:
    global _waited, _begin
    _waited, _begin = 0.0, time.perf_counter()


def step_seconds() -> float:
    """The seconds from begin_step to the last reduction, or to now without one, less the waits in them."""
    if _last > _begin:
        return max(_last - _begin - _waited_before_last, 1e-9)
    return max(time.perf_counter() - _begin - _waited, 1e-9)
