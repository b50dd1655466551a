"""The process group of backend "ringo": what torch.distributed, DDP and ZeroRedundancyOptimizer call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Union

import torch
from torch import Tensor
from torch.distributed import ProcessGroup as TorchProcessGroup

from .._group import Group, sizes
from . import _sparse
from ._device import described
from ._point import Mailbox
from ._staging import Lane, tensors_in
from ._tensors import BITWISE, dense, joined, name_of, reduced, restore, restore_each, room, spread, together, values
from ._work import AnySource, Completer, Work

Tensors = Union[Tensor, Sequence[Tensor]]


class ProcessGroup(TorchProcessGroup):  # type: ignore[misc]
    """Ranks of a job of libringo as a process group of PyTorch. Tensors are of the CPU or of CUDA. What does not lie one value behind the
    other is copied in and out. Operations take lists with options, or one tensor with op and root, as PyTorch's process groups do.

    cut has long operations cut into pieces, on all ranks alike: one of them has a device.
    """

    def __init__(self, group: Group, timeout: float, owner: bool, limit: float = 0, cut: bool = False) -> None:
        super().__init__(group.rank, group.size)
        self._group = group
        self._owner = owner
        self._limit = limit  # seconds, of a whole operation; 0: the job's own timeout, of each wait, bounds it
        self.cut = cut
        self._completer = Completer("ringo completes")
        self._lane = Lane(group.start, group.rank, "operations", cut)
        self._messages = Lane(group.start, group.rank, "messages", bounded=False)  # waits for no operation of other ranks
        self._mailbox = Mailbox(group, timeout, self._messages)
        self.before_close: list[Callable[[], None]] = []  # they raise nothing
        self._sequence = 0
        self._name = self._description = ""

    def close(self) -> None:
        """Leaves the job, if this is the group of all ranks, else closes the group. destroy_process_group has this done."""
        while self.before_close:
            self.before_close.pop()()
        self._completer.stop()
        self._mailbox.close()
        self._lane.close()
        self._messages.close()
        if self._owner:
            self._group.job.leave()
        else:
            self._group.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass  # the job has failed, or the process is a fork: who works with it is told

    # ---- what PyTorch asks ----

    def getBackendName(self) -> str:
        return "ringo"

    def name(self) -> str:
        return "ringo"

    # PyTorch 2 finds groups by name, which a process group of C++ leaves to its backends.

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # ---- parts that operations share ----

    def _start(self, operation: str, *arguments: Any) -> Any:
        """Starts an operation of the library: all but messages pass here."""
        self._sequence += 1
        return self._lane.start(operation, *arguments)

    def _work(self, parts: Sequence[Any], result: list[Tensor], finish: Callable[[], None] | None = None) -> Work:
        return Work(parts, result, self._completer, finish, self._limit)

    def _together(self, works: Sequence[Work], result: list[Tensor]) -> Work:
        """One work of several, which are not used after this."""
        finishes = [w._finish for w in works if w._finish is not None]

        def finish() -> None:
            for each in finishes:
                each()

        return self._work([p for w in works for p in w._parts], result, finish)

    # ---- reductions ----

    def allreduce(self, tensors: Tensors = (), opts: Any = None, *, tensor: Tensors = (), op: Any = None) -> Work:
        tensors, op = _listed(tensors, tensor), _op(opts if op is None else op)
        t = _one(tensors, "allreduce")
        if t.layout == torch.sparse_coo:
            return _sparse.allreduce(self, t, name_of(op))
        name = name_of(op)  # once: it takes as long as all else here
        if name in BITWISE and t.dtype != torch.bool or name == "BXOR":
            return self._bitwise(t, BITWISE[name])
        x, kind, number = reduced(t, name)
        part = self._start("allreduce", x, x.numel(), kind, number)
        return self._work([part], tensors, lambda: restore(t, _as(t, x)))

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work:
        works = [self.allreduce([t], opts) for t in tensors]
        return self._together(works, tensors)

    def _bitwise(self, t: Tensor, function: Callable[[Tensor, Tensor], Tensor]) -> Work:
        """libringo has no such reductions: each rank computes it of all ranks' values."""
        if t.is_floating_point() or t.is_complex():
            raise ValueError(f"backend ringo does not reduce {t.dtype} bit by bit")
        x = dense(t)
        n, kind = values(x)
        every = torch.empty((self.size(), *x.shape), dtype=x.dtype, device=x.device)

        def finish() -> None:
            out = every[0].clone()
            for one in every[1:]:
                out = function(out, one)
            t.copy_(out)

        part = self._start("allgather", every, x, n, kind)
        return self._work([part], [t], finish)

    def reduce(self, tensors: Tensors = (), opts: Any = None, op: Any = None, *, tensor: Tensors = (), root: int | None = None) -> Work:
        opts = opts if root is None else root
        root, tensors = _root(opts, "reduce", tensors, tensor), _listed(tensors, tensor)
        t = _one(tensors, "reduce")
        x, kind, number = reduced(t, _op(op if isinstance(opts, int) else opts))
        part = self._start("reduce", x, x.numel(), kind, number, root)
        return self._work([part], tensors, (lambda: restore(t, _as(t, x))) if root == self.rank() else None)

    def reduce_scatter(
        self, output_tensors: Tensors, input_tensors: Any = None, opts: Any = None, *, input_tensor: Any = None, op: Any = None
    ) -> Work:
        inputs, opts = input_tensors if input_tensor is None else input_tensor, opts if op is None else op
        parts = inputs if isinstance(output_tensors, Tensor) else _one(inputs, "reduce_scatter")
        output = _one(_listed(output_tensors), "reduce_scatter")
        self._each(parts, "reduce_scatter")
        if len({p.numel() for p in parts}) > 1:
            return self._unequal_reduce_scatter(output, parts, opts)
        return self._reduce_scatter_base(output, joined(parts, True), opts)

    def _unequal_reduce_scatter(self, output: Tensor, parts: list[Tensor], opts: Any) -> Work:
        works = []
        for root, p in enumerate(parts):
            x, kind, number = reduced(p, _op(opts))
            x = x.clone() if x.data_ptr() == p.data_ptr() else x
            works.append((self._start("reduce", x, x.numel(), kind, number, root), x))
        mine = works[self.rank()][1]
        return self._work([w for w, _ in works], [output], lambda: restore(output, _as(output, mine)))

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        x, kind, number = reduced(input, _op(opts))
        into = room(output) if x.dtype == output.dtype else torch.empty(output.shape + x.shape[input.dim() :], dtype=x.dtype, device=x.device)
        part = self._start("reduce_scatter", into, x, into.numel(), kind, number)
        return self._work([part], [output], lambda: restore(output, _as(output, into)))

    # ---- moves ----

    def broadcast(self, tensors: Tensors = (), opts: Any = None, *, tensor: Tensors = (), root: int | None = None) -> Work:
        root, tensors = _root(opts if root is None else root, "broadcast", tensors, tensor), _listed(tensors, tensor)
        t = _one(tensors, "broadcast")
        x = dense(t) if root == self.rank() else room(t)
        part = self._start("broadcast", x, *values(x), root)
        return self._work([part], tensors, None if root == self.rank() else (lambda: restore(t, x)))

    def allgather(self, output_tensors: Any, input_tensors: Tensors = (), opts: Any = None, *, input_tensor: Tensors = ()) -> Work:
        inputs = input_tensor if isinstance(input_tensor, Tensor) else input_tensors
        out = output_tensors if isinstance(inputs, Tensor) else _one(output_tensors, "allgather")
        t = _one(_listed(inputs), "allgather")
        self._each(out, "allgather")
        _alike(out, t, "allgather")
        whole = together(out)
        if whole is not None:
            return self._gather_into(whole, t, out)
        x, into = dense(t), [room(o) for o in out]
        n, kind = values(x)
        part = self._start("allgather_to", into, x, n, kind)
        return self._work([part], out, lambda: restore_each(out, into))

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self._gather_into(output, input, [output])

    def _gather_into(self, output: Tensor, input: Tensor, result: list[Tensor]) -> Work:
        x, into = dense(input), room(output)
        if into.numel() != x.numel() * self.size() or into.dtype != x.dtype:
            raise ValueError(f"allgather: the output has {into.numel()} values of {into.dtype}, want {self.size()} times {x.numel()} of {x.dtype}")
        n, kind = values(x)
        part = self._start("allgather", into, x, n, kind)
        return self._work([part], result, lambda: restore(output, into))

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        self._each(outputs, "allgather_coalesced")
        works = [self.allgather([[of_rank[i] for of_rank in outputs]], [t]) for i, t in enumerate(inputs)]
        return self._together(works, [t for of_rank in outputs for t in of_rank])

    def gather(
        self, output_tensors: Any, input_tensors: Tensors = (), opts: Any = None, *, input_tensor: Tensors = (), root: int | None = None
    ) -> Work:
        root, inputs = _root(opts if root is None else root, "gather", input_tensors, input_tensor), _listed(input_tensors, input_tensor)
        outputs = [output_tensors] if isinstance(input_tensors, Tensor) or isinstance(input_tensor, Tensor) else output_tensors
        t = _one(inputs, "gather")
        x = dense(t)
        n, kind = values(x)
        if root != self.rank():
            return self._work([self._start("gather", None, x, n, kind, root)], [])
        out = _one(outputs, "gather")
        self._each(out, "gather")
        _alike(out, t, "gather")
        whole = joined(out, False)
        part = self._start("gather", whole, x, n, kind, root)
        return self._work([part], out, lambda: spread(whole, out))

    def scatter(
        self, output_tensors: Tensors = (), input_tensors: Any = None, opts: Any = None, *, output_tensor: Tensors = (), root: int | None = None
    ) -> Work:
        root, outputs = _root(opts if root is None else root, "scatter", output_tensors, output_tensor), _listed(output_tensors, output_tensor)
        inputs = [input_tensors] if isinstance(output_tensors, Tensor) or isinstance(output_tensor, Tensor) else input_tensors
        t = _one(outputs, "scatter")
        into = room(t)
        n, kind = values(into)
        whole = None
        if root == self.rank():
            parts = _one(inputs, "scatter")
            self._each(parts, "scatter")
            _alike(parts, t, "scatter")
            whole = joined(parts, True)
        part = self._start("scatter", into, whole, n, kind, root)
        return self._work([part], outputs, lambda: restore(t, into))

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        self._each(outputs, "alltoall")
        self._each(inputs, "alltoall")
        into, x = joined(outputs, False), joined(inputs, True)
        part = self._alltoallv(into, [t.numel() for t in outputs], x, [t.numel() for t in inputs])
        return self._work([part], outputs, lambda: spread(into, outputs))

    def alltoall_base(self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None) -> Work:
        into, x = room(output), dense(input)
        part = self._alltoallv(into, self._lengths(output, output_splits), x, self._lengths(input, input_splits))
        return self._work([part], [output], lambda: restore(output, into))

    def _alltoallv(self, into: Tensor, comes: list[int], x: Tensor, goes: list[int]) -> Any:
        n, kind = values(x)
        wide = n // max(x.numel(), 1) or 1
        here, there = sizes([c * wide for c in comes]), sizes([c * wide for c in goes])
        return self._start("alltoallv", into, here, x, there, kind)

    def _lengths(self, t: Tensor, splits: list[int]) -> list[int]:
        """How many values of t belong to each rank: splits counts rows."""
        rows = t.shape[0] if t.dim() else 1
        row = t.numel() // max(rows, 1)
        if not splits:
            if rows % self.size():
                raise ValueError(f"alltoall: {rows} rows are not the same number for each of {self.size()} ranks: say splits")
            splits = [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows:
            raise ValueError(f"alltoall: splits {splits} of {rows} rows: want one for each of {self.size()} ranks, all rows together")
        return [n * row for n in splits]

    def barrier(self, opts: Any = None) -> Work:
        return self._work([self._start("barrier")], [])

    # ---- two ranks ----

    def send(self, tensors: list[Tensor], to: int, tag: int = 0) -> Work:
        return self._work(self._mailbox.send(_one(tensors, "send"), to, tag), tensors)

    def recv(self, tensors: list[Tensor], source: int | None, tag: int = 0) -> Work:
        t = _one(tensors, "recv")
        landing = self._messages.landing(t)
        host, device, finish = (t, None, None) if landing is None else landing
        kind = AnySource if source is None else Work
        return kind([self._mailbox.receive(host, source, tag)], tensors, self._completer, finish, self._limit, device)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Work:
        return self.recv(tensors, None, tag)

    # ---- names of PyTorch 2.x ----

    def allgather_into_tensor_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._together([self._allgather_base(o, i, opts) for o, i in zip(outputs, inputs)], outputs)

    def reduce_scatter_tensor_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._together([self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs)], outputs)

    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_base = _reduce_scatter_base
    all_to_all_single = alltoall_base

    # ---- checks ----

    def _each(self, tensors: Sequence[Any], operation: str) -> None:
        if len(tensors) != self.size():
            raise ValueError(f"{operation}: {len(tensors)} tensors, want one for each of {self.size()} ranks")


OutOfMemory: type[RuntimeError] = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError


def _named(method: Callable[..., Work]) -> Callable[..., Work]:
    """The method, whose error names operation, rank and operands if the device has no memory for a copy of them."""

    @functools.wraps(method)
    def call(self: ProcessGroup, *arguments: Any, **more: Any) -> Work:
        try:
            return method(self, *arguments, **more)
        except OutOfMemory as fault:
            operands = described(list(tensors_in([*arguments, *more.values()])))
            raise OutOfMemory(f"{method.__name__}: rank {self.rank()}: {operands}: {fault}") from None

    return call


for _name in ("allreduce", "reduce", "reduce_scatter", "_reduce_scatter_base", "broadcast", "allgather", "_allgather_base",
              "gather", "scatter", "alltoall", "alltoall_base", "send", "recv"):  # fmt: skip
    setattr(ProcessGroup, _name, _named(getattr(ProcessGroup, _name)))


def _op(opts: Any) -> Any:
    """The reduction of options, or a reduction itself."""
    return "SUM" if opts is None else getattr(opts, "reduceOp", opts)


def _root(opts: Any, operation: str, *operands: Tensors) -> int:
    """The root of options, or a rank itself, which single tensors need."""
    if opts is None and any(isinstance(t, Tensor) for t in operands):
        raise TypeError(f"{operation}: root is missing: one tensor needs the rank of its root")
    return 0 if opts is None else int(getattr(opts, "rootRank", opts))


def _listed(*operands: Tensors) -> list[Tensor]:
    """The operands as a list: one of the arguments has them."""
    return [t for some in operands for t in ([some] if isinstance(some, Tensor) else some)]


def _one(of: Sequence[Any], operation: str) -> Any:
    """The only element: a process has one device."""
    if len(of) != 1:
        raise ValueError(f"{operation}: {len(of)} operands, want one: a process is one rank")
    return of[0]


def _alike(tensors: Sequence[Tensor], part: Tensor, operation: str) -> None:
    for t in tensors:
        if t.numel() != part.numel() or t.dtype != part.dtype:
            raise ValueError(f"{operation}: a tensor of {tuple(t.shape)} {t.dtype} beside one of {tuple(part.shape)} {part.dtype}: want all alike")


def _as(t: Tensor, x: Tensor) -> Tensor:
    """An operand of t as t has it: pairs of numbers are complex ones again."""
    return torch.view_as_complex(x) if t.is_complex() else x
