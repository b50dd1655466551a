"""Operations that were started."""

from __future__ import annotations

import threading
import time
from ctypes import c_void_p
from typing import Any

from ._library import PENDING, check, library

SLICE_MS = 100  # Python's handlers of signals run between calls of the library


class Work:
    """An operation under way. Its operands must not be touched until it has ended, and are kept until then.

    It ends whether anybody waits for it or not; its fault is told to who does.
    """

    __slots__ = ("operation", "_handle", "_operands", "_fault", "_lock", "__weakref__")

    def __init__(self, operation: str, handle: c_void_p, operands: Any) -> None:
        self.operation = operation
        self._handle: c_void_p | None = handle
        self._operands = operands
        self._fault: Exception | None = None
        self._lock = threading.Lock()  # held by who waits: the library wants one at a time

    def test(self) -> bool:
        """Whether it has ended. Errors: its fault."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it has ended, at most so many seconds, and returns whether it has: if not, it goes on. None waits for the
        end, which the job's own timeouts bound. Signals are handled meanwhile. Errors: its fault, each time.
        """
        if timeout is None and self._handle is not None:
            while not self._look(SLICE_MS):
                pass
        elif self._handle is not None:
            left_ms = timeout * 1000  # type: ignore[operator]
            end = time.monotonic() * 1000 + left_ms
            while not self._look(max(0, min(SLICE_MS, int(left_ms)))):
                left_ms = end - time.monotonic() * 1000
                if left_ms <= 0:
                    return False
        if self._fault is not None:
            raise self._fault
        return True

    def _look(self, ms: int) -> bool:
        """Waits once, and reports whether it has ended. What it has raised is kept."""
        with self._lock:
            return self._look_locked(ms)

    def glance(self) -> bool:
        """Whether it has ended, if nobody waits for it: its fault is kept for who does."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._look_locked(0)
        finally:
            self._lock.release()

    def _look_locked(self, ms: int) -> bool:
        handle = self._handle
        if handle is None:
            return True
        code = library().ringo_wait(handle, ms)
        if code == PENDING:
            return False
        self._handle = None
        self._operands = None
        if code < 0:
            try:
                check(code, self.operation)
            except Exception as fault:
                self._fault = fault
        return True

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended: by test or wait."""
        return self._handle is None


class Unfinished:
    """Operations that nobody may ever wait for: their operands are kept until they have ended.

    It looks at the oldest ones when others are added, so that a loop without waits keeps few of them.
    """

    def __init__(self, keep: int = 64) -> None:
        self._works: list[Work] = []
        self._keep = keep

    def add(self, work: Work) -> None:
        self._works.append(work)
        if len(self._works) > self._keep:
            self._works = [w for w in self._works if not w.glance()]
            self._keep = max(64, 2 * len(self._works))
