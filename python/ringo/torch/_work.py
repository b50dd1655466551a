"""What a started operation is to PyTorch: something to wait for, and a future."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Work as TorchWork

from .._errors import ExpiredError
from . import _times

# C++ holds a Work of Python weakly: those that were made last are kept, so that it can ask them.
_recent: deque[Work] = deque(maxlen=64)


class Completer:
    """A thread that waits for operations in the order in which their futures were asked for. It begins with the first."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._name = name

    def add(self, work: Work) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(work)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work.complete()
            del work

    def stop(self) -> None:
        if self._thread is not None:
            self._queue.put(None)


class Work(TorchWork):
    """Operations of libringo that together are one of PyTorch's. finish is called once when they have ended well.

    On a device, wait waits until the copies of the result have started, and has the stream that is
    current wait for their end.
    """

    def __init__(
        self,
        parts: Sequence[Any],
        result: list[Tensor],
        completer: Completer,
        finish: Callable[[], None] | None = None,
        limit: float = 0,
        device: Any = None,
    ) -> None:
        super().__init__()
        self.device = device or next((d for p in parts if (d := getattr(p, "device", None)) is not None), None)
        self.event: Any = None  # after the result's copies to the device
        self._parts = list(parts)
        self._result = result
        self._completer = completer
        self._finish = finish
        self._end_by = time.monotonic() + limit if limit else None
        self._lock = threading.Lock()
        self._done = False
        self._fault: BaseException | None = None
        self._future: Any = None
        self._told: Any = None
        _recent.append(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for the end. Errors: its fault; a timeout, if it is not zero, that passes, after which it goes on."""
        begin = time.perf_counter()
        self._end(timeout.total_seconds() if timeout else None)
        _times.add_wait(time.perf_counter() - begin)
        if self._fault is not None:
            raise self._fault
        if self.event is not None:
            self.device.current().wait_event(self.event)
        return True

    def _end(self, seconds: float | None) -> None:
        if self._done:
            return
        if seconds is None:
            with self._lock:
                self._wait_parts(self._end_by, True)
            return
        end = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            raise ExpiredError(f"timeout: the operation has not ended within {seconds} s", "wait")
        try:
            self._wait_parts(end, False)
        finally:
            self._lock.release()

    def _wait_parts(self, end: float | None, final: bool) -> None:
        """Waits for the parts. Not to have ended by then is their fault if that is final. The lock is held."""
        if self._done:
            return
        try:
            for part in self._parts:
                if not part.wait(None if end is None else max(0, end - time.monotonic())):
                    raise _Unended
            if self.device is not None:
                self._finish_on(self.device)
            elif self._finish is not None:
                self._finish()
        except _Unended:
            operation = self._parts[0].operation
            self._fault = ExpiredError(f"{operation}: the group's timeout is over: not all of its ranks have come, or one does not answer", operation)
            if not final:
                raise self._take_fault() from None
        except Exception as fault:
            self._fault = fault
        self._done = True
        self._parts, self._finish = [], None

    def _finish_on(self, device: Any) -> None:
        """Has the current stream do what finish does after all copies."""
        stream = device.current()
        for part in self._parts:
            if getattr(part, "event", None) is not None:
                stream.wait_event(part.event)
        if self._finish is not None:
            device.run(stream, self._finish)
        for t in self._result:
            device.keep(t, stream)
        self.event = stream.record_event()

    def _take_fault(self) -> BaseException:
        fault, self._fault = self._fault, None
        assert fault is not None
        return fault

    def is_completed(self) -> bool:
        if not self._done and self._lock.acquire(blocking=False):
            try:
                self._wait_parts(time.monotonic(), False)
            except ExpiredError:
                pass
            finally:
                self._lock.release()
        return self._done

    def is_success(self) -> bool:
        return self._done and self._fault is None

    def exception(self) -> BaseException | None:
        return self._fault

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[Tensor]:
        self.wait()
        return self._result

    def get_future(self) -> Any:
        """A future of the tensors. One that fails raises where it is waited for, in C++, too: a function in between raises, as what
        set_exception gives, Work.wait() of C++ does not see.

        Python gets one that has come true: what is chained to it, as hooks do, runs at once. It may start operations itself, which all ranks
        must start at the same place among others, and a thread that runs it when its time comes would not see to that. DDP without
        a hook, which is C++, gets its futures before they come true.
        """
        if self._future is None:
            self._told = future_on(self.device)
            self._future = self._told.then(self._checked)
            if "get_future" in sys._getframe(1).f_code.co_names or self.is_completed():
                self.complete()
            else:
                self._completer.add(self)
        return self._future

    def future_of(self) -> Any:
        """A future of the only tensor, for a hook of DDP, that comes true when it does: nothing is chained to it but by DDP."""
        self._told = future_on(self.device)
        self._completer.add(self)
        return self._told.then(lambda future: self._checked(future)[0])

    def _checked(self, future: Any) -> list[Tensor]:
        if self._fault is not None:
            raise self._fault
        return self._result

    def complete(self) -> None:
        """Waits and tells the future. It raises nothing: the future has the fault."""
        self._ended()
        tell(self._told, self._result, self.device)

    def _ended(self) -> None:
        """Waits for the end. A device's stream of copies waits for that of the copies."""
        if self.device is None:
            return self._end(None)
        with self.device.on(self.device.up):
            self._end(None)
            if self.event is not None:
                self.device.up.wait_event(self.event)


def future_on(device: Any) -> Any:
    """A future of tensors on a device, None for the CPU."""
    return torch.futures.Future() if device is None else torch.futures.Future(devices=device.places)


def tell(future: Any, value: Any, device: Any) -> None:
    """Sets the result of such a future."""
    if device is None:
        future.set_result(value)
    else:
        device.tell(future, value)


class Promise:
    """The future of a tensor whose operation is still to be started, for a hook of DDP."""

    def __init__(self, device: Any) -> None:
        self._told, self._device = future_on(device), device
        self._tensor: Tensor | None = None
        self._fault: BaseException | None = None

    def future(self) -> Any:
        """It is to be asked for once."""
        return self._told.then(lambda _: self._value())

    def _value(self) -> Tensor | None:
        if self._fault is not None:
            raise self._fault
        return self._tensor

    def keep(self, tensor: Tensor, fault: BaseException | None) -> None:
        self._tensor, self._fault = tensor, fault
        tell(self._told, tensor, self._device)


class Merged(Work):
    """An operation on several of DDP's buckets."""

    _promises: Sequence[Promise] = ()

    def tell(self, promises: Sequence[Promise]) -> None:
        """Keeps a promise for each tensor of the result when it has ended."""
        self._promises = promises
        self._completer.add(self)

    def complete(self) -> None:
        self._ended()
        for promise, tensor in zip(self._promises, self._result):
            promise.keep(tensor, self._fault)


class AnySource(Work):
    """A receive from any rank: it knows which one has sent."""

    def __init__(self, parts: Sequence[Any], *more: Any) -> None:
        super().__init__(parts, *more)
        self._request = parts[0]

    def source_rank(self) -> int:
        self.wait()
        return int(self._request.from_rank)

    _source_rank = source_rank


class _Unended(Exception):
    """A part has not ended when the time was over."""


def waited(part: Any) -> None:
    """Waits for an operation whose result the host reads."""
    part.wait()
    if getattr(part, "event", None) is not None:
        part.event.synchronize()
