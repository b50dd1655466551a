"""Selection of gradients on a device: residuals and thresholds there, and one copy of the selected entries to the host.

The entries are those that the library selects with the same threshold, and travel in the same
format: a rank with a device and a rank without one exchange with each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._staging import PAGE, Piece, Pool, Staged, viewed

DENSITY = 0.05  # distopt.DefaultSpars
EVERY = 16  # compress.DefaultEvery
LEAST = 1e-45  # the least magnitude above 0
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SELECTS = ("dlgs", "sparseTopK", "sparseThreshold", "lags", "dgc")  # strategies that a Selector has; a layer of lags is a bucket
SAMPLED = 100  # dgc estimates its threshold from one of so many values (compress.Sampled)

Names = tuple[str, ...]


@dataclass
class Threshold:
    """A bucket's threshold, with the entries sent too many, in multiples of k."""

    value: float = 0.0
    left: int = 0  # dlgs: steps until the next exact selection; dgc: the offset of the sample, below SAMPLED
    over: float = 0.0


class Selector:
    """What a strategy selects of gradients on a device. Residuals are of float32, by parameter."""

    def __init__(self, name: str, density: float, lengths: Mapping[str, int]) -> None:
        if not 0 <= density <= (1 if name != "sparseThreshold" else torch.finfo(torch.float32).max):
            raise ValueError(f"strategy {name}: density {density}: want a share above 0 and at most 1, or 0 for {DENSITY}")
        self.name, self.density = name, density or DENSITY
        self.lengths = dict(lengths)
        self.residuals: dict[str, Tensor] = {}  # views of those of buckets
        self.thresholds: dict[Names, Threshold] = {}
        self._buckets: dict[Names, Tensor] = {}

    def select(self, names: Names, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Adds gradients to the residual, and moves out of it what is sent: indices and values."""
        kept = self._residual(names, gradients)
        kept += gradients.view(-1)
        sums = kept.to(gradients.dtype)  # entries are selected in the type of the gradients
        index = self._index(self.thresholds[names], sums.abs().to(torch.float32))
        values = sums[index].to(torch.float32)
        kept[index] = 0 if gradients.dtype == torch.float32 else kept[index] - values
        return index, values

    def _residual(self, names: Names, gradients: Tensor) -> Tensor:
        """The residual of a bucket; parameters take theirs with them from other buckets."""
        if names not in self._buckets:
            for other in [b for b in self._buckets if set(b) & set(names)]:
                del self._buckets[other], self.thresholds[other]
            parts = [self.residuals.get(n, torch.zeros(self.lengths[n])).to(gradients.device) for n in names]
            self._buckets[names] = torch.cat(parts)
            self.residuals.update(zip(names, self._buckets[names].split([len(p) for p in parts])))
            self.thresholds.setdefault(names, Threshold())
        return self._buckets[names]

    def _index(self, threshold: Threshold, sizes: Tensor) -> Tensor:
        if self.name == "sparseThreshold":
            return at_least(sizes, self.density)
        k = self._count(len(sizes))
        if self.name == "dgc":
            threshold.left = (threshold.left + 1) % SAMPLED
            return sampled(sizes, k, threshold.left)
        if self.name == "dlgs" and threshold.left > 0:
            threshold.left -= 1
            index = at_least(sizes, threshold.value)
            if k <= 4 * len(index) <= 16 * k:
                return index
            self._deviates(threshold, min(4.0, len(index) / k))
        index, threshold.value = largest(sizes, k)
        threshold.left = EVERY - 1
        return index

    def _count(self, n: int) -> int:
        return min(n, max(1, math.ceil(self.density * n)))

    def _deviates(self, threshold: Threshold, share: float) -> None:
        threshold.over = min(16.0, max(-16.0, threshold.over + share - 1))

    def correct(self, names: Names, values: Tensor) -> None:
        """Adjusts the threshold after a step by the entries sent, on the host: compress/dlgs_corrected.go has the rule."""
        threshold = self.thresholds[names]
        if self.name != "dlgs" or not len(values):
            return
        share = len(values) / self._count(sum(self.lengths[n] for n in names))
        self._deviates(threshold, share)
        if threshold.left < 1 or not 0 < threshold.value < math.inf:
            return
        some = values[:: max(1, len(values) // 512)].abs()
        spread = min(1.0, float(some.median()) / threshold.value - 1)
        change = math.log2(share) / 2 + threshold.over / 2
        threshold.value *= 1 + change * spread if change >= 0 else 1 / (1 - change * spread)

    def state_dict(self) -> dict[str, Any]:
        """The residuals, by parameter, as those of the library are, and the thresholds, by bucket."""
        zeros = {n: torch.zeros(length) for n, length in self.lengths.items()}
        residuals = {n: self.residuals[n].to("cpu", copy=True) if n in self.residuals else z for n, z in zeros.items()}
        return {"residuals": residuals, "thresholds": [(list(names), [t.value, t.left, t.over]) for names, t in self.thresholds.items()]}

    def load_state_dict(self, residuals: Mapping[str, Tensor], thresholds: Sequence[Any]) -> None:
        """Goes on with them: buckets that thresholds do not name are selected exactly at first."""
        self._buckets = {}
        self.residuals = {n: v.reshape(-1).to(torch.float32) for n, v in residuals.items()}
        self.thresholds = {tuple(names): Threshold(*values) for names, values in thresholds}


def at_least(sizes: Tensor, least: float) -> Tensor:
    """The indices of magnitudes of at least so much, without zeros. Those that are no numbers are among them: the library reports them."""
    return torch.nonzero(~(sizes < max(least, LEAST))).view(-1)


def largest(sizes: Tensor, k: int) -> tuple[Tensor, float]:
    """The indices of the k largest, ascending, lower ones first among equals, and the k-th largest."""
    least = torch.topk(sizes, k).values[-1]
    index = torch.nonzero(~(sizes < least)).view(-1)
    if len(index) > k:
        equal = sizes[index] == least
        index = index[~equal | (equal.cumsum(0) <= k - (~equal).sum())]
    return index, float(least)


def sampled(sizes: Tensor, k: int, turn: int) -> Tensor:
    """The indices of about the k largest, k/4 to 2k of them, by a threshold that is estimated from a part of the values (Lin et al. 2018)."""
    sample = sizes[turn::SAMPLED]
    if len(sizes) < SAMPLED * SAMPLED:
        return largest(sizes, k)[0]
    index = at_least(sizes, float(torch.topk(sample, math.ceil(k * len(sample) / len(sizes))).values[-1]))
    if 4 * len(index) < k:
        return largest(sizes, k)[0]
    return index[largest(sizes[index], k)[0]] if len(index) > 2 * k else index


class Selected(Piece):
    """A bucket's exchange by what a Selector selects. The library gets the entries in a vector of zeros, and sends what is not zero."""

    def __init__(self, selector: Selector, names: Names, staged: Staged, arguments: Sequence[Any], pool: Pool) -> None:
        gradients, n, bucket = arguments
        device, down = staged.device, staged.device.down
        chosen: list[Tensor] = []
        down.wait_event(staged.ready)
        device.run(down, lambda: chosen.extend(selector.select(names, gradients)))
        down.record_event().synchronize()
        index, values = chosen
        self._selector, self._names, self._pool = selector, names, pool
        entries = -(-4 * n // PAGE) * PAGE  # where they begin: indices are of 8 bytes
        self._memory = pool.take(device, entries + 12 * len(index))
        self._sum = self._memory[: 4 * n].view(torch.float32)
        self._entries = [viewed(self._memory, index, entries), viewed(self._memory, values, entries + 8 * len(index))]
        for host, t in zip(self._entries, (index, values)):
            device.run(down, lambda h=host, t=t: h.copy_(t, non_blocking=True))
        self.copied = down.record_event()
        self.back = [(gradients, self._sum)]
        self.arguments, self.work = [self._sum, n, bucket], None

    def ready(self) -> None:
        super().ready()
        index, values = self._entries
        self._sum.zero_()
        self._sum[index] = values
        self._selector.correct(self._names, values)
