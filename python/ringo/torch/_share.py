"""Shares of a global batch by the speed of each rank, for jobs with GPUs on some ranks only."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import torch
from torch.utils.data import Sampler

from . import _times
from ._process_group import ProcessGroup
from ._tensors import TYPES
from ._work import waited

ROUNDS = 2  # of measured steps: the rate of a device depends on the size of its batch
SETTLING = 4  # the first steps / SETTLING of a round are not measured


class BatchShare:
    """BatchShare divides a global batch among the ranks by their speed. batch_share makes one.

    size is the number of samples of this rank in the current step, weight the factor of its mean loss: the ranks' mean of the weighted
    gradients is the mean over all samples. step ends a step. In the first round of measured steps ranks have equal shares.
    sizes has the latest share of each rank, rates the measured samples per second, None before.
    """

    def __init__(self, batch: int, group: ProcessGroup, steps: int, ahead: int) -> None:
        self.batch, self.steps, self.ahead = batch, steps, ahead
        self.sizes = divided(batch, [1.0] * group.size())
        self.rates: list[float] | None = None
        self._rounds = [self.sizes]  # shares of each round of steps + ahead batches; the last ones stay
        self._group = group
        self._step = self._drawn = 0  # steps that have ended, and batches that the sampler has yielded
        self._parts: dict[int, list[int]] = {}  # sizes of the batches that were drawn for steps to come
        self._drawing = 0  # the number of the sampler's last iterator
        self._seconds: list[float] = []  # a sample, by step
        self._times = _times.Steps()
        self._times.begin()

    @property
    def size(self) -> int:
        return self._sizes()[self._group.rank()]

    @property
    def weight(self) -> float:
        sizes = self._sizes()
        return sizes[self._group.rank()] * len(sizes) / sum(sizes)

    def _sizes(self) -> list[int]:
        return self._parts.get(self._step) or self.sizes_of(self._step)

    def sizes_of(self, number: int) -> list[int]:
        """The sizes of a batch, by its number from 0. Errors: they are not measured yet."""
        turn = min(number // (self.steps + self.ahead), ROUNDS)
        if turn >= len(self._rounds):
            raise RuntimeError(
                f"batch_share: batch {number} is drawn in step {self._step + 1}, before its shares are measured in {self.steps} steps: "
                "pass ahead=N, the number of batches that the loader draws in advance (num_workers times prefetch_factor), and call step() after each"
            )
        return self._rounds[turn]

    def step(self) -> None:
        """Ends a step. After each round all ranks agree on the shares, and after the last one rank 0 prints them."""
        measured = self._step - (len(self._rounds) - 1) * (self.steps + self.ahead)
        if 0 <= measured < self.steps and len(self._rounds) <= ROUNDS:
            self._seconds.append(self._times.seconds() / self.size)
        self._parts.pop(self._step, None)
        self._step += 1
        if len(self._seconds) == self.steps:
            self._agree()
        self._times.begin(len(self._rounds) <= ROUNDS)

    def _agree(self) -> None:
        """Computes the shares of all ranks, from the same rates on each."""
        mine, self._seconds = 1 / median(self._seconds[self.steps // SETTLING :]), []
        self.rates = gathered(self._group, mine, torch.float64)
        self.sizes = divided(self.batch, self.rates)
        self._rounds.append(self.sizes)
        if self._group.rank() == 0 and len(self._rounds) > ROUNDS:
            each = ", ".join(f"rank {r} {size} ({rate:.4g} samples/s)" for r, (size, rate) in enumerate(zip(self.sizes, self.rates)))
            print(f"batch_share: global batch {self.batch} from step {ROUNDS * (self.steps + self.ahead) + 1}: {each}", flush=True)

    def sampler(self, data: Any, shuffle: bool = True, seed: int = 0) -> ShareSampler:
        """The batches of this rank, for DataLoader(batch_sampler=...). data is a data set or its length, equal on all ranks."""
        samples = data if isinstance(data, int) else len(data)
        agreed(self._group, "batch_share: sampler", {"a data set of length": samples, "shuffle": int(shuffle), "seed": seed})
        if samples < self._group.size():
            raise ValueError(f"batch_share: sampler: {samples} samples: want at least one for each of {self._group.size()} ranks")
        return ShareSampler(self, samples, shuffle, seed, self._group.rank())


class ShareSampler(Sampler):  # type: ignore[misc]
    """ShareSampler yields the indices of this rank's part of each global batch. All parts together have each sample once per epoch.

    The last global batch has the remaining samples, or these and a whole batch if they are fewer than the ranks.
    """

    def __init__(self, share: BatchShare, samples: int, shuffle: bool, seed: int, rank: int) -> None:
        self._share, self._samples, self._shuffle, self._seed, self._rank = share, samples, shuffle, seed, rank
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the order of an epoch, equally on all ranks."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._ends())

    def _ends(self) -> list[int]:
        """The ends of the global batches."""
        batch = self._share.batch
        ends = [*range(batch, self._samples, batch), self._samples]
        if len(ends) > 1 and ends[-1] - ends[-2] < len(self._share.sizes):
            del ends[-2]
        return ends

    def __iter__(self) -> Iterator[list[int]]:
        share, order = self._share, torch.arange(self._samples)
        if self._shuffle:
            order = torch.randperm(self._samples, generator=torch.Generator().manual_seed(self._seed + self._epoch))
        share._drawn, share._parts = share._step, {}
        share._drawing = mine = share._drawing + 1
        first = 0
        for end in self._ends():
            if share._drawing != mine:
                raise RuntimeError(
                    f"batch_share: batch {share._drawn} is drawn in step {share._step + 1} by an iterator that began before another one of this "
                    "share: end the first iterator before the second one begins, or make a batch_share for each loader"
                )
            number = share._drawn
            sizes = share.sizes_of(number)
            if end - first != share.batch:
                sizes = divided(end - first, sizes)
            share._parts[number] = sizes
            share._drawn += 1
            begin = first + sum(sizes[: self._rank])
            yield order[begin : begin + sizes[self._rank]].tolist()
            first = end


def batch_share(batch: int, group: Any = None, steps: int = 8, ahead: int = 0) -> BatchShare:
    """Divides a global batch among ranks of different speed:

        share = ringo.torch.batch_share(256)
        loader = DataLoader(data, batch_sampler=share.sampler(data))
        for x, y in loader:
            (share.weight * loss(model(x), y)).backward()     # loss: a mean over samples
            optimizer.step(); optimizer.zero_grad()
            share.step()

    Two rounds of steps are measured, the first one with equal shares. A rank's time of a step ends when its last gradient is computed, without
    the waits for other ranks: put other reductions, such as that of the loss, after step(). ahead is the number of batches that the loader
    draws in advance. All ranks call it with the same values.
    """
    group = group or torch.distributed.distributed_c10d._get_default_group()
    if not isinstance(group, ProcessGroup):
        raise ValueError('batch_share: the group is not of backend "ringo": begin with init_process_group("ringo")')
    batch, steps, ahead = (operator.index(n) for n in (batch, steps, ahead))
    agreed(group, "batch_share", {"a global batch of": batch, "steps": steps, "ahead": ahead})
    if batch < group.size() or steps < 1 or ahead < 0:
        raise ValueError(
            f"batch_share: global batch {batch}, steps {steps}, ahead {ahead}: "
            f"want a sample for each of {group.size()} ranks, at least one step, and ahead of at least 0"
        )
    return BatchShare(batch, group, steps, ahead)


def divided(batch: int, rates: Sequence[float]) -> list[int]:
    """Whole shares of a batch that are proportional to rates, at least 1 each: by largest remainders, lower ranks first among equals."""
    exact = [batch * rate / sum(rates) for rate in rates]
    shares = [max(1, int(e)) for e in exact]
    while sum(shares) > batch:  # ranks with less than one sample have one
        shares[shares.index(max(shares))] -= 1
    order = sorted(range(len(rates)), key=lambda r: (shares[r] - exact[r], r))
    for r in order[: batch - sum(shares)]:
        shares[r] += 1
    return shares


def gathered(group: ProcessGroup, value: float, dtype: torch.dtype) -> list[Any]:
    """The value of each rank."""
    mine, every = torch.tensor([value], dtype=dtype), torch.empty(group.size(), dtype=dtype)
    waited(group._start("allgather", every, mine, 1, TYPES[dtype]))
    return every.tolist()  # type: ignore[no-any-return]


def agreed(group: ProcessGroup, operation: str, values: dict[str, int]) -> None:
    """Reports a value that is not equal on all ranks, with those of two ranks."""
    for name, value in values.items():
        every = gathered(group, value, torch.int64)
        other = next((r for r, v in enumerate(every) if v != every[0]), None)
        if other is not None:
            raise ValueError(f"{operation}: rank 0 has {name} {every[0]}, rank {other} has {name} {every[other]}: pass the same to all ranks")
