"""Plans by what steps take, and "auto": as hooks of DDP and in loops without it."""

from __future__ import annotations

import unittest

import ringo.torch
import torch
import torch.distributed as dist
from forked import ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def net() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 5))


def batches(steps: int):
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        yield torch.randn(16, 20), torch.randint(5, (16,))


def alike(values: object) -> None:
    every: list = [None] * dist.get_world_size()
    dist.all_gather_object(every, values)
    assert all(v == every[0] for v in every), every


def ddp(hook, steps: int, model: nn.Module | None = None) -> DistributedDataParallel:
    """Trains with small buckets of DDP, and a hook if there is one. It goes on with a model."""
    model = DistributedDataParallel(model or net(), bucket_cap_mb=0.02)
    if hook is not None:
        hook.register(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in batches(steps):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def same(a: nn.Module, b: nn.Module, exactly: bool = True) -> None:
    for p, q in zip(a.parameters(), b.parameters()):
        assert torch.equal(p, q) if exactly else torch.allclose(p, q, rtol=1e-4, atol=1e-6), (p - q).abs().max()


def measured_hook() -> None:
    """Planned buckets train as DDP does; the plan is of DDP's buckets, the same on all ranks, and told."""
    hook = ringo.torch.hook("fp32", plan="measured")
    model = ddp(hook, 20)
    report = hook.report()
    assert report["chosen"] and report["strategy"] == "fp32" and report["plan"] == "exact", report
    state = hook.state_dict()["tuning"]
    assert report["buckets"][-1] == len(state["layers"]) > 1, report
    assert {n for layer in state["layers"] for n in layer} == {n for n, _ in model.module.named_parameters()}
    alike((report["buckets"], state))
    same(ddp(None, 20), model, exactly=False)
    resumed_hook(hook, model)


def chosen_hook() -> None:
    """A choice computes what the strategy that is named by hand does with the same buckets; a checkpoint goes on with it."""
    hook = ringo.torch.hook("auto", density=0.05)
    hook.register(DistributedDataParallel(net(), bucket_cap_mb=0.02))
    layers = [[n] for n, _ in reversed(list(net().named_parameters()))]
    hook.load_state_dict({"residuals": {}, "tuning": {"layers": layers, "choices": "0:dlgs/one=6", "steps": 5}})
    kept = {n: torch.full((p.numel(),), 0.5) for n, p in net().named_parameters()}
    hook.load_state_dict({"residuals": kept, "tuning": {"layers": layers, "choices": "0:dlgs/exact=1,5", "steps": 5}})
    report = hook.report()
    assert (report["strategy"], report["buckets"], report["steps"]) == ("dlgs", [1, 6], 5), report
    for n, v in hook.state_dict()["residuals"].items():
        assert torch.equal(v, kept[n])


def resumed_hook(first, model: nn.Module) -> None:
    """A run that goes on from a checkpoint plans for DDP's buckets as the first did, without measuring."""
    second = ringo.torch.hook("fp32", plan="measured")
    again = DistributedDataParallel(net(), bucket_cap_mb=0.02)
    again.module.load_state_dict(model.module.state_dict())
    second.register(again)
    second.load_state_dict(first.state_dict())
    saved = second.state_dict()["tuning"]
    for m in (model, again):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.05)
        for step, (x, y) in enumerate(batches(6)):
            nn.functional.cross_entropy(m(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            if m is again and step == 0:  # DDP makes its buckets anew, for which there is no plan: a checkpoint has that of the first run
                assert second.report() == {} and second.state_dict()["tuning"] == saved, second.state_dict()["tuning"]
    same(model, again, exactly=False)
    one, two = first.report(), second.report()
    assert one["choices"] == two["choices"] and one["buckets"] == two["buckets"] and "predicted" not in two, (one, two)


def loop(optimizer, model: nn.Module, steps: int, accumulate: bool = False) -> None:
    for x, y in batches(steps):
        if accumulate:
            with optimizer.no_sync():
                nn.functional.cross_entropy(model(x), y).backward()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def any_loop() -> None:
    """Without DDP: exchanged in backward, in planned buckets, as without a plan; a checkpoint goes on with the same bits."""

    def made(model: nn.Module, plan: str | None, strategy: str = "fp32"):
        inner = torch.optim.SGD(model.parameters(), lr=0.05)
        return ringo.torch.DistributedOptimizer(inner, model.named_parameters(), strategy, plan=plan)

    models = [net(), net(), net()]
    planned = made(models[0], "measured")
    loop(planned, models[0], 20, accumulate=True)
    loop(made(models[1], None), models[1], 20, accumulate=True)
    same(models[0], models[1], exactly=False)
    report = planned.report()
    assert report["chosen"] and report["buckets"][-1] == 6, report
    alike(report["choices"])
    models[2].load_state_dict(models[0].state_dict())
    resumed = made(models[2], "measured")
    resumed.load_state_dict(planned.state_dict())
    assert resumed.report()["choices"] == report["choices"]
    loop(planned, models[0], 4)
    loop(resumed, models[2], 4)
    same(models[0], models[2])
    model = models[0]
    x, y = torch.randn(16, 20), torch.randint(5, (16,))
    nn.functional.cross_entropy(model(x), y).backward()
    try:
        nn.functional.cross_entropy(model(x), y).backward()
    except RuntimeError as fault:
        assert "no_sync" in str(fault), fault
    else:
        raise AssertionError("a second backward was not refused")


def chosen_loop() -> None:
    """A choice has the bits of the strategy and the buckets that are named by hand, in gradients and in what is kept."""
    model, twin = net(), net()
    auto = ringo.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters(), "auto", 0.05)
    layers = [[n] for n, _ in reversed(list(model.named_parameters()))]
    state = auto.state_dict()
    auto.load_state_dict({**state, "tuning": {"layers": layers, "choices": "0:dlgs/exact=2,4", "steps": 0}})
    group = dist.distributed_c10d._get_default_group()._group
    named = ringo.Strategy(group, "dlgs", {n: p.numel() for n, p in twin.named_parameters()}, 0.05)
    buckets = [[n for layer in part for n in layer] for part in (layers[:2], layers[2:])]
    named.arrange(buckets)
    parameters = dict(twin.named_parameters())
    for x, y in batches(10):
        for m in (model, twin):
            m.zero_grad()
            nn.functional.cross_entropy(m(x), y).backward()
        auto.synchronize()
        for b, names in enumerate(buckets):
            flat = torch.cat([parameters[n].grad.reshape(-1) for n in names])
            named.exchange(b, flat.numpy())
            at = 0
            for n in names:
                p = parameters[n]
                p.grad.copy_(flat[at : at + p.numel()].view_as(p))
                at += p.numel()
        for p, q in zip(model.parameters(), twin.parameters()):
            assert torch.equal(p.grad, q.grad)
        auto.step()
        torch.optim.SGD(twin.parameters(), lr=0.05).step()
    kept = named.state_dict()
    for n, v in auto.state_dict()["residuals"].items():
        assert torch.equal(v, torch.from_numpy(kept[n])), n


def left_out() -> None:
    """A step that all ranks leave out after synchronize is over with zero_grad: the next gradients are averaged."""
    for plan in (None, "measured"):
        model = net()
        optimizer = ringo.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters(), plan=plan)
        for step, (x, y) in enumerate(batches(20)):
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.synchronize()
            if step % 2 == 1:
                optimizer.step()
            optimizer.zero_grad()
            if step % 4 == 2:  # after one that was left out, without synchronize
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
        alike([p.double().sum().item() for p in model.parameters()])


class Planned(unittest.TestCase):
    def test_hooks(self) -> None:
        def everything() -> None:
            measured_hook()
            chosen_hook()

        ranks(2, everything)

    def test_loops(self) -> None:
        def everything() -> None:
            any_loop()
            left_out()
            chosen_loop()

        ranks(2, everything)


if __name__ == "__main__":
    unittest.main()
