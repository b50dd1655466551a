"""How the ranks of a process group become a job of libringo."""

from __future__ import annotations

import atexit
import importlib
import os
import socket
import sys
import weakref
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from .. import _job
from .._job import Job
from ._process_group import ProcessGroup


@dataclass(frozen=True)
class Options:
    """What init_process_group("ringo", pg_options=Options(...)) may say; new_group takes none.

    ticket_file: a file with the job's secret, which only its owner may read, the same on all ranks. Without it the secret
    travels through PyTorch's store, and the job is no safer than that: who can read the store can join.
    host: an address of rank 0's host by which the other ranks reach it. "": 127.0.0.1 where all ranks are on one host, else that of its name.
    transport: "shm" or "tcp". "": shm where ranks share a host.
    join_timeout: bounds the wait for all ranks at the start, in seconds.
    """

    ticket_file: str = ""
    host: str = ""
    transport: str = ""
    join_timeout: float = 60


_world: weakref.ref[Job] | None = None  # the job of the default process group
_prepared: Job | None = None  # one that was joined to find where PyTorch's store is, see env


def create(backend: Any, pg_options: Options | None) -> ProcessGroup:
    """Makes the process group that PyTorch asks for: the creator of backend "ringo"."""
    global _world, _prepared
    options = pg_options or Options()
    timeout = backend.timeout.total_seconds()
    ranks = list(backend.global_ranks_in_group)
    job = None if _world is None else _world()
    if job is not None and not job.left and ranks:
        limit = timeout if timeout < _timeouts[job] else 0
        return ProcessGroup(job.subgroup(ranks), timeout, owner=False, limit=limit)
    if _prepared is not None:
        job, _prepared = _prepared, None
    else:
        job = _meet(backend.store, backend.group_rank, backend.group_size, timeout, options)
    _timeouts[job] = timeout
    _world = weakref.ref(job)
    return ProcessGroup(job.world, timeout, owner=True)


def _meet(store: Any, rank: int, size: int, timeout: float, options: Options) -> Job:
    """Joins by hand: the ranks tell each other through the store where they are, and rank 0 says where to meet."""
    store.set(f"ringo/host/{rank}", socket.gethostname() + " " + _boot())
    if rank == 0:
        hosts = {bytes(store.get(f"ringo/host/{r}")) for r in range(size)}
        at = _job.address(options.host or ("127.0.0.1" if len(hosts) == 1 else _own_address()))
        store.set("ringo/place", at + " " + ("" if options.ticket_file else _job.ticket()))
    at, _, ticket = bytes(store.get("ringo/place")).decode().partition(" ")
    return _job.join(
        size=size,
        rank=rank,
        rendezvous=at,
        ticket=ticket or None,
        ticket_file=options.ticket_file or None,
        transport=options.transport or None,
        timeout=timeout,
        join_timeout=options.join_timeout,
    )


def _boot() -> str:
    """Names this host until it starts again, as containers may share a name."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _own_address() -> str:
    """The address of this host by its name, if others can use it."""
    found = socket.gethostbyname(socket.gethostname())
    if found.startswith("127."):
        raise RuntimeError(
            f"the name of this host, {socket.gethostname()}, stands for {found}, where other hosts do not reach it: "
            "say an address with pg_options=ringo.torch.Options(host=...)"
        )
    return found


# ---- launchers other than torchrun ----

_LAUNCHERS = ("RINGO_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def env(url: str, **more: Any) -> Any:
    """The rendezvous "env://", which is PyTorch's own once its variables are there. Where another launcher than torchrun has started
    the ranks, they join a job of libringo first, by that launcher's variables, and rank 0 tells the others where PyTorch's store is.
    """
    if "MASTER_ADDR" not in os.environ and any(name in os.environ for name in _LAUNCHERS):
        _prepare(more.get("timeout"))
    return _torchs_env(url, **more)


def _prepare(timeout: timedelta | None) -> None:
    global _prepared
    seconds = timeout.total_seconds() if timeout else 600.0
    _prepared = job = _job.join(timeout=seconds)
    _timeouts[job] = seconds
    names = np.zeros((job.size, 128), np.uint8)
    mine = (socket.gethostname() + _boot()).encode()[:128]
    names[job.rank, : len(mine)] = np.frombuffer(mine, np.uint8)
    job.world.allreduce(names)
    where = np.zeros(128, np.uint8)
    if job.rank == 0:
        at = _job.address("127.0.0.1" if len({bytes(n) for n in names}) == 1 else _own_address()).encode()
        where[: len(at)] = np.frombuffer(at, np.uint8)
    job.world.broadcast(where)
    host, _, port = bytes(where).rstrip(b"\0").decode().rpartition(":")
    os.environ.update(MASTER_ADDR=host, MASTER_PORT=port, RANK=str(job.rank), WORLD_SIZE=str(job.size), LOCAL_RANK=str(job.local_rank))


def install() -> None:
    """Has env called for "env://"."""
    global _torchs_env
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    if handlers["env"] is not env:
        _torchs_env, handlers["env"] = handlers["env"], env


_torchs_env: Any = None

# ---- the end ----

_timeouts: weakref.WeakKeyDictionary[Job, float] = weakref.WeakKeyDictionary()  # of all jobs


@atexit.register
def _leave() -> None:
    """Leaves what was not left: in good order, or saying why if an exception ends the process."""
    fault = getattr(sys, "last_value", None)
    for job in list(_timeouts):
        try:
            if fault is not None and not job.left:
                job.fail(f"{type(fault).__name__}: {fault}")
            job.leave()
        except RuntimeError:
            pass  # a fork, or a job that has failed
