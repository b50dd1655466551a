"""torch.distributed on backend ringo: operations, DDP, ZeroRedundancyOptimizer, hooks, groups, faults."""

from __future__ import annotations

import os
import signal
import tempfile
import unittest

import ringo.torch
import torch
import torch.distributed as dist
from forked import ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == want.dtype and torch.equal(got, want), (got, want)


def reductions() -> None:
    r, n = dist.get_rank(), dist.get_world_size()
    ops = {dist.ReduceOp.SUM: torch.sum, dist.ReduceOp.MAX: torch.amax, dist.ReduceOp.MIN: torch.amin}
    for dtype in DTYPES:
        each = [(torch.arange(12) % 5 + q).to(dtype).view(3, 4) for q in range(n)]
        for op, function in ops.items():
            want = function(torch.stack(each).to(torch.float64), dim=0).to(dtype)
            for x in (each[r].clone(), each[r].t().clone().t()):  # the second one's values are not in order
                dist.all_reduce(x, op)
                same(x, want)
        x = each[r].clone()
        dist.reduce(x, 1, async_op=True).wait()
        same(x, torch.stack(each).to(torch.float64).sum(0).to(dtype) if r == 1 else each[r])
        out = torch.empty(4, dtype=dtype)
        dist.reduce_scatter(out, [each[r][0] + q for q in range(n)])
        same(out, sum((each[q][0] + r).to(torch.float64) for q in range(n)).to(dtype))
    x = torch.tensor([r == 0, True, False])
    dist.all_reduce(x, dist.ReduceOp.BAND)
    same(x, torch.tensor([False, True, False]))
    x = torch.tensor([r + 1, 7])
    dist.all_reduce(x, dist.ReduceOp.BXOR)
    same(x, torch.tensor([1 ^ 2 if n == 2 else 1 ^ 2 ^ 3, 0 if n == 2 else 7]))
    x = torch.tensor([complex(r, 1)])
    dist.all_reduce(x)
    same(x, torch.tensor([complex(sum(range(n)), n)]))
    x = torch.sparse_coo_tensor([[r, n]], [1.0, 2.0], (n + 1,))
    dist.all_reduce(x)
    same(x.to_dense(), torch.tensor([1.0] * n + [2.0 * n]))


def moves() -> None:
    r, n = dist.get_rank(), dist.get_world_size()
    for dtype in (*DTYPES, torch.bool, torch.complex64):
        each = [torch.arange(q, q + 6).to(dtype).view(2, 3) for q in range(n)]
        for strided in (False, True):
            like = (lambda: torch.zeros(3, 2, dtype=dtype).t()) if strided else (lambda: torch.zeros(2, 3, dtype=dtype))
            mine = like().copy_(each[r])
            x = mine.clone(memory_format=torch.preserve_format)
            dist.broadcast(x, 1)
            same(x, each[1])
            out = [like() for _ in range(n)]
            dist.all_gather(out, mine)
            same(torch.stack(out), torch.stack(each))
            out = [like() for _ in range(n)] if r == 1 else None
            dist.gather(mine, out, dst=1)
            if out:
                same(torch.stack(out), torch.stack(each))
            x = like()
            dist.scatter(x, each if r == 0 else None, src=0)
            same(x, each[r])
            out = [like() for _ in range(n)]
            dist.all_to_all(out, [each[r] for q in range(n)])
            same(torch.stack(out), torch.stack(each))
        whole = torch.empty(n * 2, 3, dtype=dtype)
        dist.all_gather_into_tensor(whole, each[r])
        same(whole, torch.cat(each))
        splits = [q + r for q in range(n)]
        x, y = torch.full((sum(splits), 2), r).to(dtype), torch.empty(sum(splits), 2, dtype=dtype)
        dist.all_to_all_single(y, x, splits, splits)
        same(y, torch.cat([torch.full((q + r, 2), q).to(dtype) for q in range(n)]))
    x = torch.empty(n, 3)[:, 1]  # parts of one tensor: written where they lie
    dist.all_gather(list(x.unbind()), torch.tensor(float(r)))
    same(x, torch.arange(n).to(torch.float32))


def single() -> None:
    """One tensor in place of a list, by position and by name, has the values that gloo gives it, where gloo has the operation."""
    r, n = dist.get_rank(), dist.get_world_size()
    groups = {"gloo": dist.new_group(backend="gloo"), "ringo": dist.group.WORLD}
    sum_, max_ = dist.ReduceOp.SUM, dist.ReduceOp.MAX

    def forms(g) -> list[torch.Tensor]:
        x = [torch.arange(3.0) + r + i for i in range(12)]
        each = [[torch.zeros(3) for _ in range(n)] for _ in range(4)]
        parts = [torch.full((3,), 10.0 * r + q) for q in range(n)]
        works = [
            g.allreduce(x[0]),
            g.allreduce(x[1], max_),
            g.allreduce(tensor=x[2], op=max_),
            g.allreduce([x[3]], max_),
            g.broadcast(x[4], 1),
            g.broadcast(tensor=x[5], root=1),
            g.reduce(x[6], 1),
            g.reduce(x[7], 1, max_),
            g.reduce(tensor=x[8], root=0, op=sum_),
            g.allgather(each[0], x[9]),
            g.allgather(output_tensors=each[1], input_tensor=x[9]),
        ]
        if g.name() == "gloo":  # which takes the roots' lists alone in this form
            works += [g.allgather(each[i], x[9]) for i in (2, 3)]
            for i, root in ((10, 1), (11, 0)):
                x[i].fill_(10.0 * root + r)
        else:
            works += [
                g.gather(each[2] if r == 1 else [], x[9], 1),
                g.gather(output_tensors=each[3] if r == 0 else [], input_tensor=x[9], root=0),
                g.scatter(x[10], parts if r == 1 else [], 1),
                g.scatter(output_tensor=x[11], input_tensors=parts if r == 0 else [], root=0),
            ]
        for work in works:
            work.wait()
        for i, root in ((2, 1), (3, 0)):  # of gather
            each[i] = each[i] if r == root else []
        reduced = {6: 1, 7: 1, 8: 0}  # gloo leaves parts of sums in the tensors of other ranks
        return [t for i, t in enumerate(x) if reduced.get(i, r) == r] + [t for of in each for t in of]

    for got, want in zip(forms(groups["ringo"]), forms(groups["gloo"])):
        same(got, want)
    g, one = groups["ringo"], torch.tensor(float(r))  # 0 dimensions
    out = [torch.tensor(0.0) for _ in range(n)]
    g.allgather(out, one).wait()
    same(torch.stack(out), torch.arange(n, dtype=torch.float32))
    for call in (lambda x, parts: g.reduce_scatter(x, parts), lambda x, parts: g.reduce_scatter(output_tensors=x, input_tensor=parts, op=sum_)):
        x = torch.empty(2)
        call(x, [torch.full((2,), float(r + q)) for q in range(n)]).wait()
        same(x, torch.full((2,), float(sum(range(n)) + n * r)))
    x = torch.empty(2)
    g.reduce_scatter(x, [torch.full((2,), float(r + q)) for q in range(n)], max_).wait()
    same(x, torch.full((2,), float(n - 1 + r)))
    for call in (lambda: g.broadcast(torch.ones(1)), lambda: g.reduce(torch.ones(1)), lambda: g.scatter(torch.ones(1), [])):
        try:
            call()
        except TypeError as fault:
            assert "root" in str(fault)
        else:
            raise AssertionError("a tensor without root is taken")


class Halves(nn.Module):
    """A model of which each step uses a half."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, first: bool) -> torch.Tensor:
        return self.a(x) if first else self.b(x)


def joined() -> None:
    """DDP.join with unused parameters, where ranks have different numbers of batches, trains as over gloo."""
    r, after = dist.get_rank(), []
    for group in (dist.new_group(backend="gloo"), dist.group.WORLD):
        torch.manual_seed(1)
        model = DistributedDataParallel(Halves(), process_group=group, find_unused_parameters=True)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with model.join():
            for k in range(2 + 2 * r):
                optimizer.zero_grad()
                model(torch.ones(2, 4) * (r + 1), k % 2 == 0).sum().backward()
                optimizer.step()
        after.append([p.detach().clone() for p in model.parameters()])
    for got, want in zip(*after):
        torch.testing.assert_close(got, want)


def objects() -> None:
    r, n = dist.get_rank(), dist.get_world_size()
    out: list = [None] * n
    dist.all_gather_object(out, {"rank": r, "pad": "x" * r})
    assert [o["rank"] for o in out] == list(range(n))
    one = [r * 10]
    dist.broadcast_object_list(one, src=1)
    assert one == [10]
    dist.scatter_object_list(one, [str(q) for q in range(n)], src=0)
    assert one == [str(r)]


def messages() -> None:
    r, n = dist.get_rank(), dist.get_world_size()
    big = 1 << 18
    if r == 0:
        for tag, size in ((1, 3), (2, big), (3, 0)):
            dist.send(torch.full((size,), float(tag)), 1, tag=tag)
        got = torch.empty(1)
        assert {dist.recv(got, tag=7) for _ in range(1, n)} == set(range(1, n))
    elif r == 1:
        for tag, size in ((3, 0), (2, big), (1, 3)):  # in another order
            x = torch.empty(size)
            assert dist.recv(x, 0, tag=tag) == 0
            same(x, torch.full((size,), float(tag)))
    if r > 0:
        dist.send(torch.tensor([float(r)]), 0, tag=7)
    after, before = (r + 1) % n, (r - 1) % n
    x = torch.empty(big)
    asked = dist.irecv(x, before)
    dist.send(torch.full((big,), float(r)), after)  # longer than what is sent without its being asked for
    asked.wait()
    same(x, torch.full((big,), float(before)))
    ops = [dist.P2POp(dist.isend, torch.full((9,), float(r)), after), dist.P2POp(dist.irecv, x[:9], before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(x[:9], torch.full((9,), float(before)))
    dist.barrier()


def groups() -> None:
    r, n = dist.get_rank(), dist.get_world_size()
    for _ in range(30):
        g = dist.new_group([n - 1, 0])
        if r in (0, n - 1):
            x = torch.ones(4)
            dist.all_reduce(x, group=g)
            same(x, torch.full((4,), 2.0))
            dist.destroy_process_group(g)
    whole = dist.new_group()
    work = dist.all_reduce(torch.ones(3), group=whole, async_op=True)
    value = work.get_future().then(lambda f: f.value()[0] + 1).wait()
    same(value, torch.full((3,), n + 1.0))
    assert work.is_completed() and work.is_success()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(dist.get_rank())  # DDP makes them alike
        self.body = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.BatchNorm1d(300), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def trained(group=None, hook=None, state=None, zero: bool = False, steps: int = 4, **options) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(), process_group=group, bucket_cap_mb=0.2, **options)
    if hook:
        model.register_comm_hook(state, hook)
    if zero:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01, process_group=group)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        x, y = torch.randn(16, 20), torch.randint(5, (16,))
        if not options.get("static_graph"):  # which PyTorch's own no_sync cannot begin with
            with model.no_sync():
                nn.functional.cross_entropy(model(x), y).backward()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


def ddp() -> None:
    gloo = dist.new_group(backend="gloo")
    hooks = {
        "plain": {},
        "view": {"gradient_as_bucket_view": True},
        "static": {"static_graph": True},
        "unused": {"find_unused_parameters": True},
        "zero": {"zero": True},
        "hook": {"hook": default_hooks.allreduce_hook},
    }
    for name, options in hooks.items():
        want = trained(gloo, static_graph=name == "static")
        for got, one in zip(trained(**options), want):
            torch.testing.assert_close(got, one, rtol=1e-4, atol=1e-5, msg=name)
    for hook, state in ((default_hooks.fp16_compress_hook, None), (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, 2, 2))):
        parameters = trained(hook=hook, state=state)
        for p in parameters:  # the same on all ranks
            out = [torch.empty_like(p) for _ in range(dist.get_world_size())]
            dist.all_gather(out, p)
            assert all(torch.equal(p, q) for q in out)


def compressed() -> None:
    """Hooks of strategies: replicas stay equal, nothing is lost, and a checkpoint goes on with the same bits."""
    r, n = dist.get_rank(), dist.get_world_size()
    for name, density in (("dlgs", 0.05), ("sparseTopK", 0.05), ("lags", 0.05), ("dgc", 0.05), ("int8", 0), ("fp16", 0), ("fp32", 0)):
        model = DistributedDataParallel(Net(), bucket_cap_mb=0.2, gradient_as_bucket_view=True)
        strategy = ringo.torch.hook(name, density)
        strategy.register(model)
        torch.manual_seed(r)
        sent = {k: torch.zeros_like(p) for k, p in model.module.named_parameters()}
        own = {k: torch.zeros_like(p) for k, p in model.module.named_parameters()}
        twin = Net()
        for step in range(4):  # DDP makes its buckets anew after the first
            x, y = torch.randn(16, 20), torch.randint(5, (16,))
            twin.load_state_dict(model.module.state_dict())
            nn.functional.cross_entropy(twin(x), y).backward()
            nn.functional.cross_entropy(model(x), y).backward()
            for k, p in model.module.named_parameters():
                sent[k] += p.grad
                p.grad.zero_()
            for k, p in twin.named_parameters():
                own[k] += p.grad
                p.grad = None
        state = strategy.state_dict()
        kept = state["residuals"]
        for k in sent:
            every = own[k].clone()
            dist.all_reduce(every)
            left = kept[k].view_as(every).clone() if kept else torch.zeros_like(every)
            dist.all_reduce(left)
            tolerance = 1e-5 if name not in ("fp16", "int8") else 2e-3
            torch.testing.assert_close(sent[k] * n + left, every, rtol=1e-3, atol=tolerance, msg=f"{name} {k}")
        assert bool(kept) == (name not in ("fp16", "fp32")), name
        strategy.load_state_dict(state)
        for k, v in strategy.state_dict()["residuals"].items():
            assert torch.equal(v, kept[k])


def any_loop() -> None:
    torch.manual_seed(3)
    model = nn.Linear(50, 10)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = ringo.torch.DistributedOptimizer(inner, model.named_parameters(), "dlgs", 0.1, bucket_bytes=1000)
    torch.manual_seed(dist.get_rank())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 50)).square().sum().backward()
        optimizer.step()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    for p in model.parameters():
        out = [torch.empty_like(p) for _ in range(dist.get_world_size())]
        dist.all_gather(out, p.detach())
        assert all(torch.equal(out[0], q) for q in out)


def again() -> None:
    for i in range(3):
        dist.destroy_process_group()
        path = os.path.join(os.environ["RINGO_TEST_FOLDER"], str(i))
        dist.init_process_group("ringo", init_method=f"file://{path}", rank=RANK.rank(), world_size=2)
        x = torch.ones(2)
        dist.all_reduce(x)
        same(x, torch.full((2,), 2.0))


class RANK:
    """This rank, which is known before a group is there again."""

    number: int | None = None

    @classmethod
    def rank(cls) -> int:
        assert cls.number is not None
        return cls.number


def numbered_again() -> None:
    RANK.number = dist.get_rank()
    again()


class Items(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((3,), float(i))


def loader() -> None:
    for batch in torch.utils.data.DataLoader(Items(), batch_size=4, num_workers=2):  # forks
        dist.all_reduce(batch)
    dist.barrier()


def dies_in(what: str):
    def body() -> str:
        r = dist.get_rank()
        model = DistributedDataParallel(nn.Linear(10, 10)) if what == "backward" else None
        x = torch.ones(1000)
        dist.all_reduce(x)
        if r == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                if model is None:
                    dist.all_reduce(x)
                else:
                    model(torch.ones(2, 10)).sum().backward()
        except RuntimeError as fault:
            dist.destroy_process_group()
            return str(fault)

    return body


class Backend(unittest.TestCase):
    def test_operations(self) -> None:
        def everything() -> None:
            for body in (reductions, moves, objects, messages, groups):
                body()

        for n in (2, 3):
            with self.subTest(ranks=n):
                ranks(n, everything)
        with self.subTest(transport="tcp"):
            ranks(2, everything, ringo.torch.Options(transport="tcp"))

    def test_one_tensor(self) -> None:
        for n in (2, 3):
            with self.subTest(ranks=n):
                ranks(n, single)
        ranks(2, joined)

    def test_ticket_file(self) -> None:
        with tempfile.NamedTemporaryFile("w") as file:  # of mode 600
            file.write("5a" * 32 + "\n")
            file.flush()
            ranks(2, objects, ringo.torch.Options(ticket_file=file.name))

    def test_training(self) -> None:
        ranks(2, ddp)

    def test_strategies(self) -> None:
        ranks(2, compressed)
        ranks(3, any_loop)

    def test_loader_forks(self) -> None:
        ranks(2, loader)

    def test_groups_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["RINGO_TEST_FOLDER"] = folder
            ranks(2, numbered_again)

    def test_a_dead_rank_is_named(self) -> None:
        for what in ("all_reduce", "backward"):
            for rank, fault in ranks(3, dies_in(what), dead=(1,)).items():
                with self.subTest(what, rank=rank):
                    self.assertRegex(fault, "rank 1 is lost")
                    self.assertRegex(fault, "allreduce|all_reduce")


if __name__ == "__main__":
    unittest.main()
