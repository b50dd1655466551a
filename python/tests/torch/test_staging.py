"""Operations on tensors of a device, simulated on the CPU: values, order, memory, lost ranks."""

from __future__ import annotations

import os
import signal
import time
import unittest
from unittest import mock

import ringo
import ringo.torch
import torch
import torch.distributed as dist
from forked import ranks
from ringo.torch import _process_group, _staging, _start
from ringo.torch._exchanger import Exchanger
from ringo.torch._select import Selector
from simulated import HERE, Stream, direct, force
from test_backend import any_loop, compressed, ddp, groups, joined, messages, moves, objects, reductions, same, single
from test_planned import any_loop as planned_loop
from test_planned import measured_hook
from torch import nn

KINDS = (torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.bool)


def everything() -> None:
    for body in (reductions, moves, single, objects, messages, groups):
        body()


def operands(kind: torch.dtype, n: int) -> torch.Tensor:
    return torch.randn(n) if kind == torch.float32 else torch.randint(0, 2 if kind == torch.bool else 60, (n,)).to(kind)


def results(kind: torch.dtype, n: int) -> list[torch.Tensor]:
    """What each operation makes of the same operands."""
    r, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(r)
    x, parts = operands(kind, n), [operands(kind, n) for _ in range(size)]
    reduced, shared, rooted, mine = (x.clone() for _ in range(4))
    every, turned, whole = [torch.zeros_like(x) for _ in range(size)], [torch.zeros_like(x) for _ in range(size)], x.new_zeros(size * n)
    op = dist.ReduceOp.MAX if kind == torch.bool else dist.ReduceOp.SUM
    dist.all_reduce(reduced, op)
    dist.broadcast(shared, size - 1)
    dist.reduce(rooted, 0, op)
    dist.reduce_scatter(mine, parts, op)
    dist.all_gather(every, x)
    dist.all_gather_into_tensor(whole, x) if hasattr(dist, "all_gather_into_tensor") else None
    dist.all_to_all(turned, parts)
    gathered = [torch.zeros_like(x) for _ in range(size)] if r == 0 else None
    dist.gather(x, gathered)
    scattered = torch.zeros_like(x)
    dist.scatter(scattered, parts if r == 0 else None)
    return [reduced, shared, rooted, mine, *every, whole, *turned, *(gathered or ()), scattered]


def same_bits() -> None:
    """Operations through pinned memory have the bits of those on tensors of the CPU, on all ranks or on some."""
    for kind in KINDS:
        for n in (0, 1, 37):
            with direct():
                want = results(kind, n)
            got = results(kind, n)
            if dist.get_rank() % 2:
                with direct():
                    mixed = results(kind, n)
            else:
                mixed = results(kind, n)
            for w, g, m in zip(want, got, mixed):
                same(g, w)
                same(m, w)


def numbers() -> list[list[int]]:
    return [t.tolist() for t in results(torch.int64, 37)]


def late() -> None:
    """An operation begins when the stream has produced its operand, and what the stream does after wait sees the result."""
    r, n = dist.get_rank(), dist.get_world_size()
    stream = HERE.stream = Stream("current")
    x, y, seen = torch.zeros(1000), torch.zeros(1000), []

    def produce(t: torch.Tensor, value: float) -> None:
        stream.put(lambda: (time.sleep(0.05), t.fill_(value)))

    produce(x, r + 1.0)
    first = dist.all_reduce(x, async_op=True)
    produce(y, r + 10.0)
    second = dist.all_reduce(y, async_op=True)  # in flight together
    first.wait()
    stream.put(lambda: seen.append(x.clone()))
    second.wait()
    stream.put(lambda: seen.append(y.clone()))
    produce(x, float(r))
    dist.broadcast(x, 1)
    stream.put(lambda: seen.append(x.clone()))
    produce(x, float(r))
    if r == 0:
        dist.send(x, 1)
    elif r == 1:
        dist.recv(x, 0)  # the message may not overwrite what the stream still fills
        stream.put(lambda: seen.append(x.clone()))
    produce(y, float(r))
    future = dist.all_reduce(y, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    same(future.wait(), torch.full((1000,), float(n * (n - 1))))
    stream.record_event().synchronize()
    wants = [sum(range(1, n + 1)), sum(range(10, n + 10)), 1, *([0] if r == 1 else [])]
    for got, want in zip(seen, wants):
        same(got, torch.full((1000,), float(want)))
    assert len(seen) == len(wants)
    HERE.stream = None


def bounded() -> None:
    """A long operation, many at once and operations that are never waited for use no more pinned memory than the limit."""
    group, limit = dist.group.WORLD, _staging.limit()
    x, many = torch.ones(limit), [torch.ones(3000) for _ in range(300)]
    dist.all_reduce(x)
    works = [dist.all_reduce(t, async_op=True) for t in many]
    works[-1].wait()
    for t in many:
        dist.all_gather([torch.empty_like(t) for _ in range(dist.get_world_size())], t)
    pool = group._lane.pool
    assert 0 < pool.peak <= limit, (pool.peak, limit)
    dist.barrier()
    assert pool.kept <= limit
    same(x, torch.full_like(x, dist.get_world_size()))
    same(many[0], torch.full((3000,), float(dist.get_world_size())))


def dies() -> str:
    """Rank 1 is killed while pieces of a long operation travel."""
    x = torch.ones(1 << 20)
    dist.all_reduce(x)
    work = dist.all_reduce(x, async_op=True)
    if dist.get_rank() == 1:
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        work.wait()
        while True:
            dist.all_reduce(x)
    except RuntimeError as fault:
        assert time.monotonic() - began < 10
        dist.destroy_process_group()
        return str(fault)


def refused() -> None:
    """Errors name operation, rank and tensors; what fails on the device ends the group."""
    r = dist.get_rank()
    for call, text in (
        (lambda: dist.all_reduce(torch.empty(3, 4, device="meta")), f"allreduce: rank {r}: (3, 4) float32 on meta"),
        (lambda: dist.send(torch.empty(2, device="meta"), 1 - r), f"send: rank {r}: (2,) float32 on meta"),
        (lambda: dist.recv(torch.empty(2, device="meta"), 1 - r), f"receive: rank {r}: (2,) float32 on meta"),
    ):
        try:
            call()
        except ValueError as fault:
            assert text in str(fault), fault
        else:
            raise AssertionError(text)
    backend = "cpu:ringo,cuda:nccl"  # as a variable of PyTorch's caller has it
    try:
        _start.create(None, None)
    except ValueError as fault:
        assert f'"{backend}"' in str(fault) and "without cuda:nccl" in str(fault), fault
    else:
        raise AssertionError(backend)
    with mock.patch.object(_process_group, "reduced", side_effect=_process_group.OutOfMemory("no memory")):
        try:
            dist.all_reduce(torch.ones(5, 2))
        except RuntimeError as fault:
            assert f"allreduce: rank {r}: (5, 2) float32 on cpu: no memory" in str(fault), fault
        else:
            raise AssertionError("it had no memory")
    assert ringo.torch.device() == torch.device("cpu")
    device = force()
    device.pinned = lambda size: (_ for _ in ()).throw(RuntimeError("out of memory"))
    x = torch.ones(5, 2)
    for _ in range(2):
        try:
            dist.all_reduce(x)
        except RuntimeError as fault:
            assert f"allreduce: rank {r}: (5, 2) float32 on cpu: out of memory" in str(fault), fault
        else:
            raise AssertionError("it had no memory")


def selected() -> None:
    """What is selected on a device, and its residual, have the bits of the library's selection with the same threshold."""
    group, n = dist.group.WORLD._group, 5000
    for name, density in (("sparseThreshold", 0.5), ("sparseTopK", 0.02), ("sparseTopK", 1.0), ("lags", 0.02), ("dlgs", 0.01)):
        library, device = ringo.Strategy(group, name, {"a": n}, density), Selector(name, density, {"a": n})
        for _ in range(1 if name == "dlgs" else 5):  # dlgs' later steps have thresholds of their own
            gradients = (torch.randn(n) * 8).round() / 8  # with zeros and equal ones
            want, got = gradients.clone(), torch.zeros(n)
            index, values = device.select(("a",), gradients)
            got[index] = values
            library.exchange(0, want.numpy())
            assert torch.equal(got, want) and torch.equal(index, index.sort().values), name
            assert torch.equal(device.residuals["a"], torch.from_numpy(library.state_dict()["a"])), name


def of_halves() -> list[list[int]]:
    """The bits that fp16 and bf16 make of gradients."""
    values, out = [torch.randn(3000, generator=torch.Generator().manual_seed(s)) for s in range(3)], []
    for name in ("fp16", "bf16"):
        w = nn.Parameter(torch.zeros(len(values[0])))
        optimizer = ringo.torch.DistributedOptimizer(torch.optim.SGD([w], lr=1.0), [("w", w)], name)
        for x in values:
            w.grad = x * (1 + dist.get_rank())
            optimizer.step()
            out.append(w.grad.view(torch.int32).tolist())
    return out


def cast() -> None:
    """The device casts as the library does: the result of two ranks with equal values is what they sent, with numbers that lie between two halves."""
    halves = torch.arange(0x7800, dtype=torch.int16).view(torch.float16).float()  # all below 2**15
    between = (halves[1:] + halves[:-1]) / 2
    values = torch.cat([halves, between, torch.nextafter(between, halves[1:]), torch.nextafter(between, halves[:-1]), torch.randn(5000) * 1e-6])
    values = 2 * torch.cat([values, -values])
    group = dist.group.WORLD
    for name in ("fp16", "bf16"):
        library, want = ringo.Strategy(group._group, name, {"a": len(values)}), values.clone()
        library.exchange(0, want.numpy())
        exchanger, got = Exchanger(name), values.clone()
        exchanger.open(group, [("a", nn.Parameter(torch.zeros(len(values))))])
        assert exchanger._half is not None
        exchanger.exchange(["a"], got).wait()
        assert torch.equal(got.view(torch.int32), want.view(torch.int32)), name
    got[0] = float("inf")
    exchanger.exchange(["a"], got).wait()
    try:
        exchanger.exchange(["a"], got)
    except ValueError as fault:
        assert "a mean gradient of a was not finite" in str(fault)
    else:
        raise AssertionError("infinite gradients are no error")


def by_sample() -> None:
    """dgc selects about the share that is asked for, and loses nothing."""
    for n in (500, 30000):
        device, total, sent = Selector("dgc", 0.01, {"a": n}), torch.zeros(n), torch.zeros(n)
        for _ in range(20):
            gradients = torch.randn(n)
            index, values = device.select(("a",), gradients)
            total += gradients
            sent[index] += values
            assert 0.01 * n / 4 <= len(index) <= 2 * 0.01 * n, len(index)
        torch.testing.assert_close(sent + device.residuals["a"], total)


def reused() -> None:
    """dlgs sends about the share that is asked for between its exact selections, loses nothing, and goes on from a checkpoint."""
    n, sent = 20000, []
    one, total, all_sent = Selector("dlgs", 0.01, {"a": n, "b": n}), torch.zeros(n), torch.zeros(n)
    for step in range(100):
        gradients = torch.randn(n)
        if step == 50:
            two = Selector("dlgs", 0.01, {"a": n, "b": n})
            two.load_state_dict(**{k: v for k, v in one.state_dict().items()})
            one = two
        index, values = one.select(("a",), gradients)
        one.correct(("a",), values)
        total += gradients
        all_sent[index] += values
        sent.append(len(index))
    torch.testing.assert_close(all_sent + one.residuals["a"], total)
    assert 0.5 * 200 < sum(sent[20:]) / 80 < 2 * 200, sent
    one.select(("a", "b"), torch.zeros(2 * n))  # another bucket takes the residual with it
    assert set(one.thresholds) == {("a", "b")} and not one.residuals["b"].any() and one.residuals["a"].any()


def halves() -> None:
    """Gradients of 16 bits are selected in their own type, with a residual of float32."""
    for dtype in (torch.float16, torch.bfloat16):
        selector, total, sent = Selector("sparseTopK", 0.05, {"a": 2000}), torch.zeros(2000), torch.zeros(2000)
        for _ in range(10):
            gradients = torch.randn(2000).to(dtype)
            index, values = selector.select(("a",), gradients)
            assert torch.equal(values, values.to(dtype).float()) and selector.residuals["a"].dtype == torch.float32
            total += gradients.float()
            sent[index] += values
        torch.testing.assert_close(sent + selector.residuals["a"], total)
    model = nn.Linear(50, 10).to(torch.bfloat16)
    optimizer = ringo.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), "dlgs", 0.1)
    for _ in range(4):
        model.zero_grad()
        for p in model.parameters():
            p.grad = torch.randn(p.shape).to(p.dtype)
        optimizer.step()
    every = [torch.empty_like(model.weight) for _ in range(dist.get_world_size())]
    dist.all_gather(every, model.weight.detach())
    assert all(torch.equal(w, every[0]) for w in every)


class Staging(unittest.TestCase):
    def test_every_operation(self) -> None:
        for chunk in (1, 64, 1 << 20):
            with self.subTest(chunk=chunk):
                ranks(2, everything, prepare=lambda _: force(chunk=chunk))
        ranks(3, everything, prepare=lambda _: force(0.0002, 64))
        ranks(2, joined, prepare=lambda _: force())

    def test_same_bits(self) -> None:
        for n in (2, 4):
            for chunk in (1, 50, 1 << 20):
                with self.subTest(ranks=n, chunk=chunk):
                    ranks(n, same_bits, prepare=lambda r: force(chunk=chunk))

    def test_one_rank_has_a_device(self) -> None:
        """Ranks without one cut operations in the same places."""
        for n in (2, 4):
            one = ranks(n, numbers, prepare=lambda r: force(chunk=16) if r == 0 else setattr(_staging, "CHUNK", 16))
            self.assertEqual(one, ranks(n, numbers))

    def test_streams(self) -> None:
        for n, chunk in ((2, 1 << 20), (3, 1000)):
            ranks(n, late, prepare=lambda _: force(0.01, chunk))

    def test_pinned_memory_is_bounded(self) -> None:
        ranks(2, bounded, prepare=lambda _: force(chunk=4096))

    def test_training(self) -> None:
        ranks(2, ddp, prepare=lambda _: force(0.001, 20000))

    def test_strategies(self) -> None:
        """Compressed gradients lose nothing, by hooks and by DistributedOptimizer, with a plan and without."""
        ranks(2, compressed, prepare=lambda _: force(0.0005, 5000))
        ranks(2, compressed, prepare=lambda r: force(0.0005, 5000) if r else setattr(_staging, "CHUNK", 5000))
        ranks(3, any_loop, prepare=lambda _: force())
        for body in (planned_loop, measured_hook):
            ranks(2, body, prepare=lambda _: force())

    def test_selection(self) -> None:
        ranks(1, selected)
        by_sample()
        reused()
        ranks(2, halves, prepare=lambda _: force())

    def test_halves(self) -> None:
        """fp16 and bf16 on devices have the bits of the library, for any number of ranks, with a device or without."""
        ranks(2, cast, prepare=lambda _: force())
        for n in (2, 3):
            want = ranks(n, of_halves)
            self.assertEqual(ranks(n, of_halves, prepare=lambda _: force(0.0005)), want)
            self.assertEqual(ranks(n, of_halves, prepare=lambda r: force(0.0005) if r == 0 else None), want)

    def test_a_dead_rank_is_named(self) -> None:
        for rank, fault in ranks(3, dies, dead=(1,), prepare=lambda _: force(0.0005, 1 << 14)).items():
            with self.subTest(rank=rank):
                self.assertRegex(fault, "rank 1 is lost")

    def test_errors(self) -> None:
        ranks(2, refused)


if __name__ == "__main__":
    unittest.main()
