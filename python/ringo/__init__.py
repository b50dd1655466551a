"""Collective operations among the processes of a job, by libringo: in shared memory or over TCP.

    import numpy, ringo

    with ringo.join() as job:
        x = job.zeros(1 << 20)
        x += job.rank
        job.world.allreduce(x, "mean")

`ringo run --np 2 -- python3 program.py` starts it, and so do mpirun, srun and torchrun. ringo.torch is a backend of torch.distributed.
"""

from ._arrays import Op
from ._errors import (
    ClosedError,
    ExpiredError,
    ForkedError,
    InternalError,
    InvalidError,
    LostError,
    MismatchError,
    RingoError,
)
from ._group import Group
from ._job import Job, address, join, ticket
from ._library import version
from ._strategy import Strategy
from ._tables import Table, Tables
from ._work import Work

__all__ = [
    "ClosedError",
    "ExpiredError",
    "ForkedError",
    "Group",
    "InternalError",
    "InvalidError",
    "Job",
    "LostError",
    "MismatchError",
    "Op",
    "RingoError",
    "Strategy",
    "Table",
    "Tables",
    "Work",
    "address",
    "join",
    "ticket",
    "version",
]
