"""The sum of sparse tensors (COO) over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._group import sizes
from ._tensors import TYPES, values
from ._work import Work, waited

if TYPE_CHECKING:
    from ._process_group import ProcessGroup


def allreduce(group: ProcessGroup, t: Tensor, op: str) -> Work:
    """Replaces t by its sum. How many values ranks have is exchanged before it returns, so that operations that are started after it
    come in the same order on every rank.
    """
    if op != "SUM":
        raise ValueError(f"backend ringo sums sparse tensors, and does not reduce them by {op}")
    mine = t.coalesce()
    shape = [mine.sparse_dim(), mine.dense_dim(), mine._nnz()]
    count, every = torch.tensor(shape), torch.empty((group.size(), 3), dtype=torch.int64)
    waited(group._start("allgather", every, count, 3, TYPES[torch.int64]))
    if (every[:, :2] != every[0, :2]).any():
        raise ValueError(f"allreduce: ranks have different numbers of sparse and dense dimensions: {every[:, :2].tolist()}")
    counts = [int(n) for n in every[:, 2]]
    rows, indices = _gathered(group, mine.indices().t().contiguous(), counts)
    parts, numbers = _gathered(group, mine.values().contiguous(), counts)

    def finish() -> None:
        out = torch.sparse_coo_tensor(indices.t(), numbers, t.shape, dtype=t.dtype).coalesce()
        with torch.no_grad():
            t.copy_(out)

    return group._work([rows, parts], [t], finish)


def _gathered(group: ProcessGroup, x: Tensor, counts: list[int]) -> tuple[Any, Tensor]:
    """Starts to gather the rows of all ranks, of which x has some."""
    out = torch.empty((sum(counts), *x.shape[1:]), dtype=x.dtype, device=x.device)
    row = x[:0].new_empty((1, *x.shape[1:]))
    width, kind = values(row)
    part = group._start("allgatherv", out, x, sizes([n * width for n in counts]), kind)
    return part, out
