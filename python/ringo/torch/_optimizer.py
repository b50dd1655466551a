"""An optimizer whose step averages the gradients first, for loops without DDP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ._exchanger import Exchanger
from ._work import Work

Named = list[tuple[str, Tensor]]


class DistributedOptimizer:
    """An optimizer whose step averages the gradients over the ranks first, by a strategy, for loops without DDP.

    The parameters of named_parameters must be alike on all ranks: broadcast them first. Without a plan, buckets of at most bucket_bytes are
    exchanged in step. With plan="measured" or strategy "auto", see hook, they are planned, of single parameters, and exchanged while backward goes
    on, once a first step has shown in what order it finishes them. Then a step has one backward alone outside of no_sync.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, Tensor]],
        strategy: str = "fp32",
        density: float = 0,
        group: Any = None,
        bucket_bytes: int = 4 << 20,
        plan: str | None = None,
    ) -> None:
        named = [(n, p) for n, p in named_parameters if p.requires_grad]
        self.optimizer = optimizer
        self._exchanger = Exchanger(strategy, density, plan)
        self._exchanger.open(group or torch.distributed.distributed_c10d._get_default_group(), named)
        self._buckets = _cut(named[::-1], bucket_bytes)
        self._exchanger.arrange([n for n, _ in b] for b in self._buckets)
        self._ahead = Ahead(self._exchanger, named) if self._exchanger.plan else None
        self._averaged = False

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Averages the gradients, unless synchronize has, and has the optimizer update the parameters. A parameter without a gradient counts
        as zeros. closure computes the gradients, once.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.synchronize()
        self._averaged = False
        self.optimizer.step()
        if self._ahead is not None:
            self._ahead.end()
        return loss

    def synchronize(self) -> None:
        """Averages the gradients now, for what is done with them before step, such as clipping their norm. All ranks may then leave out the
        step: zero_grad gives the gradients up.
        """
        if self._averaged:
            return
        if self._ahead is None or not self._ahead.average():
            self._average()
        self._averaged = True

    def _average(self) -> None:
        flying: list[tuple[Named, Tensor, Work]] = []
        for bucket in self._buckets:
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for _, p in bucket])
            flying.append((bucket, flat, self._exchanger.exchange([n for n, _ in bucket], flat)))
        for bucket, flat, work in flying:
            work.wait()
            for (_, p), part in zip(bucket, flat.split([p.numel() for _, p in bucket])):
                _set(p, part)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, backward adds gradients up, and none is exchanged: for all backwards of a step but the last."""
        before = None if self._ahead is None else self._ahead.paused
        if self._ahead is not None:
            self._ahead.paused = True
        try:
            yield
        finally:
            if self._ahead is not None:
                self._ahead.paused = bool(before)

    def zero_grad(self, *args: Any, **more: Any) -> None:
        """The optimizer's. Gradients that were averaged for a step that is left out are over: the next ones are averaged again."""
        if self._averaged:
            self._averaged = False
            if self._ahead is not None:
                self._ahead.end()
        self.optimizer.zero_grad(*args, **more)

    def report(self) -> dict[str, Any]:
        """What steps go on with, and why: see ringo.Strategy.report. It is empty before the first step, and without a plan."""
        return self._exchanger.report()

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, what this rank keeps of each parameter, and what was chosen."""
        return {"optimizer": self.optimizer.state_dict(), **self._exchanger.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with what state_dict gave on the same rank. All ranks call it, between steps."""
        self.optimizer.load_state_dict(state["optimizer"])
        self._exchanger.load_state_dict(state)
        if self._ahead is not None and self._exchanger.layers is not None:
            self._ahead.lay()


class Ahead:
    """Exchanges gradients while backward goes on. Each lies in an arena, in the order in which backward finishes them, so that a bucket is a
    part of it.
    """

    def __init__(self, exchanger: Exchanger, named: Named) -> None:
        self.paused = False
        self._exchanger = exchanger
        self._named = dict(named)
        self._arrived: list[str] = []  # of the first step
        self._layer: dict[str, int] = {}
        self._arena = torch.empty(0)
        self._views: list[Tensor] = []  # by layer
        self._bucket_of: list[int] = []
        self._ready: list[bool] = []
        self._missing: list[int] = []  # by bucket: layers that are not ready
        self._works: list[Work] = []  # by bucket, those that were started
        self._nodes = [self._watch(n, p) for n, p in named]

    def _watch(self, name: str, p: Tensor) -> Any:
        """Has _final called once p.grad is final, and returns what must be kept for that."""
        if hasattr(p, "register_post_accumulate_grad_hook"):  # 2.1 and later
            return p.register_post_accumulate_grad_hook(lambda _: self._final(name))
        node = p.expand_as(p).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: self._final(name))
        return node

    def _final(self, name: str) -> None:
        if self.paused:
            return
        if self._exchanger.layers is not None:
            self._take(self._layer[name])
        elif name not in self._arrived:
            self._arrived.append(name)

    def _take(self, layer: int) -> None:
        """Puts a gradient to its place, and starts what buckets are ready, in their order, the same on all ranks."""
        x, bucket = self._exchanger, self._bucket_of[layer]
        again = self._ready[layer]
        if again and bucket < len(self._works):
            raise RuntimeError(
                "a gradient came once more after its exchange had begun: use no_sync() for all backwards of a step but the last; "
                "after a backward that failed, call synchronize() and zero_grad() on all ranks"
            )
        grad, view = self._named[_only(x, layer)].grad, self._views[layer]
        view.zero_() if grad is None else view.copy_(grad)
        if again:
            return
        x.strategy.ready(layer)
        self._ready[layer] = True
        self._missing[bucket] -= 1
        while len(self._works) < len(x.ends) and self._missing[len(self._works)] == 0:
            self._start(len(self._works))

    def _start(self, bucket: int) -> None:
        x = self._exchanger
        first, last = (x.ends[bucket - 1] if bucket else 0), x.ends[bucket]
        lo = self._views[first].storage_offset()
        flat = self._arena[lo : self._views[last - 1].storage_offset() + self._views[last - 1].numel()]
        part = x.start(bucket, flat)
        self._works.append(Work([part], [flat], x.group._completer))

    def average(self) -> bool:
        """Waits until all gradients are means. Before the first step has ended there is no plan, and it returns False."""
        x = self._exchanger
        if x.layers is None:
            return False
        for layer, ready in enumerate(self._ready):
            if not ready:
                self._take(layer)
        for work in self._works:
            work.wait()
        for layer, view in enumerate(self._views):
            _set(self._named[_only(x, layer)], view)
        self._begin()
        return True

    def _begin(self) -> None:
        """Makes all gradients missing again."""
        x = self._exchanger
        self._ready, self._works = [False] * len(self._views), []
        self._missing = [end - before for before, end in zip([0, *x.ends], x.ends)]
        self._bucket_of = [b for b, n in enumerate(self._missing) for _ in range(n)]

    def end(self) -> None:
        """Ends a step. The first one says in what order gradients come: rank 0's, and then what it has not seen."""
        x = self._exchanger
        if x.layers is not None:
            if x.step():
                self._begin()
            return
        names = list(self._named)
        numbers = {n: i for i, n in enumerate(names)}
        rest = [n for n in reversed(names) if n not in self._arrived]
        order = torch.tensor([numbers[n] for n in self._arrived + rest])
        x.group.broadcast([order]).wait()
        x.tune([[names[i]] for i in order.tolist()])
        self.lay()

    def lay(self) -> None:
        """Lays the arena out by the plan's layers, in memory that the ranks share, or on the device."""
        x = self._exchanger
        assert x.layers is not None
        self._layer = {_only(x, i): i for i in range(len(x.layers))}
        lengths = [self._named[n].numel() for n in self._layer]
        if self._arena.numel() != sum(lengths):
            place = self._named[_only(x, 0)].device
            shared = x.group._group.job.zeros(sum(lengths)) if place.type == "cpu" else None
            self._arena = torch.zeros(sum(lengths), device=place) if shared is None else torch.from_numpy(shared)
        self._views = [part.view(self._named[n].shape) for n, part in zip(self._layer, self._arena.split(lengths))]
        self._begin()


def _only(x: Exchanger, layer: int) -> str:
    """A layer's only parameter."""
    assert x.layers is not None
    return x.layers[layer][0]


def _set(p: Tensor, mean: Tensor) -> None:
    if p.grad is None:
        p.grad = mean.view_as(p).clone()
    else:
        p.grad.copy_(mean.view_as(p))


def _cut(named: Named, most: int) -> list[Named]:
    """Buckets of at most so many bytes, or of one parameter."""
    buckets: list[Named] = [[]]
    room = most
    for n, p in named:
        if buckets[-1] and p.numel() * 4 > room:
            buckets.append([])
            room = most
        buckets[-1].append((n, p))
        room -= p.numel() * 4
    return buckets
