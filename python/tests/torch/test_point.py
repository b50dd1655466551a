"""Messages of two ranks, with a group that is none: when a receive's time is over."""

from __future__ import annotations

import queue
import threading
import unittest
from typing import Any

import torch
from ringo import ExpiredError
from ringo.torch._point import Mailbox


class Arriving:
    """Rank 0 of two: what rank 1 sends is what a test puts in parts, a header or a message or a fault at a time."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.parts: queue.Queue[torch.Tensor | Exception] = queue.Queue()
        self.receiving = threading.Event()

    def start(self, operation: str, into: torch.Tensor, *_: Any) -> Any:
        class Part:
            def wait(part) -> None:
                if operation == "receive":
                    self.receiving.set()
                came = self.parts.get(timeout=20)
                if isinstance(came, Exception):
                    raise came
                into.copy_(came)

        return Part()

    def send(self, tag: int, *values: int) -> None:
        self.parts.put(torch.tensor([tag, len(values)]))
        self.parts.put(torch.tensor(values, dtype=torch.uint8))


def zeros(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.uint8)


class Point(unittest.TestCase):
    def test_late_message_is_for_who_asks_next(self) -> None:
        for source in (1, None):
            group = Arriving()
            mailbox = Mailbox(group, 0.1, None)  # type: ignore[arg-type]
            given_up, asked = zeros(2), zeros(2)
            request = mailbox.receive(given_up, source, 7)
            for _ in range(2):  # its end is final
                with self.assertRaisesRegex(ExpiredError, "with tag 7: nothing came within 0.1 s"):
                    request.wait()
            mailbox._timeout = 20
            request = mailbox.receive(asked, 1, 7)
            group.send(7, 5, 6)
            self.assertTrue(request.wait())
            self.assertEqual((given_up.tolist(), asked.tolist()), ([0, 0], [5, 6]))
            mailbox.close()

    def test_message_that_is_coming_is_waited_for(self) -> None:
        for room in (2, 3):  # one that fits comes to its place, another is kept
            for fault in (None, ConnectionError("rank 1 is gone")):
                group = Arriving()
                mailbox = Mailbox(group, 0.2, None)  # type: ignore[arg-type]
                x = zeros(room)
                request = mailbox.receive(x, 1, 7)
                group.parts.put(torch.tensor([7, 2]))
                self.assertTrue(group.receiving.wait(20))
                threading.Timer(0.4, group.parts.put, [fault or torch.tensor([5, 6], dtype=torch.uint8)]).start()
                if fault:
                    with self.assertRaises(ConnectionError):
                        request.wait()
                elif room == 2:
                    self.assertTrue(request.wait())
                    self.assertEqual(x.tolist(), [5, 6])
                else:
                    with self.assertRaisesRegex(Exception, "2 bytes came, the tensor has 3"):
                        request.wait()
                mailbox.close()
