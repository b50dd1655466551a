"""Gradients that are compressed: strategies by name, with what they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_void_p

import numpy as np
import numpy.typing as npt

from ._arrays import operand
from ._errors import InvalidError
from ._group import Group, sizes
from ._library import check, library
from ._work import Work

Floats = npt.NDArray[np.float32]


class Strategy:
    """Averages gradients over a group by a strategy of `ringo train`: "dlgs", "dgc", "lags", "sparseTopK", "sparseThreshold", "int8", "fp16", "bf16", "fp32".

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
        unknown = {p for b in buckets for p in b} - set(self.numbers)
        if unknown:
            raise InvalidError(f"strategy_arrange: there is no parameter {', '.join(sorted(unknown))}", "strategy_arrange")
        order = [self.numbers[p] for b in buckets for p in b]
        ends = np.cumsum([len(b) for b in buckets]).tolist()
        check(library().ringo_strategy_arrange(self._handle, sizes(order), len(order), sizes(ends), len(ends)), "strategy_arrange")

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
