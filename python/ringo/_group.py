"""Collective operations of a group of ranks on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import Array, Op, operand, reduction, same, times, type_of
from ._errors import ClosedError, InvalidError
from ._library import check, library
from ._work import Unfinished, Work

if TYPE_CHECKING:
    from ._job import Job


class Group:
    """Some ranks of a job, or all: Job.world, Job.subgroup.

    Each operation is there twice: allreduce returns when it has ended, start_allreduce at once, with a Work. All ranks of a group
    start the same operations in the same order. Arrays must be contiguous; results are written to those that are given.
    algorithm is that of the operations that have it, such as "ring"; "auto": chosen by ranks and bytes.
    """

    def __init__(self, job: Job, handle: c_void_p, ranks: Sequence[int]) -> None:
        self.job = job
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.rank = self.ranks.index(job.rank)
        self.algorithm: str = library().ringo_group_algorithm(handle).decode()
        self._handle: c_void_p | None = handle
        self._unfinished = Unfinished()

    def start(self, operation: str, operands: Any, *arguments: Any) -> Work:
        """Starts an operation of ringo.h by its name, with its arguments there. operands are kept until it has ended."""
        work = c_void_p()
        handle = self._open(operation)
        check(getattr(library(), "ringo_start_" + operation)(handle, *arguments, byref(work)), operation)
        started = Work(operation, work, operands)
        self._unfinished.add(started)
        return started

    def _open(self, operation: str) -> c_void_p:
        if self._handle is None or self.job.left:
            raise ClosedError(f"{operation}: the group was closed", operation)
        return self._handle

    def close(self) -> None:
        """Ends a group of Job.subgroup. Operations under way fail, on its other ranks, too."""
        handle, self._handle = self._handle, None
        if handle is not None and not self.job.left:
            check(library().ringo_group_close(handle), "group_close")

    # ---- all ranks ----

    def start_allreduce(self, x: Array, op: Op | str = Op.SUM) -> Work:
        name = "allreduce"
        operand(x, name, True)
        return self.start(name, x, x.ctypes.data, x.size, type_of(x, name), reduction(op, name))

    def allreduce(self, x: Array, op: Op | str = Op.SUM) -> None:
        """Replaces x on every rank by its reduction over all ranks."""
        self.start_allreduce(x, op).wait()

    def start_reduce(self, x: Array, op: Op | str = Op.SUM, root: int = 0) -> Work:
        name = "reduce"
        root = self._peer(name, root)
        operand(x, name, self.rank == root)
        return self.start(name, x, x.ctypes.data, x.size, type_of(x, name), reduction(op, name), root)

    def reduce(self, x: Array, op: Op | str = Op.SUM, root: int = 0) -> None:
        """Does so on rank root alone; x of the others is only read."""
        self.start_reduce(x, op, root).wait()

    def start_broadcast(self, x: Array, root: int = 0) -> Work:
        name = "broadcast"
        root = self._peer(name, root)
        operand(x, name, self.rank != root)
        return self.start(name, x, x.ctypes.data, x.size, type_of(x, name), root)

    def broadcast(self, x: Array, root: int = 0) -> None:
        """Replaces x on every rank by that of rank root."""
        self.start_broadcast(x, root).wait()

    def start_reduce_scatter(self, dst: Array, src: Array, op: Op | str = Op.SUM) -> Work:
        name = "reduce_scatter"
        operand(dst, name, True), operand(src, name, False)
        times(name, src, dst, self.size)
        return self.start(name, (dst, src), dst.ctypes.data, src.ctypes.data, dst.size, same(name, dst, src), reduction(op, name))

    def reduce_scatter(self, dst: Array, src: Array, op: Op | str = Op.SUM) -> None:
        """Reduces src, which has a part for each rank, and leaves this rank's part in dst."""
        self.start_reduce_scatter(dst, src, op).wait()

    def start_allgather(self, dst: Array, src: Array) -> Work:
        name = "allgather"
        operand(dst, name, True), operand(src, name, False)
        times(name, dst, src, self.size)
        return self.start(name, (dst, src), dst.ctypes.data, src.ctypes.data, src.size, same(name, dst, src))

    def allgather(self, dst: Array, src: Array) -> None:
        """Writes every rank's src to dst, in rank order."""
        self.start_allgather(dst, src).wait()

    def start_allgatherv(self, dst: Array, src: Array, counts: Sequence[int]) -> Work:
        name = "allgatherv"
        operand(dst, name, True), operand(src, name, False)
        self._lengths(name, counts, dst)
        if src.size != counts[self.rank]:
            raise InvalidError(f"{name}: {src.size} values, counts say {counts[self.rank]}", name)
        return self.start(name, (dst, src), dst.ctypes.data, src.ctypes.data, sizes(counts), same(name, dst, src))

    def allgatherv(self, dst: Array, src: Array, counts: Sequence[int]) -> None:
        """Does so with parts of different lengths. counts, one for each rank, are the same on every rank."""
        self.start_allgatherv(dst, src, counts).wait()

    def start_gather(self, dst: Array | None, src: Array, root: int = 0) -> Work:
        name = "gather"
        root = self._peer(name, root)
        operand(src, name, False)
        into = self._whole(name, dst, src, root, True)
        return self.start(name, (dst, src), into, src.ctypes.data, src.size, type_of(src, name), root)

    def gather(self, dst: Array | None, src: Array, root: int = 0) -> None:
        """Writes every rank's src to root's dst; on the others dst is None."""
        self.start_gather(dst, src, root).wait()

    def start_scatter(self, dst: Array, src: Array | None, root: int = 0) -> Work:
        name = "scatter"
        root = self._peer(name, root)
        operand(dst, name, True)
        of = self._whole(name, src, dst, root, False)
        return self.start(name, (dst, src), dst.ctypes.data, of, dst.size, type_of(dst, name), root)

    def scatter(self, dst: Array, src: Array | None, root: int = 0) -> None:
        """Gives every rank its part of root's src; on the others src is None."""
        self.start_scatter(dst, src, root).wait()

    def start_alltoall(self, dst: Array, src: Array) -> Work:
        name = "alltoall"
        operand(dst, name, True), operand(src, name, False)
        if src.size % self.size or dst.size != src.size:
            raise InvalidError(f"{name}: {src.size} values to {dst.size}, want the same number, a multiple of {self.size}", name)
        return self.start(name, (dst, src), dst.ctypes.data, src.ctypes.data, src.size // self.size, same(name, dst, src))

    def alltoall(self, dst: Array, src: Array) -> None:
        """Sends part r of src to rank r, and writes that of rank r to part r of dst."""
        self.start_alltoall(dst, src).wait()

    def start_alltoallv(self, dst: Array, dst_counts: Sequence[int], src: Array, src_counts: Sequence[int]) -> Work:
        name = "alltoallv"
        operand(dst, name, True), operand(src, name, False)
        self._lengths(name, dst_counts, dst)
        self._lengths(name, src_counts, src)
        return self.start(name, (dst, src), dst.ctypes.data, sizes(dst_counts), src.ctypes.data, sizes(src_counts), same(name, dst, src))

    def alltoallv(self, dst: Array, dst_counts: Sequence[int], src: Array, src_counts: Sequence[int]) -> None:
        """Does so with parts of different lengths: src_counts[r] values go to rank r, and dst_counts[r] come from it."""
        self.start_alltoallv(dst, dst_counts, src, src_counts).wait()

    def start_barrier(self) -> Work:
        return self.start("barrier", None)

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self.start_barrier().wait()

    # ---- two ranks ----

    def start_send(self, x: Array, to: int) -> Work:
        operand(x, "send", False)
        return self.start("send", x, x.ctypes.data, x.size, type_of(x, "send"), self._peer("send", to))

    def send(self, x: Array, to: int) -> None:
        """Sends x to another rank, whose receive has an array of the same length and type."""
        self.start_send(x, to).wait()

    def start_receive(self, x: Array, source: int) -> Work:
        operand(x, "receive", True)
        return self.start("receive", x, x.ctypes.data, x.size, type_of(x, "receive"), self._peer("receive", source))

    def receive(self, x: Array, source: int) -> None:
        """Replaces x by what rank source sends."""
        self.start_receive(x, source).wait()

    # ---- checks ----

    def _peer(self, name: str, rank: int) -> int:
        """A rank of the group: C would take 2**32 as 0."""
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 0 <= rank < self.size:
            raise InvalidError(f"{name}: {rank!r} is not a rank of the group: want a number from 0 to {self.size - 1}", name)
        return int(rank)

    def _lengths(self, name: str, counts: Sequence[int], x: Array) -> None:
        if len(counts) != self.size or min(counts) < 0 or sum(counts) != x.size:
            raise InvalidError(f"{name}: want a count for each of {self.size} ranks, {x.size} in all, not {list(counts)}", name)

    def _whole(self, name: str, whole: Array | None, part: Array, root: int, written: bool) -> int | None:
        """The address of what root alone has."""
        if self.rank != root:
            return None
        if whole is None:
            raise InvalidError(f"{name}: rank {root}, the root, has no array for all ranks", name)
        operand(whole, name, written)
        same(name, whole, part)
        times(name, whole, part, self.size)
        return int(whole.ctypes.data)


def sizes(counts: Sequence[int]) -> ctypes.Array[c_size_t]:
    """counts as C has them."""
    return (c_size_t * len(counts))(*counts)
