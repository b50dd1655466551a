"""Operations on tensors of a device, through pinned memory of the host.

A Lane starts a group's operations in the order of their calls. Those on tensors of the CPU begin at
once. Others wait in a queue until the stream that was current at the call has produced the operand:
one thread copies it to the host and starts the operation of the library, another waits for its end
and copies the result back. An operation that has no order of values is cut into pieces, so that one
piece is copied down while another is exchanged and a third is copied up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from .._errors import RingoError
from . import _times
from ._device import described, device_of
from ._tensors import BYTES, addresses

CHUNK = 4 << 20  # bytes of a piece
CUT = ("allreduce", "reduce", "broadcast")  # operations value by value
PAGE = 4096  # the smallest pinned memory


def limit() -> int:
    """The bytes of pinned memory that a lane has in use, or keeps: 16 pieces. An operation that is not cut may need more."""
    return 16 * max(CHUNK, PAGE)


class Pool:
    """Pinned memory by size class, powers of two. It is used again once the copy from it has ended.

    take waits while more than the limit would be in use, unless nothing is.
    """

    def __init__(self, bounded: bool) -> None:
        self.in_use = self.kept = self.peak = 0  # bytes
        self._bounded = bounded
        self._free: dict[int, list[Tensor]] = {}
        self._leaving: deque[tuple[Tensor, Any]] = deque()  # with the event after which they are free
        self._lock = threading.Condition()

    def take(self, device: Any, nbytes: int) -> Tensor:
        size = 1 << max(nbytes - 1, PAGE - 1).bit_length()
        with self._lock:
            while True:
                while self._leaving and self._leaving[0][1].query():
                    self._freed(self._leaving.popleft()[0])
                if not self._bounded or self.in_use == 0 or self.in_use + size <= limit():
                    break
                if self._leaving:
                    self._leaving[0][1].synchronize()
                else:
                    self._lock.wait()  # for give: the exchange has an end, by the job's timeouts
            self.in_use += size
            self.peak = max(self.peak, self.in_use)
            if self._free.get(size):
                self.kept -= size
                return self._free[size].pop()
        return device.pinned(size)  # type: ignore[no-any-return]

    def give(self, memory: Tensor, event: Any) -> None:
        """Returns memory that is free after an event, None: now."""
        with self._lock:
            if event is None:
                self._freed(memory)
            else:
                self._leaving.append((memory, event))
            self._lock.notify()

    def _freed(self, memory: Tensor) -> None:
        size = memory.numel()
        self.in_use -= size
        if self.kept + size <= limit():
            self.kept += size
            self._free.setdefault(size, []).append(memory)


class Piece:
    """A part of an operation: its arguments in the host's memory, and what is to be copied."""

    def __init__(self, staged: Staged, arguments: Sequence[Any], pool: Pool) -> None:
        self.arguments, self._pool = list(arguments), pool
        self.back: list[tuple[Tensor, Tensor]] = []  # to the device, from the host
        self.work: Any = None
        self.copied: Any = None  # event: the operand is in the host's memory
        self._memory: Tensor | None = None
        self._used = 0
        device = staged.device
        if device is None:
            return
        self._memory = pool.take(device, sum(_room(t) for t in tensors_in(arguments)))
        reads, writes = staged.roles(arguments)
        if reads:
            device.down.wait_event(staged.ready)
        self.arguments = [self._hosted(a, device, i in reads, i in writes) for i, a in enumerate(arguments)]
        if reads:
            self.copied = device.down.record_event()

    def _hosted(self, argument: Any, device: Any, read: bool, write: bool) -> Any:
        if isinstance(argument, list):
            return [self._hosted(a, device, read, write) for a in argument]
        if not isinstance(argument, Tensor):
            return argument
        host = viewed(self._memory, argument, self._used)
        self._used += _room(argument)
        if read:
            device.run(device.down, lambda: host.copy_(argument, non_blocking=True))
        if write:
            self.back.append((argument, host))
        return host

    def ready(self) -> None:
        """Waits until the arguments are in the host's memory."""
        if self.copied is not None:
            self.copied.synchronize()

    def land(self, staged: Staged) -> None:
        """Starts to copy the result to the device."""
        if self.back:
            up = staged.device.up
            up.wait_event(staged.ready)
            for tensor, host in self.back:
                staged.device.run(up, lambda t=tensor, h=host: t.copy_(h, non_blocking=True))
            staged.event = up.record_event()
        self.leave(staged.event if self.back else None)

    def leave(self, event: Any = None) -> None:
        if self._memory is not None:
            self._pool.give(self._memory, event)
        self._memory = None


class Staged:
    """An operation that waits in a lane: a part of a Work. event is the one after its last copy to the device."""

    def __init__(self, operation: str, rank: int, device: Any, pieces: list[Sequence[Any]], make: Callable[..., Piece] = Piece) -> None:
        self.operation, self.device, self.pieces, self.make = operation, device, pieces, make
        self.event: Any = None
        self._rank = rank
        self._landed = threading.Event()
        self._fault: Exception | None = None
        self.ready = _times.operation_begins(operation, device)
        if device is None:
            return
        for arguments in pieces[:1]:  # pieces share their memory
            reads, writes = self.roles(arguments)
            for places, stream in ((reads, device.down), (writes, device.up)):
                for t in tensors_in([arguments[i] for i in places]):
                    device.keep(t, stream)

    def roles(self, arguments: Sequence[Any]) -> tuple[Sequence[int], Sequence[int]]:
        """The positions of the arguments that this rank reads, and that it writes."""
        last = arguments[-1]
        if self.operation in ("allreduce", "exchange"):
            return [0], [0]
        if self.operation == "reduce":
            return [0], [0] if last == self._rank else []
        if self.operation == "send" or self.operation == "broadcast" and last == self._rank:
            return [0], []
        if self.operation == "broadcast":
            return [], [0]
        places = [i for i, a in enumerate(arguments) if a is None or isinstance(a, (Tensor, list))]
        return places[1:], places[:1]

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the copies to the device have started, not for their end."""
        if not self._landed.wait(seconds):
            return False
        if self._fault is not None:
            raise self._fault
        return True

    def failed(self, fault: Exception) -> None:
        """Keeps the first fault. What is none of the library gets the names of operation, rank and tensors."""
        if self._fault is None and not isinstance(fault, RingoError):
            operands = described(list(tensors_in(self.pieces[0])))
            named = RingoError(f"{self.operation}: rank {self._rank}: {operands}: {fault}", self.operation)
            named.__cause__ = fault
            self._fault = named
        self._fault = self._fault or fault

    def end(self) -> None:
        self.pieces = []
        self._landed.set()

    def fault(self) -> Exception | None:
        return self._fault


class Lane:
    """Operations of a group that have an order: all collective ones, its sends, or the exchanges of a strategy.

    start is called with an operation's name, its tensors, and its arguments, as Group.start is.
    """

    def __init__(self, start: Callable[..., Any], rank: int, name: str, cut: bool = False, bounded: bool = True) -> None:
        self.pool = Pool(bounded)
        self._library, self._rank, self._name, self._cut = start, rank, name, cut
        self._lock = threading.Lock()
        self._waiting = 0  # operations whose last piece has not begun
        self._calls: SimpleQueue[Staged | None] = SimpleQueue()
        self._begun: SimpleQueue[tuple[Staged, Piece | None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._broken: Exception | None = None

    def start(self, operation: str, *arguments: Any) -> Any:
        """Starts an operation of the library, or puts it into the queue, and returns what to wait for. Tensors stand for their addresses."""
        tensors = list(tensors_in(arguments))
        device = device_of(operation, self._rank, tensors) if tensors else None
        pieces = self._pieces(operation, arguments) if self._cut else [arguments]
        with self._lock:
            if device is None and len(pieces) == 1 and not self._waiting:
                _times.operation_begins(operation)
                return self._launch(operation, arguments)
            return self._put(Staged(operation, self._rank, device, pieces))

    def stage(self, staged: Staged) -> Staged:
        """Puts an operation into the queue."""
        with self._lock:
            return self._put(staged)

    def _put(self, staged: Staged) -> Staged:
        self._waiting += 1
        if not self._threads:
            for name, run in (("begins", self._begin), ("ends", self._end)):
                self._threads.append(threading.Thread(target=run, name=f"ringo {name} {self._name}", daemon=True))
                self._threads[-1].start()
        self._calls.put(staged)
        return staged

    def _pieces(self, operation: str, arguments: Sequence[Any]) -> list[Sequence[Any]]:
        """The arguments of each piece. Ranks with tensors of the CPU cut in the same places."""
        if operation not in CUT:
            return [arguments]
        x, n, kind, *more = arguments
        flat = x.reshape(-1)
        if kind == BYTES:
            flat = flat.view(torch.uint8)
        step = max(1, CHUNK // flat.element_size())
        if n <= step:
            return [arguments]
        return [(part, part.numel(), kind, *more) for part in flat.split(step)]

    def _launch(self, operation: str, arguments: Sequence[Any]) -> Any:
        return self._library(operation, arguments, *(_address(a) for a in arguments))

    def _begin(self) -> None:
        """Starts what is in the queue."""
        while (staged := self._calls.get()) is not None:
            self._begin_one(staged)
            with self._lock:
                self._waiting -= 1
            self._begun.put((staged, None))
            del staged
        self._begun.put(None)

    def _begin_one(self, staged: Staged) -> None:
        before: Piece | None = None  # which is copied while the next one's copy begins
        try:
            if self._broken is not None:
                raise self._broken
            for arguments in staged.pieces:
                piece = staged.make(staged, arguments, self.pool)
                before, begun = piece, before
                self._proceed(staged, begun)
            begun, before = before, None
            self._proceed(staged, begun)
        except Exception as fault:
            staged.failed(fault)
            if before is not None:
                before.leave(before.copied)
            if not isinstance(fault, RingoError):
                self._broken = staged.fault()  # the other ranks have this operation, so no later one can match

    def _proceed(self, staged: Staged, piece: Piece | None) -> None:
        """Starts the library's operation on a piece when its copy has ended."""
        if piece is None:
            return
        try:
            piece.ready()
            piece.work = self._launch(staged.operation, piece.arguments)
        except Exception:
            piece.leave()
            raise
        self._begun.put((staged, piece))

    def _end(self) -> None:
        """Waits for what was started, in its order, and has it copied back."""
        while (item := self._begun.get()) is not None:
            staged, piece = item
            if piece is None:
                staged.end()
            else:
                try:
                    piece.work.wait()
                    piece.land(staged)
                except Exception as fault:
                    staged.failed(fault)
                    piece.leave()
            del item, staged, piece

    def landing(self, tensor: Tensor) -> tuple[Tensor, Any, Callable[[], None]] | None:
        """For a message: the memory of the host for it, its device, and what copies it to tensor; None if that is of the CPU."""
        device = device_of("receive", self._rank, [tensor])
        if device is None:
            return None
        memory = self.pool.take(device, tensor.numel() * tensor.element_size())
        host, ready = viewed(memory, tensor), device.current().record_event()

        def finish() -> None:
            stream = device.current()
            stream.wait_event(ready)
            device.run(stream, lambda: tensor.detach().copy_(host, non_blocking=True))
            self.pool.give(memory, stream.record_event())

        return host, device, finish

    def close(self) -> None:
        """Ends the threads after what is in the queue."""
        if self._threads:
            self._calls.put(None)


def viewed(memory: Any, like: Tensor, at: int = 0) -> Tensor:
    """The part of memory from at on that has the values of a tensor."""
    return memory[at : at + like.numel() * like.element_size()].view(like.dtype).view(like.shape)  # type: ignore[no-any-return]


def _room(t: Tensor) -> int:
    """The bytes of a tensor, up to a cache line."""
    return -(-t.numel() * t.element_size() // 64) * 64


def tensors_in(arguments: Sequence[Any]) -> Iterator[Tensor]:
    for a in arguments:
        if isinstance(a, Tensor):
            yield a
        elif isinstance(a, list):
            yield from tensors_in(a)


def _address(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.data_ptr()
    return addresses(argument) if isinstance(argument, list) else argument
