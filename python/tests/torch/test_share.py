"""Shares of a global batch by the speed of each rank: gradients, samples, agreement, errors."""

from __future__ import annotations

import contextlib
import io
import time
import unittest
from collections.abc import Callable

import ringo.torch
import torch
import torch.distributed as dist
from forked import ranks
from ringo.torch import _staging, _times
from ringo.torch._share import divided
from simulated import force
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

SAMPLES = 97  # the last global batch of 18 has 7


def net() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3))


def data() -> TensorDataset:
    g = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(SAMPLES, 6, generator=g), torch.randint(3, (SAMPLES,), generator=g))


def quiet(body: Callable[..., None], *arguments: object) -> Callable[[], None]:
    """body without its prints."""

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            body(*arguments)

    return run


def seen(batches: list[list[int]]) -> list[list[int]]:
    """The indices of each global batch, of all ranks."""
    every: list = [None] * dist.get_world_size()
    dist.all_gather_object(every, batches)
    assert len({len(b) for b in every}) == 1, every
    return [[i for of_rank in every for i in of_rank[k]] for k in range(len(batches))]


def twin(kind: str) -> None:
    """The averaged gradient of unequal shares is that of one process with the whole batch."""
    n, batches = dist.get_world_size(), []
    share = ringo.torch.batch_share(18, steps=1)
    share.step(), share.step()
    share._rounds[2] = divided(18, [1.0 + 3 * r for r in range(n)])
    model, alone = net(), net()
    ddp = DistributedDataParallel(model) if kind != "optimizer" else model
    optimizer: object = torch.optim.SGD(model.parameters(), lr=0.5)
    if kind == "hook":
        ringo.torch.hook("fp32").register(ddp)
    elif kind == "optimizer":
        optimizer = ringo.torch.DistributedOptimizer(optimizer, model.named_parameters(), "fp32")
    own = torch.optim.SGD(alone.parameters(), lr=0.5)
    sampler, rows = share.sampler(data()), data()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(rows, batch_sampler=sampler):
            assert abs(share.weight - share.size * n / sum(share._sizes())) < 1e-12 and len(x) == share.size
            (share.weight * nn.functional.cross_entropy(ddp(x), y)).backward()
            batches.append(len(x))
            optimizer.step()
            optimizer.zero_grad()
            share.step()
        for whole in seen(list(sampler)):  # the same epoch, by one process
            x, y = rows[whole]
            nn.functional.cross_entropy(alone(x), y).backward()
            own.step()
            own.zero_grad()
        for p, q in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
    assert len(set(batches)) > 1


def once() -> None:
    """Each sample is in one batch of an epoch, before and after the shares are measured, and after an epoch that was left."""
    n = dist.get_world_size()
    for samples, batch in ((SAMPLES, 18), (91, 18), (n, 18), (36, 18), (37, 18), (5, n)):
        share = ringo.torch.batch_share(batch, steps=3)
        sampler = share.sampler(samples)
        next(iter(sampler))
        for epoch in range(4):
            sampler.set_epoch(epoch)
            mine = []
            for part in sampler:
                assert len(part) == share.size > 0
                time.sleep(0.002 * dist.get_rank() * len(part))
                mine.append(part)
                share.step()
            whole = [i for b in seen(mine) for i in b]
            assert sorted(whole) == list(range(samples)) and len(mine) == len(sampler), (samples, batch, whole)
    assert list(share.sampler(6, shuffle=False)) != list(share.sampler(6, seed=4)) or batch == 1


class Slow(nn.Module):
    """A layer that takes a time for each sample."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds * len(x))
        return x


def measured() -> tuple[list[int], str, list[float]]:
    """Rank 1 takes 6 ms for a sample, the other ranks 2 ms."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        share = ringo.torch.batch_share(20, steps=8)
        model = nn.Sequential(Slow(0.006 if dist.get_rank() == 1 else 0.002), nn.BatchNorm1d(6), net())
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.0002)
        for _ in range(18):
            nn.functional.mse_loss(ddp(torch.randn(share.size, 6)), torch.zeros(share.size, 3)).mul(share.weight).backward()
            share.step()
    assert sum(share.sizes) == 20 and share.rates is not None
    return share.sizes, out.getvalue(), share.rates


def computed() -> None:
    """A step ends when the operand of its last reduction is computed, although pieces wait for pinned memory, and for rank 1."""
    x = torch.ones(_staging.limit())
    if dist.get_rank() == 1:
        time.sleep(0.6)
    steps = _times.Steps()
    steps.begin()
    dist.all_reduce(x)
    assert dist.get_rank() == 1 or steps.seconds() < 0.3


def two() -> None:
    """Two shares in a step have the times of the whole step, whichever step() comes first."""
    shares = [ringo.torch.batch_share(4, steps=3) for _ in range(2)]
    for _ in range(3):
        time.sleep(0.05)
        dist.all_reduce(torch.ones(3))
        for share in shares:
            share.step()
    for share in shares:
        assert share.rates is not None and all(1 < rate < 2 / 0.05 for rate in share.rates), share.rates


def counted_once() -> None:
    """Operations that are one work are one wait, and can be asked whether they have ended."""
    group, x, y = dist.group.WORLD, torch.ones(3), torch.ones(5)
    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), 0)
        time.sleep(0.2)
    steps = _times.Steps()
    steps.begin()
    begin = time.perf_counter()
    work = group.allreduce_coalesced([x, y])
    if dist.get_rank() == 0:
        assert not work.is_completed()
        dist.send(torch.empty(1), 1)
    work.wait()
    assert 0 < steps._waited < time.perf_counter() - begin
    assert x.tolist() == [2] * 3 and y.tolist() == [2] * 5


def differ() -> str:
    try:
        ringo.torch.batch_share(256 if dist.get_rank() < dist.get_world_size() - 1 else 128)
    except ValueError as fault:
        return str(fault)
    return ""


def refused() -> None:
    r, n = dist.get_rank(), dist.get_world_size()
    share = ringo.torch.batch_share(8, steps=3)
    for call, text in (
        (lambda: ringo.torch.batch_share(1), f"global batch 1, steps 8, ahead 0: want a sample for each of {n} ranks"),
        (lambda: ringo.torch.batch_share(8, ahead=-1), "ahead of at least 0"),
        (lambda: ringo.torch.batch_share(8, group=object()), 'not of backend "ringo"'),
        (lambda: share.sampler(1), "1 samples: want at least one for each"),
        (lambda: share.sampler(40 + r), f"rank 0 has a data set of length 40, rank 1 has a data set of length 41"),
        (lambda: list(zip(*[share.sampler(40)] * 2)), "batch 1 is drawn in step 1 by an iterator that began before another one of this share"),
        (lambda: list(share.sampler(40)), "batch 3 is drawn in step 1, before its shares are measured in 3 steps: pass ahead=N"),
    ):
        try:
            call()
        except (ValueError, RuntimeError) as fault:
            assert text in str(fault), fault
        else:
            raise AssertionError(text)
    share = ringo.torch.batch_share(8, steps=2, ahead=4)
    loader = DataLoader(TensorDataset(torch.arange(40)), batch_sampler=share.sampler(40), num_workers=2)
    got = []
    for (x,) in loader:
        assert len(x) == share.size
        got.append(x.tolist())
        share.step()
    assert sorted(i for b in seen(got) for i in b) == list(range(40))


class Share(unittest.TestCase):
    def test_gradients_are_those_of_the_whole_batch(self) -> None:
        for n in (2, 3):
            for kind in ("ddp", "hook", "optimizer"):
                with self.subTest(ranks=n, kind=kind):
                    ranks(n, quiet(twin, kind))
        ranks(2, quiet(twin, "ddp"), prepare=lambda r: force(0.0005, 100) if r else setattr(_staging, "CHUNK", 100))

    def test_each_sample_once(self) -> None:
        for n in (1, 2, 3):
            ranks(n, quiet(once))

    def test_a_slow_rank_has_less(self) -> None:
        for n in (2, 3):
            results = list(ranks(n, measured).values())
            sizes, text, rates = results[0][0], *sorted(results, key=lambda r: -len(r[1]))[0][1:]
            self.assertTrue(all(r[0] == sizes and r[2] == rates for r in results), results)
            self.assertEqual(sum(bool(r[1]) for r in results), 1)  # printed once
            for r, size in enumerate(sizes):
                self.assertIn(f"rank {r} {size} ({rates[r]:.4g} samples/s)", text)
            self.assertLess(rates[1], 0.6 * rates[0], rates)
            self.assertLess(sizes[1], sizes[0], sizes)

    def test_what_counts_as_computation(self) -> None:
        ranks(2, computed, prepare=lambda _: force(chunk=4096))
        ranks(2, counted_once)
        ranks(2, quiet(two))

    def test_divided(self) -> None:
        for rates, want in (([1, 1, 1], [4, 3, 3]), ([1, 3], [3, 7]), ([1e-9, 1, 1], [1, 5, 4]), ([1e9, 1, 1, 1], [7, 1, 1, 1])):
            self.assertEqual(divided(10, rates), want)

    def test_ranks_that_disagree(self) -> None:
        for text in ranks(3, differ).values():
            self.assertIn("rank 0 has a global batch of 256, rank 2 has a global batch of 128", text)

    def test_errors(self) -> None:
        ranks(2, quiet(refused))


if __name__ == "__main__":
    unittest.main()
