"""Messages between two ranks with tags, and from any rank, which libringo has not.

A message is two of libringo: tag and length, and then the tensor. A thread for each rank that is received from listens for the first
as long as somebody wants a message, finds who, and receives the second to its place. What comes under a tag that nobody wants yet
is kept.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._errors import ExpiredError, RingoError
from ._tensors import BYTES, TYPES, dense, restore, room

if TYPE_CHECKING:
    from .._group import Group
    from ._staging import Lane

HEADER = 2  # values: tag, bytes


class Request:
    """A receive that somebody waits for: a part of a Work."""

    operation = "receive"

    def __init__(self, tensor: Tensor, source: int | None, tag: int, timeout: float, withdraw: Callable[[Request], bool]) -> None:
        self.tensor, self.source, self.tag = tensor, source, tag
        self.from_rank = -1 if source is None else source
        self._timeout = timeout
        self._withdraw = withdraw
        self._end = time.monotonic() + timeout
        self._done = threading.Event()
        self._fault: Exception | None = None

    def end(self, fault: Exception | None = None) -> None:
        self._fault = fault
        self._done.set()

    def wait(self, seconds: float | None = None) -> bool:
        left = max(0.0, self._end - time.monotonic())
        if not self._done.wait(left if seconds is None else min(seconds, left)):
            if seconds is not None and time.monotonic() < self._end:
                return False
            self._expire()
        if self._fault is not None:
            raise self._fault
        return True

    def _expire(self) -> None:
        """Gives up: a message that comes later is for who asks next, and the tensor is not touched again. One that is coming is waited for."""
        if self._withdraw(self):
            who = "any rank" if self.source is None else f"rank {self.source}"
            text = f"receive from {who} with tag {self.tag}: nothing came within {self._timeout} s"
            self.end(ExpiredError(text, "receive", self.source))
        self._done.wait()


class Mailbox:
    """The receives of a group, and its sends."""

    def __init__(self, group: Group, timeout: float, lane: Lane) -> None:
        self._group = group
        self._lane = lane  # of sends
        self._timeout = timeout
        self._lock = threading.Condition()
        self._wanted: list[Request] = []  # in the order in which they were asked for
        self._early: deque[tuple[int, int, Tensor]] = deque()  # source, tag, bytes
        self._listeners: dict[int, threading.Thread] = {}
        self._closed = False

    def send(self, tensor: Tensor, to: int, tag: int) -> list[object]:
        """Starts to send, and returns what to wait for."""
        x = dense(tensor)
        size = x.numel() * x.element_size()
        header = torch.tensor([tag, size], dtype=torch.int64)
        parts: list[object] = [self._lane.start("send", header, HEADER, TYPES[torch.int64], to)]
        if size:
            parts.append(self._lane.start("send", x, size, BYTES, to))
        return parts

    def receive(self, tensor: Tensor, source: int | None, tag: int) -> Request:
        """Asks for a message, from any rank if source is None."""
        request = Request(tensor, source, tag, self._timeout, self._withdraw)
        with self._lock:
            for early in self._early:
                if source in (None, early[0]) and tag == early[1]:
                    self._early.remove(early)
                    request.from_rank = early[0]
                    break
            else:
                self._wanted.append(request)
                self._listen(source)
                return request
        _deliver(request, lambda x: _copied(x, early[2]), early[2].numel())
        return request

    def _withdraw(self, request: Request) -> bool:
        """Forgets a request, if no message for it has begun to come."""
        with self._lock:
            if request not in self._wanted:
                return False
            self._wanted.remove(request)
            return True

    def _listen(self, source: int | None) -> None:
        """Sees to it that somebody listens. The lock is held."""
        group = self._group
        sources = [r for r in range(group.size) if r != group.rank] if source is None else [source]
        for r in sources:
            if r not in self._listeners:
                self._listeners[r] = threading.Thread(target=self._serve, args=(r,), name=f"ringo from {r}", daemon=True)
                self._listeners[r].start()
        self._lock.notify_all()

    def _asked(self, source: int) -> bool:
        return any(w.source in (None, source) for w in self._wanted)

    def _serve(self, source: int) -> None:
        """Takes messages of a source as long as somebody wants one."""
        try:
            while True:
                with self._lock:
                    self._lock.wait_for(lambda: self._closed or self._asked(source))
                    if self._closed:
                        return
                self._take(source)
        except Exception as fault:
            with self._lock:
                failed = [w for w in self._wanted if w.source in (None, source)]
                self._wanted = [w for w in self._wanted if w not in failed]
                del self._listeners[source]
            for w in failed:
                w.end(fault)

    def _take(self, source: int) -> None:
        """Receives the next message of a source."""
        header = torch.empty(HEADER, dtype=torch.int64)
        self._group.start("listen", header, header.data_ptr(), HEADER, TYPES[torch.int64], source).wait()
        tag, size = (int(v) for v in header)
        with self._lock:
            request = next((w for w in self._wanted if w.source in (None, source) and w.tag == tag), None)
            if request is not None:
                self._wanted.remove(request)
                request.from_rank = source
        if request is None or request.tensor.numel() * request.tensor.element_size() != size:
            try:
                kept = torch.empty(size, dtype=torch.uint8)
                self._payload(kept, source)
            except Exception as fault:
                if request is not None:  # nobody else would end it
                    request.end(fault)
                raise
            with self._lock:
                if request is None:
                    request = next((w for w in self._wanted if w.source in (None, source) and w.tag == tag), None)
                    if request is None:
                        self._early.append((source, tag, kept))
                        return
                    self._wanted.remove(request)
                    request.from_rank = source
            _deliver(request, lambda x: _copied(x, kept), size)
            return
        _deliver(request, lambda x: self._payload(x, source), size)

    def _payload(self, x: Tensor, source: int) -> None:
        size = x.numel() * x.element_size()
        if size:
            self._group.start("receive", x, x.data_ptr(), size, BYTES, source).wait()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()


def _copied(x: Tensor, kept: Tensor) -> None:
    x.view(-1).view(torch.uint8).copy_(kept)


def _deliver(request: Request, fill: Callable[[Tensor], None], size: int) -> None:
    """Has the tensor of a request filled, and ends it."""
    t = request.tensor
    wants = t.numel() * t.element_size()
    if wants != size:
        text = f"receive from rank {request.from_rank} with tag {request.tag}: {size} bytes came, the tensor has {wants}"
        return request.end(RingoError(text, "receive", request.from_rank))
    try:
        x = room(t)
        fill(x)
        restore(t, x)
    except Exception as fault:
        return request.end(fault)
    request.end()
