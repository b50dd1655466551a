"""A smaller group, or one with a new process, after the loss of a rank under `ringo run --min-np`."""

from __future__ import annotations

import logging
from datetime import timedelta

import torch.distributed as dist

from .._errors import InvalidError, LostError
from . import _start
from ._process_group import ProcessGroup

_ANSWER = 5.0  # seconds within which a job that has lost a rank says so
_log = logging.getLogger("ringo.torch")


def reform() -> None:
    """Makes the process group anew after the loss of a rank, in a job of `ringo run --np N --min-np M`:

        ddp = None
        while step < steps:
            try:
                if ddp is None:
                    ddp, step = shared(model, optimizer, step)
                step = train(ddp, optimizer, step)
            except RuntimeError:               # of DDP, or ringo.LostError of an operation
                ringo.torch.reform()
                ddp = None                     # shared is in try, because another rank may be lost meanwhile

    shared wraps the model in a new DistributedDataParallel, which sends the parameters of rank 0, and sends rank 0's state of the optimizer
    and its step by broadcast_object_list. The program calls it at its start, too: with M ranks a new process replaces the lost rank, and gets its
    state there. Rank 0 of the new group was a rank before. Ranks have new numbers, groups of new_group and hooks are to be made again.

    Errors: no rank is lost; not all other ranks have called it within 60 s (ringo run --join-timeout); the launcher ends the job.
    """
    job = _start.launched()
    group = dist.distributed_c10d._get_default_group() if dist.is_initialized() else None
    if job is None or not isinstance(group, ProcessGroup) or group._group.job is not job:
        raise ValueError(
            'reform: no process group of `ringo run`: start the program by ringo run --np N --min-np M, and begin with init_process_group("ringo")'
        )
    try:
        job.world.start_barrier().wait(_ANSWER)
        raise ValueError("reform: no rank of this job is lost: another error has no remedy here")
    except LostError as fault:
        lost = fault
    timeout, options = _start.asked(job)
    while True:
        _start.forget()
        try:
            return dist.init_process_group("ringo", timeout=timedelta(seconds=timeout), pg_options=options)
        except InvalidError as fault:
            raise fault from lost
        except RuntimeError as fault:  # another loss, or that of PyTorch's store with rank 0
            _log.warning("reform: %s: once more", fault)
            lost = fault
