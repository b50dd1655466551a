"""What operations raise: exceptions that name the operation and the rank to blame."""

from __future__ import annotations


class RingoError(RuntimeError):
    """An operation has failed.

    operation is its name in ringo.h without the prefix, such as "allreduce". rank is the rank of the job that is to blame, the
    same on all that survive, or None where none is known.
    """

    def __init__(self, text: str, operation: str = "", rank: int | None = None) -> None:
        super().__init__(text)
        self.operation = operation
        self.rank = rank


class InvalidError(RingoError, ValueError):
    """An argument is wrong: nothing was started, and the job goes on."""


class LostError(RingoError):
    """A rank is gone, or has ended the job."""


class ExpiredError(RingoError, TimeoutError):
    """A rank did not come or answer in time."""


class MismatchError(RingoError):
    """Ranks have started different operations."""


class ClosedError(RingoError):
    """The group or the job was closed on this side."""


class ForkedError(RingoError):
    """This process is a fork of the one that has loaded the library."""


class InternalError(RingoError):
    """A fault of the library: please report it."""


# By ringo_error.
KINDS: dict[int, type[RingoError]] = {
    -1: InvalidError,
    -2: LostError,
    -3: ExpiredError,
    -4: MismatchError,
    -5: ClosedError,
    -6: ForkedError,
    -7: InternalError,
}
