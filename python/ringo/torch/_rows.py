"""Rows of embeddings on a device: copies through pinned memory, gradients that leave on a thread, and a cache of frequent rows."""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from .._work import Work
from ._device import device_of
from ._staging import Pool, viewed

STEPS = 2  # steps with gradients that are not sent yet, at most


class Place:
    """Place is the memory in which rows are used: that of the CPU, or that of a device with pinned memory of the host."""

    def __init__(self, where: Any, rank: int) -> None:
        sample = torch.empty(0, device=where)
        self.where, self.device = sample.device, device_of("Tables", rank, [sample])
        self._pool = Pool(bounded=False)  # a batch's rows are needed together

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, device=self.where)

    def host(self, like: Tensor) -> tuple[Tensor, Any]:
        """Memory of the host for the values of a tensor, from which they are copied to the device. CPU: the tensor."""
        if self.device is None:
            return like, None
        memory = self._pool.take(self.device, like.numel() * like.element_size())
        return viewed(memory, like), memory

    def up(self, host: Tensor, memory: Any, out: Tensor | None = None) -> Tensor:
        """Starts to copy the memory of host to the device, for the current stream, and returns the copy. CPU: host."""
        if self.device is None:
            return host
        out = torch.empty(host.shape, dtype=host.dtype, device=self.where) if out is None else out
        stream = self.device.current()
        self.device.run(stream, lambda: out.copy_(host, non_blocking=True))
        self._pool.give(memory, stream.record_event())
        return out

    def moved(self, t: Tensor) -> Tensor:
        """A tensor of the CPU as the current stream has it."""
        host, memory = self.host(t)
        return self.up(t if memory is None else host.copy_(t), memory)

    def down(self, t: Tensor, send: Callable[[Tensor], None]) -> Callable[[], None]:
        """Starts to copy a tensor to the host after the current stream. The function that it returns waits for that, and sends the copy."""
        device, (host, memory) = self.device, self.host(t)
        device.down.wait_event(device.current().record_event())
        device.keep(t, device.down)
        device.run(device.down, lambda: host.copy_(t, non_blocking=True))
        copied = device.down.record_event()

        def finish() -> None:
            copied.synchronize()
            send(host)
            self._pool.give(memory, None)

        return finish


class Outbox:
    """Outbox calls functions in order, on a thread. The first error ends it, and the job by fail: later calls raise it."""

    def __init__(self, fail: Callable[[str], Any]) -> None:
        self._queue: SimpleQueue[Callable[[], Any] | threading.Event | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._fail = fail
        self._error: Exception | None = None
        self._sent = True  # no call since the last drain
        self._ends: deque[threading.Event] = deque()

    def put(self, send: Callable[[], Any]) -> None:
        self.check()
        if self._thread is None or not self._thread.is_alive():  # the thread of a fork, whose calls fail, is a new one
            self._thread = threading.Thread(target=self._run, name="ringo sends gradients", daemon=True)
            self._thread.start()
            atexit.register(self.finish)  # it runs before the job is left, as that was registered first
        self._queue.put(send)
        self._sent = False

    def _run(self) -> None:
        while (send := self._queue.get()) is not None:
            if isinstance(send, threading.Event):
                send.set()
            elif self._error is None:
                try:
                    send()
                except Exception as error:
                    self._error = error
                    with suppress(RuntimeError):  # the job has failed already
                        self._fail(f"{type(error).__name__}: {error}")  # other ranks wait for the end of this step
            del send

    def end_step(self, send: Callable[[], None]) -> None:
        """Calls send, and waits while more than STEPS steps are not sent."""
        self.put(send)
        self._ends.append(threading.Event())
        self._queue.put(self._ends[-1])
        while len(self._ends) > STEPS:
            self._ends.popleft().wait()
        self.check()

    def drain(self) -> None:
        """Waits until all was sent. A fork has no thread, and nothing to send."""
        if not self._sent and self._thread is not None and self._thread.is_alive():
            self._sent, sent = True, threading.Event()
            self._queue.put(sent)
            sent.wait()  # it ends, as sends have the job's timeouts
        self.check()

    def wait(self, work: Work) -> None:
        """Waits for a pull, which ends only if the steps before are sent. An error of these is the first."""
        try:
            while not work.wait(1):
                self.check()
        except RuntimeError:
            self.check()
            raise

    def close(self) -> None:
        """Waits as drain does, and ends the thread."""
        try:
            self.drain()
        finally:
            if self._thread is not None:
                self._queue.put(None)
            self._thread = None
            atexit.unregister(self.finish)

    def finish(self) -> None:
        """Closes it, and logs an error: the process group or the process ends, where it would not be seen if raised."""
        try:
            self.close()
        except Exception as error:
            logging.getLogger("ringo.torch").error("gradients of embeddings were not sent: %s", error)

    def check(self) -> None:
        if self._error is not None:
            raise self._error


class RowCache:
    """RowCache has rows of frequent keys in memory of the device. A key has one place, by its hash.

    A row of training may be used in its step and in the next ones, as many as reuse; a row of an evaluation in the evaluations before
    the next step. A row that was used is replaced at the second attempt (CLOCK), so that rare keys do not displace frequent ones.
    """

    def __init__(self, values: Tensor, reuse: int) -> None:
        rows = len(values)
        self.values, self.reuse = values, reuse
        self.lookups, self.hits = [0, 0], [0, 0]  # of training, of evaluations
        self._keys, self._owner = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, dtype=torch.int64)
        self._until, self._peeked = torch.full((2, rows), -1)  # last step of training, and step of evaluations
        self._used = torch.zeros(rows, dtype=torch.bool)

    def slots(self, keys: Tensor) -> Tensor:
        return torch.remainder((keys * -0x61C8864680B583EB) >> 17, len(self._keys))  # Fibonacci hashing

    def find(self, keys: Tensor, step: int, peek: bool) -> Tensor:
        """Reports which of different keys have a row for a step."""
        slots = self.slots(keys)
        valid = self._peeked[slots] == step if peek else self._until[slots] >= step
        found = valid & (self._keys[slots] == keys)
        self._used[slots[found]] = True
        self.lookups[peek] += len(keys)
        self.hits[peek] += int(found.sum())
        return found

    def store(self, keys: Tensor, rows: Tensor, step: int, peek: bool, place: Place) -> None:
        """Takes rows that were pulled for a step."""
        slots = self.slots(keys)
        busy = self._used[slots] & (self._keys[slots] != keys)
        self._used[slots[busy]] = False
        self._owner[slots[~busy]] = torch.nonzero(~busy).view(-1)
        chosen = torch.nonzero(~busy & (self._owner[slots] == torch.arange(len(keys)))).view(-1)
        slots = slots[chosen]
        self._keys[slots] = keys[chosen]
        self._until[slots] = -1 if peek else step + self.reuse
        self._peeked[slots] = step if peek else -1
        self.values.index_copy_(0, place.moved(slots), rows.index_select(0, place.moved(chosen)))
