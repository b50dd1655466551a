"""What a hook of DDP and an optimizer share: gradients of parameters by their names, exchanged by a strategy, in planned buckets or others."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._arrays import Op
from .._strategy import Strategy
from ._device import device_of
from ._process_group import ProcessGroup
from ._select import DTYPES, LEAST, SELECTS, Names, Selected, Selector
from ._staging import Lane, Staged
from ._tensors import TYPES
from ._work import Work

Layers = Sequence[Sequence[str]]
HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}

_log = logging.getLogger("ringo.torch")


class Exchanger:
    """A strategy for parameters by their names. plan says how buckets are merged: see hook."""

    def __init__(self, name: str, density: float = 0, plan: str | None = None) -> None:
        self.name, self.density = name, density
        if plan == "measured" or name == "auto" and plan is None:
            plan = "exact"
        self.plan = plan
        self.names: dict[int, str] = {}
        self.layers: list[tuple[str, ...]] | None = None  # of the plan; None: no checkpoint exists yet
        self.ends: list[int] = []
        self._strategy: Strategy | None = None
        self._group: ProcessGroup | None = None
        self._selector: Selector | None = None  # on a device
        self._half: torch.dtype | None = None  # of the exchange, in a group with a device
        self._infinite: dict[tuple[str, ...], Tensor] = {}  # by bucket: whether the last result is not finite
        self._arranged: list[tuple[str, ...]] = []
        self._rest: tuple[str, ...] = ()
        self._flying: list[Work] = []
        self._saved: dict[str, Any] | None = None
        self._tuned = False  # the buckets are those of the plan: no others were arranged since

    def open(self, group: Any, named: Iterable[tuple[str, Tensor]]) -> None:
        if not isinstance(group, ProcessGroup):
            raise ValueError('the strategy exchanges over backend "ringo": begin with init_process_group("ringo")')
        wanted = {n: p for n, p in named if p.requires_grad}
        lengths = {n: p.numel() for n, p in wanted.items()}
        device = device_of("exchange", group.rank(), list(wanted.values()))
        name, density = self.name, self.density
        if device is not None and self.plan is None and name in SELECTS:
            self._selector = Selector(name, density, lengths)
            name, density = "sparseThreshold", LEAST  # of what was selected
        for n, p in wanted.items():
            if p.dtype not in (DTYPES if self._selector else DTYPES[:1]):
                halves = f"for float16 and bfloat16 on a GPU by {', '.join(SELECTS)}"
                raise ValueError(f"parameter {n} is of {p.dtype}: strategies are for float32, and {halves}")
        self.names = {id(p): n for n, p in wanted.items()}
        self._half = HALVES.get(name) if group.cut and self.plan is None else None
        strategy = Strategy(group._group, name, lengths, density)

        def launch(_: str, operands: Any, address: int, n: int, bucket: int) -> Any:
            return strategy.start(bucket, address, n, operands)

        self._strategy, self._group, self._lane = strategy, group, Lane(launch, group.rank(), "exchanges")

    @property
    def strategy(self) -> Strategy:
        if self._strategy is None:
            raise ValueError("the hook has no model yet: register comes first")
        return self._strategy

    @property
    def group(self) -> ProcessGroup:
        assert self._group is not None, "open comes first"
        return self._group

    def start(self, bucket: int, gradients: Tensor, names: Names = ()) -> Any:
        """Starts to average a bucket's gradients, and returns what to wait for."""
        arguments = gradients, gradients.numel(), bucket
        if self._selector is None:
            return self._lane.start("exchange", *arguments)
        device = device_of("exchange", self.group.rank(), [gradients])
        return self._lane.stage(Staged("exchange", self.group.rank(), device, [arguments], partial(Selected, self._selector, names)))

    def __del__(self) -> None:
        if self._strategy is not None:
            self._lane.close()

    # ---- buckets as they come ----

    def arrange(self, buckets: Iterable[Sequence[str]]) -> None:
        """Says which parameters are in which bucket, all of them, until exchange is asked for others."""
        self._arranged = [tuple(b) for b in buckets]
        self._rest, self._tuned = (), False
        self.strategy.arrange(self._arranged)

    def exchange(self, names: Sequence[str], buffer: Tensor) -> Work:
        """Starts to average the gradients of some parameters, which lie in buffer one behind the other."""
        key = tuple(names)
        if self._half is not None:
            return self._exchange_halves(key, buffer, self._half)
        if key not in self._arranged:
            self._rearrange(key)
        part = self.start(self._arranged.index(key), buffer, key)
        work = Work([part], [buffer], self.group._completer)
        self._flying = [w for w in self._flying if not w.is_completed()] + [work]
        return work

    def _exchange_halves(self, key: tuple[str, ...], buffer: Tensor, dtype: torch.dtype) -> Work:
        """Does so in 16 bits, which are cast where the gradients are, as the library casts them: half as much is copied between device and host.
        Errors: the last result of this bucket is not finite.
        """
        group, size = self.group, self.group.size()
        self._check(key)
        half = (buffer * (1 / size)).to(dtype)  # a sum of halves would overflow

        def finish() -> None:
            buffer.copy_(half).mul_(size).mul_(1 / size)
            self._infinite[key] = ~torch.isfinite(buffer).all()

        return Work([group._start("allreduce", half, half.numel(), TYPES[dtype], int(Op.SUM))], [buffer], group._completer, finish)

    def _check(self, key: tuple[str, ...]) -> None:
        """Errors: the last result of a bucket is not finite."""
        if key in self._infinite and bool(self._infinite.pop(key)):
            raise ValueError(f"exchange: rank {self.group.rank()}: {self.name}: a mean gradient of {', '.join(key)} was not finite in the step before")

    def _rearrange(self, key: tuple[str, ...]) -> None:
        """Makes room for a bucket that was not there before: those that share parameters with it go; what is in none is in one bucket."""
        for work in self._flying:
            work.wait()
        self._flying = []
        kept = [b for b in self._arranged if not set(b) & set(key) and b != self._rest] + [key]
        placed = {n for b in kept for n in b}
        self._rest = tuple(n for n in self.strategy.lengths if n not in placed)
        self._arranged = kept + ([self._rest] if self._rest else [])
        self._tuned = False
        self.strategy.arrange(self._arranged)

    # ---- buckets that are planned ----

    def tune(self, layers: Layers) -> None:
        """Begins to plan for layers, or goes on with what was chosen for the same in the run that load_state_dict was given."""
        for work in self._flying:
            work.wait()
        self._flying, self._arranged, self._rest = [], [], ()
        self.layers = [tuple(layer) for layer in layers]
        saved = self._saved
        if saved is not None and [tuple(layer) for layer in saved["layers"]] == self.layers:
            self.strategy.tune(self.layers, self.plan or "exact", saved["choices"], saved["steps"])
        else:
            self.strategy.tune(self.layers, self.plan or "exact")
        self._tuned = True
        self._replan()

    def step(self) -> bool:
        """Ends a step, and returns whether the buckets are others from now on."""
        if not self.strategy.step():
            return False
        self._replan()
        return True

    def _replan(self) -> None:
        self.ends = self.strategy.buckets()
        report = self.strategy.report()
        if report["chosen"] and self.group.rank() == 0:
            _log.info("strategy %s in %d buckets of %d: %s", report["strategy"], len(self.ends), self.ends[-1], report.get("why") or "as planned")

    def report(self) -> dict[str, Any]:
        """See ringo.Strategy.report. Empty: there is no plan yet, or none for the buckets that there are now."""
        return self.strategy.report() if self._tuned else {}

    # ---- checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        for key in list(self._infinite):
            self._check(key)
        report = self.report()
        tuning = None
        if report.get("chosen"):
            assert self.layers is not None
            tuning = {"layers": [list(layer) for layer in self.layers], "choices": report["choices"], "steps": report["steps"]}
        if self._selector is not None:
            return {**self._selector.state_dict(), "tuning": None}
        return {"residuals": {n: torch.from_numpy(v) for n, v in self.strategy.state_dict().items()}, "tuning": tuning or self._saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._selector is not None:
            return self._selector.load_state_dict(state["residuals"], state.get("thresholds", ()))
        tuning = state.get("tuning")
        if tuning is not None and self.plan is not None:
            self._saved = dict(tuning)
            self.tune(tuning["layers"])
        self.strategy.load_state_dict({n: v.numpy() for n, v in state["residuals"].items()})
