"""A process's place in a job: join, leave, groups, shared memory."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Mapping, Sequence
from ctypes import byref, c_int, c_void_p
from types import TracebackType

import numpy as np
import numpy.typing as npt

from ._arrays import Array
from ._errors import ClosedError
from ._group import Group
from ._library import Options, check, library
from ._tables import Table, Tables


class Job:
    """This process's part of a job, from join to leave. rank is from 0, size the number of ranks, local_rank the number among
    the ranks of this host, world the group of all ranks, transport what the ranks of this host talk over: "shm", "tcp" or "mem", servers
    the number of servers of tables that were started beside it.

    It leaves at the end of a with statement. An exception that ends the statement ends the job: the others are told of it. sys.exit(0)
    is none.
    """

    def __init__(self, handle: c_void_p) -> None:
        lib = library()
        self._handle: c_void_p | None = handle
        self.rank: int = check(lib.ringo_rank(handle), "rank")
        self.size: int = check(lib.ringo_size(handle), "size")
        self.local_rank: int = check(lib.ringo_local_rank(handle), "local_rank")
        self.servers: int = check(lib.ringo_servers(handle), "servers")
        self.transport: str = lib.ringo_transport(handle).decode()
        self.world = Group(self, c_void_p(lib.ringo_world(handle)), range(self.size))

    @property
    def left(self) -> bool:
        return self._handle is None

    def _open(self, operation: str) -> c_void_p:
        if self._handle is None:
            raise ClosedError(f"{operation}: the job was left", operation)
        return self._handle

    def subgroup(self, ranks: Sequence[int]) -> Group:
        """A group of some ranks, numbered in the order given. These ranks alone call it, all with the same ranks, and wait for each
        other; two ranks that have several groups in common make them in the same order.
        """
        group = c_void_p()
        numbers = (c_int * len(ranks))(*ranks)
        check(library().ringo_subgroup(self._open("subgroup"), numbers, len(ranks), byref(group)), "subgroup")
        return Group(self, group, ranks)

    def zeros(self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32) -> Array:
        """An array of zeros in memory that the ranks of this host share, where there is such: operands that lie there are reduced
        without a copy. Its values are undefined once the job was left. Allocate what lasts first: memory is used again only if
        it was the last that was given.
        """
        kind = np.dtype(dtype)
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        length = math.prod(dimensions) * kind.itemsize
        handle = self._open("alloc")
        if self.transport != "shm" or length == 0:
            return np.zeros(dimensions, kind)
        memory = c_void_p()
        check(library().ringo_alloc(handle, length, byref(memory)), "alloc")
        assert memory.value is not None
        buffer = (ctypes.c_char * length).from_address(memory.value)
        weakref.finalize(buffer, _free, weakref.ref(self), memory).atexit = False
        array: Array = np.ndarray(dimensions, kind, buffer)  # type: ignore[arg-type]
        return array

    def tables(self, *tables: Table, settings: Mapping[str, str] | None = None) -> Tables:
        """Connects to the servers of tables that `ringo run --servers N --sync MODE` has started. All ranks call it, once, with the same.
        settings are those that the servers must have, such as {"sync": "bsp"}: others reject the rank.
        """
        return Tables(self, tables, settings)

    def fail(self, why: str) -> bool:
        """Ends the job because of a fault of the program: operations of all ranks fail, and name this rank and why. It returns
        whether a launcher tells of it, so that the program need not. leave is still to be called.
        """
        told = c_int()
        check(library().ringo_fail(self._open("fail"), why.encode(), byref(told)), "fail")
        return bool(told.value)

    def leave(self) -> None:
        """Leaves in good order: wait first for what was started, which fails else. Operations of other ranks that still need this one
        fail; a process that ends without it counts as lost. Once a job was left, leave does nothing.
        """
        handle, self._handle = self._handle, None
        if handle is not None:
            check(library().ringo_leave(handle), "leave")

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        done = fault is None or isinstance(fault, SystemExit) and fault.code in (None, 0)
        if done or self._handle is None:
            return self.leave()
        try:
            self.fail(f"{type(fault).__name__}: {fault}")
            self.leave()
        except RuntimeError:
            pass  # the first fault is the one to tell


def _free(job: weakref.ref[Job], memory: c_void_p) -> None:
    owner = job()
    if owner is not None and owner._handle is not None:
        library().ringo_free(owner._handle, memory)


def join(
    *,
    size: int = 0,
    rank: int = 0,
    rendezvous: str | None = None,
    ticket: str | None = None,
    ticket_file: str | None = None,
    transport: str | None = None,
    bind: str | None = None,
    timeout: float = 0,
    join_timeout: float = 0,
    algorithm: str | None = None,
) -> Job:
    """Makes this process a rank and returns when all are there.

    Without arguments the variables say where it belongs that `ringo run` sets, or mpirun, srun, torchrun and others; without these it
    is a job of one rank. Variables that place it only in part are an error. A process joins the job of `ringo run` once; with --min-np,
    again after the loss of a rank and leave: the call waits up to 30 seconds for this rank's place among the others. By hand: size, rank, rendezvous
     (HOST:PORT, where rank 0 listens, see address) and ticket, the job's secret, or ticket_file, which has it. timeout bounds
    each wait for another rank, in seconds, 0: 10 minutes; join_timeout the wait for all at the start, 0: 60 seconds. transport, bind and
    algorithm are as ringo.h has them.
    """
    lib = library()
    texts = {"rendezvous": rendezvous, "ticket": ticket, "ticket_file": ticket_file, "transport": transport, "bind": bind, "algorithm": algorithm}
    options = placed(size, rank, timeout, join_timeout, texts)
    job = c_void_p()
    check(lib.ringo_join(byref(options), byref(job)), "join")
    return Job(job)


def placed(size: int, rank: int, timeout: float, join_timeout: float, texts: dict[str, str | None]) -> Options:
    """The options with these numbers, seconds and texts."""
    options = Options(struct_size=ctypes.sizeof(Options), size=size, rank=rank)
    for name, text in texts.items():
        setattr(options, name, None if text is None else text.encode())
    options.timeout_ms, options.join_timeout_ms = round(timeout * 1000), round(join_timeout * 1000)
    return options


def ticket() -> str:
    """A new secret, for join on all ranks of one job."""
    text = ctypes.create_string_buffer(65)
    check(library().ringo_ticket(text), "ticket")
    return text.value.decode()


def address(host: str = "127.0.0.1") -> str:
    """HOST:PORT with a port of this host that nobody listens at now, for join. host must be an address by which the other ranks reach
    this process.
    """
    text = ctypes.create_string_buffer(512)
    check(library().ringo_address(host.encode(), text, len(text)), "address")
    return text.value.decode()
