"""Embeddings whose rows lie on the job's servers of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .._errors import InvalidError
from .._tables import Table
from .._tables import Tables as Rows
from ._device import described
from ._process_group import OutOfMemory, ProcessGroup
from ._rows import Outbox, Place, RowCache
from ._start import check_served


class Embedding(nn.Module):  # type: ignore[misc]
    """nn.Embedding, or with mode nn.EmbeddingBag, without a limit on indices: each is the 64-bit key of a row on the job's servers, which make
    it when it is first asked for. It has no parameters of PyTorch: DDP and optimizers do not see it; its gradients are pushed in backward, and
    the servers' rule moves the rows. Tables connects it, and names the device of the rows and of results.

    name is that of its table, dim the weights of a row. rule, lr, settings, init, value and seed are those of ringo.Table. mode: "sum" or "mean"
    of each row of a matrix of indices, or of the bags that begin at offsets; None: every index has its row in the result. Indices are int64,
    on the CPU.
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
        tables = self._connected()
        self._ahead = _Batch(tables, self, keys, tables.next_step + 1, False)

    def forward(self, keys: Tensor, offsets: Tensor | None = None) -> Tensor:
        tables, training = self._connected(), torch.is_grad_enabled() and self.training
        batch = self._ahead
        if not training or batch is None or batch.keys is not keys or batch.step != tables.next_step:
            if tables.outbox is not None:
                tables.outbox.drain()  # the rows have this rank's gradients of the steps before
            batch = _Batch(tables, self, keys, tables.next_step, not training)
        if training:
            self._ahead = None
        rows, places = batch.arrive()
        if training:
            distinct = batch.distinct
            rows = _Pushed.apply(torch.empty(0, requires_grad=True), rows, lambda grad: tables.push(self, distinct, grad))
        if self.mode is None:
            return functional.embedding(places, rows)
        offsets = offsets if offsets is None else offsets.to(rows.device)
        return functional.embedding_bag(places, rows, offsets, mode=self.mode)

    def _connected(self) -> Tables:
        if self._tables is None:
            raise RuntimeError(f"embedding {self.table.name!r} has no servers yet: ringo.torch.Tables(model) connects all of a model")
        return self._tables


class _Pushed(torch.autograd.Function):  # type: ignore[misc]
    """The rows of a batch, with gradients that are pushed: no later backward adds to them while they are copied."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, rows: Tensor, push: Callable[[Tensor], None]) -> Tensor:
        ctx.push = push
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[None, None, None]:
        ctx.push(gradients)
        return None, None, None


class _Batch:
    """Rows of a batch that were asked for: each distinct key's once, where the cache has none."""

    def __init__(self, tables: Tables, embedding: Embedding, keys: Tensor, step: int, peek: bool) -> None:
        name, place = embedding.table.name, tables.place
        if keys.dtype != torch.int64 or keys.device.type != "cpu":
            raise TypeError(f"{tables.named('pull', name)}: keys {described([keys])}: want int64 on the CPU: use keys.long().cpu()")
        self.keys, self.step, self._tables, self._peek, self._name = keys, step, tables, peek, name  # keys as they were given
        self.distinct, self._places = torch.unique(keys.reshape(-1), return_inverse=True)
        self._missing, self._cache, self._rows = self.distinct, tables.caches.get(name), None
        shape = len(self.distinct), embedding.table.dim
        with tables.memory("pull", name, shape):
            if self._cache is not None and (peek or self._cache.reuse):
                self._find(shape)
            self._pulled, self._memory = place.host(torch.empty(len(self._missing), shape[1]))
        self._work = tables.rows.start_pull(name, step, self._missing.numpy(), self._pulled.numpy(), peek)

    def _find(self, shape: tuple[int, int]) -> None:
        """Copies the cache's rows now, before others replace them."""
        assert self._cache is not None
        found, place = self._cache.find(self.distinct, self.step, self._peek), self._tables.place
        if not found.any():
            return
        slots, self._rows = self._cache.slots(self.distinct[found]), place.empty(*shape)
        self._rows.index_copy_(0, place.moved(torch.nonzero(found).view(-1)), self._cache.values.index_select(0, place.moved(slots)))
        self._missing, self._lacking = self.distinct[~found], torch.nonzero(~found).view(-1)

    def arrive(self) -> tuple[Tensor, Tensor]:
        """Waits for the rows, and returns them and the places of the keys among them, where they are used."""
        if self._tables.outbox is None:
            self._work.wait()
        else:
            self._tables.outbox.wait(self._work)
        place, cache = self._tables.place, self._cache
        with torch.no_grad(), self._tables.memory("pull", self._name, tuple(self._pulled.shape)):
            rows = pulled = place.up(self._pulled, self._memory)
            if self._rows is not None:
                rows = self._rows.index_copy_(0, place.moved(self._lacking), pulled)
            if cache is not None and (self._peek or cache.reuse):
                cache.store(self._missing, pulled, self.step, self._peek, place)
            return rows, place.moved(self._places).view(self.keys.shape)


class Tables:
    """Connects the embeddings of models to the job's servers of tables, and ends steps:

        tables = ringo.torch.Tables(model)
        for x, y in batches:
            loss(model(x), y).backward()  # pushes the gradients of rows
            optimizer.step()              # of all that is PyTorch's
            tables.step()

    All ranks connect models with the same embeddings, once. In mode bsp rows move by the mean of the ranks' gradients, as DDP averages.

    device is where rows are used, and results are. cache is the number of rows of each table that stay there for later batches. sync is then
    the servers' mode, "bsp", "ssp" or "async": servers of another one reject this rank. A row of the cache is used in evaluations until the next
    step, in bsp with the same bits. It is used in as many later steps of training as reuse, and may lack these steps' gradients, of this rank
    and, beyond the bound of the mode, of other ranks, and with prefetch those of one more step of this rank; in bsp reuse is 0.
    """

    def __init__(
        self, *models: nn.Module, group: Any = None, device: Any = "cpu", cache: int = 0, sync: str = "", reuse: int = 0
    ) -> None:
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
        self._rank, self._sync = group.rank(), sync
        self._check_cache(cache, reuse)
        self.place = Place(device, self._rank)
        self.rows: Rows = group._group.job.tables(*known.values(), settings={"sync": sync} if sync else None)
        self.outbox = None if self.place.device is None else Outbox(group._group.job.fail)  # gradients and ends of steps on a device leave through it
        if self.outbox is not None:
            group.before_close.append(self.outbox.finish)
        self.next_step = 1  # what the next forward belongs to
        self.caches: dict[str, RowCache] = {}
        for t in known.values():
            if cache:
                with self.memory("Tables", t.name, (cache, t.dim)):
                    self.caches[t.name] = RowCache(self.place.empty(cache, t.dim), reuse)
        for e in self.embeddings:
            e._tables = self

    def _check_cache(self, cache: int, reuse: int) -> None:
        where = f"Tables: rank {self._rank}: cache {cache}, reuse {reuse}, sync {self._sync!r}"
        if cache < 0 or reuse < 0 or reuse and not cache:
            raise ValueError(f"{where}: want at least 0, and no reuse without a cache")
        if cache and self._sync not in ("bsp", "ssp", "async"):
            raise ValueError(f'{where}: a cache needs the mode of the servers: pass sync="bsp", "ssp" or "async"')
        if reuse and self._sync == "bsp":
            raise ValueError(f"{where}: in bsp a row is outdated after its step: pass reuse=0, which caches rows of evaluations, or use ssp or async")

    def named(self, operation: str, table: str) -> str:
        """The beginning of an error's text."""
        return f"{operation}: rank {self._rank}: embedding {table!r}, step {self.next_step}"

    @contextmanager
    def memory(self, operation: str, table: str, shape: tuple[int, ...]) -> Iterator[None]:
        """Names what the device, or pinned memory, has no space for."""
        try:
            yield
        except RuntimeError as fault:
            text = f"{self.named(operation, table)}: rows {shape} float32 on {self.place.where}: {fault}"
            raise (OutOfMemory if isinstance(fault, OutOfMemory) else RuntimeError)(f"{text}: use smaller batches, or a smaller cache") from fault

    def push(self, embedding: Embedding, keys: Tensor, gradients: Tensor) -> None:
        """Sends gradients of an embedding's rows; backward does so. Errors: values that are not finite, on a device at a later call."""
        dense, step, name = gradients.detach().to(torch.float32).contiguous(), self.next_step, embedding.table.name
        where = f"{self.named('push', name)}: gradients {described([gradients])}"

        def send(host: Tensor) -> None:
            bad = int((~torch.isfinite(host)).sum())
            if bad:
                raise InvalidError(f"{where}: {bad} values are not finite: lower the learning rate, or clip gradients", "push", self._rank)
            self.rows.push(name, step, keys.numpy(), host.numpy())

        if self.outbox is None:
            send(dense)
        else:
            with self.memory("push", name, tuple(dense.shape)):
                finish = self.place.down(dense, send)
            self.outbox.put(finish)

    def step(self, lr: float | None = None) -> None:
        """Ends a step, after its backward: rows move. lr is the learning rate of all tables from the next step on, if it changes."""
        step = self.next_step
        if self.outbox is None:
            self.rows.clock(step, lr)
        else:
            self.outbox.end_step(lambda: self.rows.clock(step, lr))
        self.next_step += 1

    def cache_report(self) -> dict[str, dict[str, float]]:
        """The use of the cache in "training" and in "evaluation": "lookups" of a batch's distinct rows, "hits", and "rate", their ratio."""
        report = {}
        for i, purpose in enumerate(("training", "evaluation")):
            lookups, hits = sum(c.lookups[i] for c in self.caches.values()), sum(c.hits[i] for c in self.caches.values())
            report[purpose] = {"lookups": lookups, "hits": hits, "rate": hits / max(lookups, 1)}
        return report

    def save(self, oldest: int | None = None) -> list[int]:
        """Has the servers write a checkpoint after the last step, see ringo.Tables.save."""
        if self.outbox is not None:
            self.outbox.drain()
        return self.rows.save(self.next_step - 1, oldest)

    def close(self) -> None:
        """Leaves the servers in good order; destroy_process_group does so, too."""
        try:
            if self.outbox is not None:
                self.outbox.close()
        finally:
            self.rows.close()
