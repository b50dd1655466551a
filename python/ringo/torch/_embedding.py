"""Embeddings whose rows lie on the job's servers of tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .._tables import Table
from .._tables import Tables as Rows
from .._work import Work
from ._process_group import ProcessGroup
from ._start import check_served


class Embedding(nn.Module):  # type: ignore[misc]
    """nn.Embedding, or with mode nn.EmbeddingBag, without a limit on indices: each is the 64-bit key of a row on the job's servers, which make
    it when it is first asked for. It has no parameters of PyTorch: DDP and optimizers do not see it; its gradients are pushed in backward, and
    the servers' rule moves the rows. Tables connects it.

    name is that of its table, dim the weights of a row. rule, lr, settings, init, value and seed are those of ringo.Table. mode: "sum" or "mean"
    of each row of a matrix of indices, or of the bags that begin at offsets; None: every index has its row in the result. Indices are int64.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        mode: str | None = None,
        *,
        rule: str = "adagrad",
        lr: float = 0.05,
        init: str = "uniform",
        value: float = 0.01,
        seed: int = 0,
        settings: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        if mode not in (None, "sum", "mean"):
            raise ValueError(f'mode {mode!r}: want None, "sum" or "mean"')
        self.table = Table(name, dim, rule, lr, init, value, seed, dict(settings or {}))
        self.mode = mode
        self._tables: Tables | None = None
        self._ahead: _Batch | None = None

    def extra_repr(self) -> str:
        return f"{self.table.name!r}, {self.table.dim}, mode={self.mode!r}, rule={self.table.rule!r}, lr={self.table.lr}"

    def prefetch(self, keys: Tensor) -> None:
        """Asks for the rows of the next step's keys, which travel while this step computes. It is called between this step's forward and
        Tables.step; forward with the same tensor then takes them.
        """
        self._ahead = self._pull(keys, self._connected().next_step + 1, False)

    def forward(self, keys: Tensor, offsets: Tensor | None = None) -> Tensor:
        tables, training = self._connected(), torch.is_grad_enabled() and self.training
        batch, self._ahead = self._ahead, None
        if not training or batch is None or batch.keys is not keys:
            batch = self._pull(keys, tables.next_step, not training)
        batch.work.wait()
        rows, places, distinct = batch.rows, batch.places.view(keys.shape), batch.distinct
        if training:
            rows.requires_grad_()
            rows.register_hook(lambda grad: tables.push(self, distinct, grad))
        if self.mode is None:
            return functional.embedding(places, rows)
        return functional.embedding_bag(places, rows, offsets, mode=self.mode)

    def _connected(self) -> Tables:
        if self._tables is None:
            raise RuntimeError(f"embedding {self.table.name!r} has no servers yet: ringo.torch.Tables(model) connects all of a model")
        return self._tables

    def _pull(self, keys: Tensor, step: int, peek: bool) -> _Batch:
        """Starts to fetch each distinct key's row once."""
        if keys.dtype != torch.int64:
            raise TypeError(f"embedding {self.table.name!r}: keys of {keys.dtype}, want int64")
        distinct, places = torch.unique(keys.reshape(-1), return_inverse=True)
        rows = torch.empty(len(distinct), self.table.dim)
        work = self._connected().rows.start_pull(self.table.name, step, distinct.numpy(), rows.numpy(), peek)
        return _Batch(keys, distinct, places, rows, work)


@dataclass
class _Batch:
    """Rows that were asked for."""

    keys: Tensor  # as they were given
    distinct: Tensor  # each once
    places: Tensor  # of keys among them
    rows: Tensor  # theirs
    work: Work  # ends when they are there


class Tables:
    """Connects the embeddings of models to the job's servers of tables, and ends steps:

        tables = ringo.torch.Tables(model)
        for x, y in batches:
            loss(model(x), y).backward()  # pushes the gradients of rows
            optimizer.step()              # of all that is PyTorch's
            tables.step()

    All ranks connect models with the same embeddings, once. In mode bsp rows move by the mean of the ranks' gradients, as DDP averages.
    """

    def __init__(self, *models: nn.Module, group: Any = None) -> None:
        group = group or torch.distributed.distributed_c10d._get_default_group()
        if not isinstance(group, ProcessGroup):
            raise ValueError('the servers belong to a job of backend "ringo": begin with init_process_group("ringo")')
        embeddings = {id(m): m for model in models for m in model.modules() if isinstance(m, Embedding)}
        if not embeddings:
            raise ValueError("there is no ringo.torch.Embedding in these models")
        self.embeddings = list(embeddings.values())
        known: dict[str, Table] = {}
        for e in self.embeddings:  # several may share a table
            if known.setdefault(e.table.name, e.table) != e.table:
                raise ValueError(f"two embeddings are of table {e.table.name!r}, and want different ones")
        check_served(group._group.job)
        self.rows: Rows = group._group.job.tables(*known.values())
        self.next_step = 1  # what the next forward belongs to
        for e in self.embeddings:
            e._tables = self

    def push(self, embedding: Embedding, keys: Tensor, gradients: Tensor) -> None:
        """Sends gradients of an embedding's rows; backward does so."""
        dense = gradients.detach().to(torch.float32).contiguous()
        self.rows.push(embedding.table.name, self.next_step, keys.numpy(), dense.numpy())

    def step(self, lr: float | None = None) -> None:
        """Ends a step, after its backward: rows move. lr is the learning rate of all tables from the next step on, if it changes."""
        self.rows.clock(self.next_step, lr)
        self.next_step += 1

    def save(self, oldest: int | None = None) -> list[int]:
        """Has the servers write a checkpoint after the last step, see ringo.Tables.save."""
        return self.rows.save(self.next_step - 1, oldest)

    def close(self) -> None:
        """Leaves the servers in good order; destroy_process_group does so, too."""
        self.rows.close()
