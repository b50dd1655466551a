"""How the ranks of a process group become a job of libringo."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import socket
import sys
import time
import urllib.parse
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .. import _job
from .._errors import InvalidError, RingoError
from .._job import Job
from . import _device
from ._process_group import ProcessGroup


@dataclass(frozen=True)
class Options:
    """What init_process_group("ringo", pg_options=Options(...)) may say; new_group takes none.

    ticket_file: a file with the job's secret, which only its owner may read, the same on all ranks. Without it the secret
    travels through PyTorch's store, and the job is no safer than that: who can read the store can join.
    host: an address of rank 0's host by which the other ranks reach it. "": 127.0.0.1 where all ranks are on one host, else that of its name.
    transport: "shm" or "tcp". "": shm where ranks share a host.
    join_timeout: bounds the wait for all ranks at the start, in seconds.
    algorithm: "ring" or another algorithm of docs/costs.md, for operations that have it. "": chosen by ranks and bytes.

    `ringo run`, mpirun and srun place ranks by their own variables: ticket_file, host and join_timeout have no effect on the first process
    group there, transport "tcp" is an error where the launcher's ranks share memory, and so is another algorithm than the launcher's.
    """

    ticket_file: str = ""
    host: str = ""
    transport: str = ""
    join_timeout: float = 60
    algorithm: str = ""


_world: weakref.ref[Job] | None = None  # the job of the default process group
_prepared: Job | None = None  # one that was joined to find where PyTorch's store is, see env
_served: weakref.ref[Job] | None = None  # the job of which the launcher's parameter servers are a part; they end with it
_launched: weakref.ref[Job] | None = None  # the job that was joined by the launcher's variables
_log = logging.getLogger("ringo.torch")


def create(backend: Any, pg_options: Options | None) -> ProcessGroup:
    """Makes the process group that PyTorch asks for: the creator of backend "ringo"."""
    global _world, _prepared, _served
    _check_alone(str(sys._getframe(1).f_locals.get("backend", "")))
    options = pg_options or Options()
    timeout = backend.timeout.total_seconds()
    ranks = list(backend.global_ranks_in_group)
    job = None if _world is None else _world()
    if job is not None and not job.left and ranks:
        limit = timeout if timeout < _timeouts[job] else 0
        return ProcessGroup(job.subgroup(ranks), timeout, owner=False, limit=limit, cut=_cut[job])
    if _prepared is not None:
        job, _prepared = _prepared, None
        _served = weakref.ref(job) if job.servers else None
        if options.transport == "tcp" and job.transport == "shm":
            raise ValueError(
                "init_process_group: transport 'tcp': the launcher's ranks use 'shm': set RINGO_TRANSPORT=tcp, or ringo run --transport tcp"
            )
        if job.size > 1 and options.algorithm not in ("", job.world.algorithm):
            raise ValueError(
                f"init_process_group: algorithm {options.algorithm!r}: the launcher's ranks use {job.world.algorithm!r}: "
                f"set RINGO_COLLECTIVE_ALGORITHM={options.algorithm}, or ringo run --collective-algorithm {options.algorithm}"
            )
    else:
        job = _meet(backend.store, backend.group_rank, backend.group_size, timeout, options)
    _timeouts[job], _options[job] = timeout, options
    _world = weakref.ref(job)
    devices = np.array([_device.present()], np.int32)
    job.world.allreduce(devices, "max")
    _cut[job] = bool(devices[0])
    return ProcessGroup(job.world, timeout, owner=True, cut=_cut[job])


def _check_alone(backends: str) -> None:
    """Reports a backend beside ringo in PyTorch 2's form DEVICE:BACKEND: PyTorch makes one group of a backend in Python, for all devices."""
    others = [b for b in backends.split(",") if ":" in b and not b.endswith(":ringo")]
    if others:
        raise ValueError(
            f'init_process_group: backend "{backends}": PyTorch makes a group of ringo alone, without {", ".join(others)}: '
            'use "ringo", and dist.new_group(backend="nccl") for operations of NCCL'
        )


def device() -> torch.device:
    """The device of this rank: the GPU with the number of its rank on this host, or the CPU where there is none. Ranks share GPUs if there are
    more ranks than GPUs. It is called after init_process_group.
    """
    job = None if _world is None else _world()
    if job is None or job.left:
        raise ValueError('ringo.torch.device: no process group: begin with init_process_group("ringo")')
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return torch.device("cuda", job.local_rank % count) if count else torch.device("cpu")


def check_served(job: Job) -> None:
    """Reports that the parameter servers have ended: connecting would wait for them."""
    if _served is not None and _served() is not job:
        raise ValueError(
            "Tables: the parameter servers have ended with the first process group of this process: connect them in that one, and destroy it last"
        )


def _meet(store: Any, rank: int, size: int, timeout: float, options: Options) -> Job:
    """Joins by hand: the ranks exchange their hosts through the store, and rank 0 posts the address and the ticket there."""
    _post(store, f"ringo/host/{rank}", socket.gethostname() + " " + _boot())
    if rank == 0:
        hosts = {_posted(store, f"ringo/host/{r}", r, timeout) for r in range(size)}
        at = _job.address(options.host or ("127.0.0.1" if len(hosts) == 1 else _own_address()))
        _post(store, "ringo/place", at + " " + ("" if options.ticket_file else _job.ticket()))
    at, _, ticket = _posted(store, "ringo/place", 0, timeout).partition(" ")
    return _job.join(
        size=size,
        rank=rank,
        rendezvous=at,
        ticket=ticket or None,
        ticket_file=options.ticket_file or None,
        transport=options.transport or None,
        timeout=timeout,
        join_timeout=options.join_timeout,
        algorithm=options.algorithm or None,
    )


def _post(store: Any, key: str, text: str) -> None:
    """Sets a value of the store, and counts it: a count can be read without waiting."""
    store.set(key, text)
    _count(store, key + "/posted", 1)


def _count(store: Any, key: str, more: int = 0) -> int:
    """Adds to a number of the store, and returns it. Errors: the store has ended."""
    try:
        return int(store.add(key, more))
    except RuntimeError as fault:
        text = "PyTorch's store, which the process of rank 0 has, does not answer: has that ended?"
        raise RuntimeError(f"init_process_group: {text} ({fault})") from fault


_SLOW = 10.0  # seconds after which a wait is reported


def _posted(store: Any, key: str, rank: int, timeout: float) -> str:
    """Returns what rank posts under key. Errors: rank's process has ended, or timeout is over."""
    begin, pause, told = time.monotonic(), 0.001, False
    while _count(store, key + "/posted") == 0:
        waited = time.monotonic() - begin
        if _shared is not None and _shared.gone(rank):
            raise RuntimeError(f"init_process_group: rank {rank}: its process has ended, so it will not call init_process_group again")
        if waited > timeout:
            raise RuntimeError(f"init_process_group: rank {rank} has not called it within {timeout:g} s: raise timeout, or see why it does not")
        if waited > _SLOW and not told:
            told = True
            _log.warning("init_process_group: waiting for rank %d since %.0f s, at most %g s", rank, waited, timeout)
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    return bytes(store.get(key)).decode()


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


# ---- env:// ----

_STORE = ("MASTER_ADDR", "MASTER_PORT")  # variables by which PyTorch's store is found
_PLACE = ("RANK", "WORLD_SIZE")
_STORE_WAIT = 15.0  # seconds for all ranks that have just joined to meet at PyTorch's store


def env(url: str, **more: Any) -> Iterator[tuple[Any, int, int]]:
    """The rendezvous "env://". Without the variables of PyTorch's store the process joins a job of libringo first, by the variables of the
    launcher that has started it, and rank 0 sends the others the address of PyTorch's store. Without any launcher it is a job of one rank.

    The store of the first call lasts until the process ends, and each later call has its own prefix there: ranks that leave a process group
    late meet the others again.
    """
    global _shared
    asked = _asked(url)
    if not any(name in os.environ for name in _STORE):
        _prepare(more.get("timeout"), asked)
    _check_variables(asked)
    mine = (*(os.environ.get(name) for name in (*_STORE, *_PLACE)), url)
    if _shared is None or _shared.key != mine:
        _shared = None  # before another store listens at its port
        if _prepared is not None and "RINGO_PLACES_FD" in os.environ:
            more = {**more, "timeout": timedelta(seconds=_STORE_WAIT)}  # a lost rank 0 never listens
        _shared = _Shared(mine, url, more)
    yield _shared.next()


def _asked(url: str) -> dict[str, int]:
    """The rank and the world_size that init_process_group was given."""
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
    return {name: int(query[name][0]) for name in ("rank", "world_size") if name in query}


def _check_variables(asked: dict[str, int]) -> None:
    """Reports an incomplete set of PyTorch's variables, all at once."""
    if os.environ.get("WORLD_SIZE") == "1" and not any(name in os.environ for name in _STORE):
        return  # of _prepare: one rank has its store in memory
    wanted = [*_STORE, *(name for name in _PLACE if name.lower() not in asked)]
    missing = [name for name in wanted if name not in os.environ]
    if missing:
        there = ", ".join(f"{name}={os.environ[name]}" for name in (*_STORE, *_PLACE) if name in os.environ)
        raise ValueError(f"init_process_group: {', '.join(missing)}: not set, but {there}: set all of them, as torchrun does, or none")


class _Shared:
    """The store of all process groups that this process makes by env://."""

    def __init__(self, key: tuple[str | None, ...], url: str, more: dict[str, Any]) -> None:
        self.key = key
        self._pid = os.getpid()
        if os.environ.get("MASTER_ADDR") is None:
            self._store, self.rank, self.size = dist.HashStore(), 0, 1
        else:
            self._store, self.rank, self.size = next(_torchs_env(url, **more))

    def next(self) -> tuple[Any, int, int]:
        """The store for the next process group, this rank, and the number of ranks."""
        count = _count(self._store, f"ringo/groups/{self.rank}", 1)
        store = self._store if count == 1 else dist.PrefixStore(f"ringo/{count}", self._store)
        return store, self.rank, self.size

    def gone(self, rank: int) -> bool:
        return _count(self._store, f"ringo/gone/{rank}") > 0

    def leave(self) -> None:
        """Posts that this process ends."""
        if os.getpid() == self._pid:
            self._store.set_timeout(timedelta(seconds=2))
            _count(self._store, f"ringo/gone/{self.rank}", 1)


_shared: _Shared | None = None


def _prepare(timeout: timedelta | None, asked: dict[str, int]) -> None:
    """Joins the launcher's job, once: each later process group is made through the store."""
    global _prepared, _launched
    if os.environ.get("WORLD_SIZE") == "1" and _shared is not None:
        return
    seconds = timeout.total_seconds() if timeout else 600.0
    job = _place(seconds)
    if asked != {name: value for name, value in (("rank", job.rank), ("world_size", job.size)) if name in asked}:
        job.leave()
        text = ", ".join(f"{name} {value}" for name, value in asked.items())
        raise ValueError(
            f"init_process_group: {text}: this process is rank {job.rank} of {job.size}, by its launcher or without one: "
            "leave rank and world_size out, or set MASTER_ADDR and MASTER_PORT"
        )
    _timeouts[job] = seconds
    if job.size > 1:
        _place_store(job)
    os.environ.update(RANK=str(job.rank), WORLD_SIZE=str(job.size), LOCAL_RANK=str(job.local_rank))
    _prepared, _launched = job, weakref.ref(job)


def _place(seconds: float) -> Job:
    """Joins the job of a launcher. With --min-np another rank may be lost before all have joined: the next place follows."""
    lost: RingoError | None = None
    while True:
        try:
            return _job.join(timeout=seconds)
        except RingoError as fault:
            if "RINGO_PLACES_FD" not in os.environ or isinstance(fault, InvalidError):
                raise lost or fault
            lost = fault


def _place_store(job: Job) -> None:
    """Sets the variables of PyTorch's store to an address that rank 0 chooses."""
    names = np.zeros((job.size, 128), np.uint8)
    mine = (socket.gethostname() + _boot()).encode()[:128]
    names[job.rank, : len(mine)] = np.frombuffer(mine, np.uint8)
    job.world.allreduce(names)
    where = np.zeros(128, np.uint8)
    if job.rank == 0:
        at = _job.address("127.0.0.1" if len({bytes(n) for n in names}) == 1 else _own_address()).encode()
        where[: len(at)] = np.frombuffer(at, np.uint8)
    job.world.broadcast(where)
    os.environ["MASTER_ADDR"], _, os.environ["MASTER_PORT"] = bytes(where).rstrip(b"\0").decode().rpartition(":")


def launched() -> Job | None:
    """The job that was joined by the launcher's variables."""
    return None if _launched is None else _launched()


def asked(job: Job) -> tuple[float, Options]:
    """The timeout in seconds and the options of a job's init_process_group."""
    return _timeouts[job], _options[job]


def forget() -> None:
    """Leaves the failed job: the next init_process_group gets a place of the launcher."""
    global _shared, _prepared
    if dist.is_initialized():
        group = dist.distributed_c10d._get_default_group()
        with contextlib.suppress(RingoError):
            group.close()
        dist.destroy_process_group()
    for job in list(_timeouts):
        with contextlib.suppress(RingoError):
            job.leave()
    _shared = _prepared = None
    for name in (*_STORE, *_PLACE, "LOCAL_RANK"):
        os.environ.pop(name, None)


def install() -> None:
    """Has env called for "env://"."""
    global _torchs_env
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    if handlers["env"] is not env:
        _torchs_env, handlers["env"] = handlers["env"], env


_torchs_env: Any = None

# ---- the end ----

_timeouts: weakref.WeakKeyDictionary[Job, float] = weakref.WeakKeyDictionary()  # of all jobs
_options: weakref.WeakKeyDictionary[Job, Options] = weakref.WeakKeyDictionary()
# Whether the ranks of a job cut long operations: one of them has a device.
_cut: weakref.WeakKeyDictionary[Job, bool] = weakref.WeakKeyDictionary()


@atexit.register
def _leave() -> None:
    """Leaves what was not left: in good order, or saying why if an exception ends the process."""
    if _shared is not None:
        try:
            _shared.leave()
        except RuntimeError:
            pass  # the store has ended with rank 0
    fault = getattr(sys, "last_value", None)
    for job in list(_timeouts):
        try:
            if fault is not None and not job.left:
                job.fail(f"{type(fault).__name__}: {fault}")
            job.leave()
        except RuntimeError:
            pass  # a fork, or a job that has failed
