"""Strategies for training loops of PyTorch: a hook for DDP, and an optimizer around another one for any loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from .._strategy import Strategy
from ._process_group import ProcessGroup
from ._work import Work


class Hook:
    """Exchanges DDP's buckets by a strategy: ringo.torch.hook("dlgs", density=0.01).register(model).

    What is not sent is kept by parameter, whatever DDP does with its buckets. state_dict and load_state_dict are for checkpoints.
    """

    def __init__(self, name: str, density: float = 0) -> None:
        self.name, self.density = name, density
        self._strategy: Strategy | None = None
        self._group: ProcessGroup | None = None
        self._names: dict[int, str] = {}
        self._arranged: list[tuple[str, ...]] = []
        self._flying: list[Work] = []

    def register(self, model: Any) -> None:
        """Makes it the communication hook of a DistributedDataParallel."""
        self._open(model.process_group, model.module.named_parameters())
        model.register_comm_hook(self, _call)

    def _open(self, group: Any, named: Iterable[tuple[str, Tensor]]) -> None:
        if not isinstance(group, ProcessGroup):
            raise ValueError('the hook exchanges over backend "ringo": begin with init_process_group("ringo")')
        wanted = {n: p for n, p in named if p.requires_grad}
        for n, p in wanted.items():
            if p.dtype != torch.float32:
                raise ValueError(f"parameter {n} is of {p.dtype}: strategies are for float32")
        self._names = {id(p): n for n, p in wanted.items()}
        self._strategy = Strategy(group._group, self.name, {n: p.numel() for n, p in wanted.items()}, self.density)
        self._group = group

    def call(self, bucket: Any) -> Any:
        """What DDP calls for each bucket."""
        return self.exchange([self._names[id(p)] for p in bucket.parameters()], bucket.buffer()).future_of()

    def exchange(self, names: list[str], buffer: Tensor) -> Work:
        """Starts to average the gradients of some parameters, which lie in buffer one behind the other."""
        assert self._strategy is not None and self._group is not None
        key = tuple(names)
        if key not in self._arranged:
            self._rearrange(key)
        part = self._strategy.start(self._arranged.index(key), buffer.data_ptr(), buffer.numel(), buffer)
        work = Work([part], [buffer], self._group._completer)
        self._flying = [w for w in self._flying if not w.is_completed()] + [work]
        return work

    def _rearrange(self, key: tuple[str, ...]) -> None:
        """Makes room for a bucket that was not there before: those that share parameters with it go; what is in none is in one bucket."""
        for work in self._flying:
            work.wait()
        self._flying = []
        kept = [b for b in self._arranged if not set(b) & set(key) and b != self._rest()] + [key]
        placed = {n for b in kept for n in b}
        assert self._strategy is not None
        rest = tuple(n for n in self._strategy.lengths if n not in placed)
        self._arranged = kept + ([rest] if rest else [])
        self._other = rest
        self._strategy.arrange(self._arranged)

    _other: tuple[str, ...] = ()

    def _rest(self) -> tuple[str, ...]:
        return self._other

    def state_dict(self) -> dict[str, Tensor]:
        """What this rank keeps of each parameter."""
        assert self._strategy is not None, "register comes first"
        return {n: torch.from_numpy(v) for n, v in self._strategy.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Goes on with what state_dict gave on the same rank."""
        assert self._strategy is not None, "register comes first"
        self._strategy.load_state_dict({n: v.numpy() for n, v in state.items()})


def _call(state, bucket):  # type: ignore[no-untyped-def]
    """What DDP calls, which takes no annotations that are text, as they are here."""
    return state.call(bucket)


def hook(name: str, density: float = 0) -> Hook:
    """A communication hook for DDP by a strategy of `ringo train`; see Hook."""
    return Hook(name, density)


class DistributedOptimizer:
    """An optimizer whose step averages the gradients over the ranks first, by a strategy, for loops without DDP.

    The parameters of named_parameters must be alike on all ranks: broadcast them first. Buckets have at most bucket_bytes.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, Tensor]],
        strategy: str = "fp32",
        density: float = 0,
        group: Any = None,
        bucket_bytes: int = 4 << 20,
    ) -> None:
        named = [(n, p) for n, p in named_parameters if p.requires_grad]
        self.optimizer = optimizer
        self._hook = Hook(strategy, density)
        self._hook._open(group or torch.distributed.distributed_c10d._get_default_group(), named)
        self._buckets: list[list[tuple[str, Tensor]]] = [[]]
        room = bucket_bytes
        for n, p in reversed(named):
            if self._buckets[-1] and p.numel() * 4 > room:
                self._buckets.append([])
                room = bucket_bytes
            self._buckets[-1].append((n, p))
            room -= p.numel() * 4
        assert self._hook._strategy is not None
        self._hook._arranged = [tuple(n for n, _ in b) for b in self._buckets]
        self._hook._strategy.arrange(self._hook._arranged)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Averages the gradients, and has the optimizer update the parameters. A parameter without a gradient counts as zeros."""
        flying = []
        for bucket in self._buckets:
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for _, p in bucket])
            flying.append((bucket, flat, self._hook.exchange([n for n, _ in bucket], flat)))
        for bucket, flat, work in flying:
            work.wait()
            at = 0
            for _, p in bucket:
                part = flat[at : at + p.numel()].view_as(p)
                at += p.numel()
                if p.grad is None:
                    p.grad = part.clone()
                else:
                    p.grad.copy_(part)
        return self.optimizer.step(closure) if closure else self.optimizer.step()

    def zero_grad(self, *args: Any, **more: Any) -> None:
        self.optimizer.zero_grad(*args, **more)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, and what this rank keeps of each parameter."""
        return {"optimizer": self.optimizer.state_dict(), "residuals": self._hook.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self._hook.load_state_dict(state["residuals"])
