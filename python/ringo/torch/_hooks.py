"""A strategy as a hook of DDP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ._device import device_of
from ._exchanger import Exchanger
from ._work import Merged, Promise


class Hook:
    """Exchanges DDP's buckets by a strategy: ringo.torch.hook("dlgs", density=0.01).register(model).

    What is not sent is kept by parameter, whatever DDP does with its buckets. state_dict and load_state_dict are for checkpoints, of each
    rank its own. report tells what was chosen, and why, where there is a plan.
    """

    def __init__(self, name: str, density: float = 0, plan: str | None = None) -> None:
        self._exchanger = Exchanger(name, density, plan)
        self._seen: list[tuple[str, ...]] = []  # DDP's buckets of this step
        self._before: list[tuple[str, ...]] = []  # of the one before
        self._waiting: list[tuple[Promise, Tensor]] = []  # for the rest of their planned bucket
        self._merged: dict[int, Tensor] = {}  # by planned bucket: where several of DDP's lie one behind the other
        self._bucket = 0
        self._planned = False  # for the buckets that DDP has now

    def register(self, model: Any) -> None:
        """Makes it the communication hook of a DistributedDataParallel."""
        self._exchanger.open(model.process_group, model.module.named_parameters())
        model.register_comm_hook(self, _call)

    def call(self, bucket: Any) -> Any:
        """What DDP calls for each of its buckets, in their order."""
        x = self._exchanger
        names, buffer = tuple(x.names[id(p)] for p in bucket.parameters()), bucket.buffer()
        if x.plan is None:
            return x.exchange(names, buffer).future_of()
        index = bucket.index()
        if index == 0:
            self._begin()
        self._seen.append(names)
        if not self._planned:
            return x.exchange(names, buffer).future_of()
        return self._join(index, names, buffer)

    def _begin(self) -> None:
        """Ends the step before. Buckets that DDP has had twice, or in the run that load_state_dict was given, are planned for: it makes
        others after its first step.
        """
        x = self._exchanger
        if self._waiting:
            raise RuntimeError("the last backward ended before all of DDP's buckets were ready: this job cannot go on")
        before, self._before, self._seen = self._before, self._seen, []
        self._bucket = 0
        if self._planned:
            if x.step():
                self._merged = {}
        elif self._before and self._before in (before, x.layers):
            x.tune(self._before)
            self._planned = True

    def _join(self, index: int, names: tuple[str, ...], buffer: Tensor) -> Any:
        """Adds one of DDP's buckets to its planned one, whose exchange begins with the last of them."""
        x = self._exchanger
        assert x.layers is not None
        if index >= len(x.layers) or x.layers[index] != names:
            raise RuntimeError(f"DDP's bucket {index} has other parameters than in the steps before: {', '.join(names)}")
        x.strategy.ready(index)
        promise = Promise(device_of("exchange", x.group.rank(), [buffer]))
        future = promise.future()
        self._waiting.append((promise, buffer))
        if index + 1 == x.ends[self._bucket]:
            self._start(self._bucket, self._waiting)
            self._waiting = []
            self._bucket += 1
        return future

    def _start(self, bucket: int, joined: list[tuple[Promise, Tensor]]) -> None:
        x, buffers = self._exchanger, [b for _, b in joined]
        whole = buffers[0]
        if len(buffers) > 1:
            if bucket not in self._merged:
                self._merged[bucket] = torch.empty(sum(b.numel() for b in buffers), device=whole.device)
            whole = torch.cat(buffers, out=self._merged[bucket])
        part = x.start(bucket, whole)
        work = Merged([part], buffers, x.group._completer, (lambda: _spread(whole, buffers)) if len(buffers) > 1 else None)
        work.tell([p for p, _ in joined])

    def report(self) -> dict[str, Any]:
        """What steps go on with, and why: see ringo.Strategy.report. It is empty while DDP still makes its buckets, in its first steps, and without
        a plan.
        """
        return self._exchanger.report()

    def state_dict(self) -> dict[str, Any]:
        """What this rank keeps of each parameter ("residuals"), and what was chosen ("tuning"), None without a plan."""
        return self._exchanger.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with what state_dict gave on the same rank. All ranks call it, between steps."""
        self._exchanger.load_state_dict(state)
        self._planned, self._merged, self._waiting = False, {}, []


def _spread(whole: Tensor, buffers: list[Tensor]) -> None:
    for part, buffer in zip(whole.split([b.numel() for b in buffers]), buffers):
        buffer.copy_(part)


def _call(state, bucket):  # type: ignore[no-untyped-def]
    """What DDP calls, which takes no annotations that are text, as they are here."""
    return state.call(bucket)


def hook(name: str, density: float = 0, plan: str | None = None) -> Hook:
    """A communication hook for DDP by a strategy of `ringo train`; see Hook.

    With plan="measured" the library measures the first steps, and what strategies and exchanges cost, and merges buckets of DDP where
    that is predicted to be faster: give DDP a small bucket_cap_mb, as it can merge them and not cut them. "exact", "dlgs-scan" and "mgwfbp"
    name the planner, "exact" is "measured". "auto" plans, and chooses the strategy, too.
    """
    return Hook(name, density, plan)
