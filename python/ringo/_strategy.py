"""Gradients that are compressed: strategies by name, with what they keep."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_size_t, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import operand
from ._errors import InvalidError
from ._group import Group, sizes
from ._library import Tuning, check, library
from ._work import Work

Floats = npt.NDArray[np.float32]


class Strategy:
    """Averages gradients over a group by a strategy of `ringo train`: "dlgs", "dgc", "lags", "sparseTopK", "sparseThreshold", "int8", "fp16",
    "bf16", "fp32", or "auto", which is fp32 until tune.

    lengths has how many values each parameter has, by name. density is the share of values that are sent, or sparseThreshold's
    threshold; 0: the default. What is not sent is kept by parameter and added to its next gradient. All ranks open the same
    strategies, and exchange the same buckets, in the same order.
    """

    def __init__(self, group: Group, name: str, lengths: Mapping[str, int], density: float = 0) -> None:
        self.name = name
        self.group = group
        self.lengths = dict(lengths)
        self.numbers = {p: i for i, p in enumerate(self.lengths)}
        texts = (c_char_p * len(lengths))(*(p.encode() for p in lengths))
        handle = c_void_p()
        opened = library().ringo_strategy_open(
            group._open("strategy_open"), name.encode(), density, texts, sizes(list(lengths.values())), len(lengths), byref(handle)
        )
        check(opened, "strategy_open")
        self._handle = handle

    def arrange(self, buckets: Sequence[Sequence[str]]) -> None:
        """Says which parameters lie in which bucket, and in what order: each parameter once. It is called when no exchange is under
        way; at first all are in one.
        """
        order, ends = self._laid(buckets, "strategy_arrange")
        check(library().ringo_strategy_arrange(self._handle, sizes(order), len(order), sizes(ends), len(ends)), "strategy_arrange")

    def _laid(self, parts: Sequence[Sequence[str]], operation: str) -> tuple[list[int], list[int]]:
        """The numbers of the parameters in order, and where each part ends in them."""
        unknown = {p for b in parts for p in b} - set(self.numbers)
        if unknown:
            raise InvalidError(f"{operation}: there is no parameter {', '.join(sorted(unknown))}", operation)
        return [self.numbers[p] for b in parts for p in b], np.cumsum([len(b) for b in parts]).tolist()

    def tune(self, layers: Sequence[Sequence[str]], plan: str = "exact", choices: str = "", steps: int = 0, profile: Any = None) -> None:
        """Has the library plan the buckets, as `ringo train` does, and with "auto" choose the strategy, by what the first steps take.

        layers are parameters as backward finishes them, those of a layer always in one bucket; all ranks give the same, when no exchange is
        under way. Each step is then ready for each layer, exchange for each of buckets, and step. choices and steps of an earlier run's
        report have the same done again without measuring; its profile has it chosen by that.
        """
        order, ends = self._laid(layers, "strategy_tune")
        text = json.dumps(profile).encode() if profile else None
        tuning = Tuning(ctypes.sizeof(Tuning), plan.encode(), choices.encode() or None, steps, text)
        check(library().ringo_strategy_tune(self._handle, byref(tuning), sizes(order), len(order), sizes(ends), len(ends)), "strategy_tune")
        self._layers = len(layers)

    _layers = 0

    def ready(self, layer: int) -> None:
        """Reports that the gradients of a layer, by its number in tune, are final: once per layer and step."""
        check(library().ringo_strategy_ready(self._handle, layer), "strategy_ready")

    def step(self) -> bool:
        """Ends a step, whose exchanges have all ended, and returns whether strategy or buckets are others from now on. With the other
        ranks it may measure and choose, which takes seconds.
        """
        return check(library().ringo_strategy_step(self._handle), "strategy_step") == 1

    def buckets(self) -> list[int]:
        """How many layers there are up to the end of each bucket."""
        ends = (c_size_t * self._layers)()
        n = check(library().ringo_strategy_buckets(self._handle, ends, self._layers), "strategy_buckets")
        return list(ends[:n])

    def report(self) -> dict[str, Any]:
        """What steps go on with ("strategy", "plan", "buckets"), "why", what was "predicted" and "measured", and "choices", "steps" and
        "profile", by which another run does the same: see ringo.h.
        """
        room = 0
        while True:
            text = ctypes.create_string_buffer(room + 1)
            length = check(library().ringo_strategy_report(self._handle, text, len(text)), "strategy_report")
            if length <= room:
                return dict(json.loads(text.value.decode()))
            room = length

    def start_exchange(self, bucket: int, gradients: Floats) -> Work:
        operand(gradients, "exchange", True)
        if gradients.dtype != np.float32:
            raise InvalidError(f"exchange: gradients of {gradients.dtype}, want float32", "exchange")
        return self.start(bucket, gradients.ctypes.data, gradients.size, gradients)

    def exchange(self, bucket: int, gradients: Floats) -> None:
        """Replaces the gradients of a bucket by their mean over the ranks, as far as it was sent."""
        self.start_exchange(bucket, gradients).wait()

    def start(self, bucket: int, address: int, n: int, operands: object) -> Work:
        """start_exchange of n float32 at an address; operands are kept until it has ended."""
        work = c_void_p()
        check(library().ringo_start_exchange(self._handle, bucket, address, n, byref(work)), "exchange")
        started = Work("exchange", work, operands)
        self.group._unfinished.add(started)
        return started

    def state_dict(self) -> dict[str, Floats]:
        """What is kept of each parameter, for checkpoints; empty where the strategy keeps nothing."""
        state = {}
        for p, n in self.lengths.items():
            values = np.empty(n, np.float32)
            try:
                check(library().ringo_residual(self._handle, self.numbers[p], values.ctypes.data, n), "residual")
            except InvalidError:
                return {}
            state[p] = values
        return state

    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Goes on with what state_dict gave."""
        for p, kept in state.items():
            if p not in self.numbers:
                raise InvalidError(f"set_residual: there is no parameter {p}", "set_residual")
            values = np.ascontiguousarray(kept, np.float32)
            check(library().ringo_set_residual(self._handle, self.numbers[p], values.ctypes.data, values.size), "set_residual")

    def close(self) -> None:
        """Ends it. Its group stays open."""
        handle, self._handle = self._handle, c_void_p()
        if handle and not self.group.job.left:
            check(library().ringo_strategy_close(handle), "strategy_close")
