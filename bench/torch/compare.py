"""Backend ringo beside gloo: DDP steps and operations, in the same processes, round about.

    python3 bench/torch/compare.py --np 2 [--rounds 9] [--what mnist resnet20 resnet50 lstm operations cost]

Each rank has one thread. It writes a line for each thing that is measured: medians over rounds, and the median of the ratios of neighbouring
rounds. A share is (step - step under no_sync) / step.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import ringo.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def mnist() -> tuple[nn.Module, tuple[int, ...]]:
    """The network of PyTorch's MNIST example, and the shape of a batch."""
    pool = nn.MaxPool2d(2)
    layers = [
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        pool,
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    ]
    return nn.Sequential(*layers), (16, 1, 28, 28)


class Block(nn.Module):
    """A residual block of two convolutions; what has more channels than before has a convolution of 1 x 1 beside it."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        conv, norm = nn.Conv2d, nn.BatchNorm2d
        self.body = nn.Sequential(
            conv(before, channels, 3, stride, 1, bias=False), norm(channels), nn.ReLU(), conv(channels, channels, 3, 1, 1, bias=False), norm(channels)
        )
        self.beside = nn.Identity() if before == channels else conv(before, channels, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.beside(x))


def resnet20() -> tuple[nn.Module, tuple[int, ...]]:
    """ResNet-20 for CIFAR, and the shape of a batch."""
    blocks = [Block(b, c, s) for b, c, s in [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks, *head), (4, 3, 32, 32)


class Bottleneck(nn.Module):
    """A residual block of ResNet-50: 1 x 1, 3 x 3, and 1 x 1 to four times as many channels."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        conv, norm, after = nn.Conv2d, nn.BatchNorm2d, 4 * channels
        narrow = [conv(before, channels, 1, bias=False), norm(channels), nn.ReLU()]
        middle = [conv(channels, channels, 3, stride, 1, bias=False), norm(channels), nn.ReLU()]
        self.body = nn.Sequential(*narrow, *middle, conv(channels, after, 1, bias=False), norm(after))
        same = before == after and stride == 1
        self.beside = nn.Identity() if same else nn.Sequential(conv(before, after, 1, stride, bias=False), norm(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.beside(x))


def resnet50() -> tuple[nn.Module, tuple[int, ...]]:
    """ResNet-50 with 25.6 million parameters, and a batch of two small images."""
    blocks, before = [], 64
    for channels, number, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(number):
            blocks.append(Bottleneck(before, channels, stride if i == 0 else 1))
            before = 4 * channels
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)), (2, 3, 96, 96)


class Words(nn.Module):
    """A model of language: words, an LSTM of two layers, and the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(8000, 200)
        self.lstm = nn.LSTM(200, 400, 2)
        self.next = nn.Linear(400, 8000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, _ = self.lstm(self.words((x.abs() * 2000).long() % 8000))
        return self.next(out).flatten(0, -2)


def lstm() -> tuple[nn.Module, tuple[int, ...]]:
    """A model of language with 7.1 million parameters, and a batch of 20 words by 4."""
    return Words(), (20, 4)


MODELS = {"mnist": mnist, "resnet20": resnet20, "resnet50": resnet50, "lstm": lstm}
STEPS = {"resnet50": 2, "lstm": 3}  # in a row, of a round; others: 8


def seconds(body: Callable[[], Any], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        body()
    return (time.perf_counter() - began) / times


def alternate(bodies: dict[str, Callable[[], Any]], rounds: int, times: int) -> dict[str, list[float]]:
    """Seconds of each body, round after round; the first round is not counted."""
    took: dict[str, list[float]] = {name: [] for name in bodies}
    for i in range(rounds + 1):
        for name, body in bodies.items():
            dist.barrier()
            t = seconds(body, times)
            if i:
                took[name].append(t)
    return took


def tell(what: str, took: dict[str, list[float]], one: str, other: str) -> None:
    if dist.get_rank() == 0:
        medians = ", ".join(f"{name} {statistics.median(t) * 1e3:.3f} ms" for name, t in took.items())
        ratio = statistics.median(a / b for a, b in zip(took[one], took[other]))
        print(f"np {dist.get_world_size()} {what}: {medians}; {one} / {other} {ratio:.2f}", flush=True)


def training(name: str, groups: dict[str, Any], rounds: int) -> None:
    """DDP steps of one model on each backend, and without communication."""
    bodies, losses = {}, {}
    for backend, group in groups.items():
        torch.manual_seed(1)
        model, shape = MODELS[name]()
        parameters = sum(p.numel() for p in model.parameters())
        model = DistributedDataParallel(model, process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        torch.manual_seed(2 + dist.get_rank())
        x = torch.randn(shape)
        y = torch.randint(10, (len(model(x)),))
        losses[backend] = []

        def step(model=model, optimizer=optimizer, x=x, y=y, kept=losses[backend]) -> None:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(loss.item())

        bodies[backend] = step

        def alone(model=model, x=x, y=y, optimizer=optimizer) -> None:
            with model.no_sync():
                nn.functional.cross_entropy(model(x), y).backward()
            optimizer.zero_grad()

    took = alternate({**bodies, "no_sync": alone}, rounds, STEPS.get(name, 8))
    tell(name, took, "gloo", "ringo")
    if dist.get_rank() == 0:
        far = max(abs(a - b) for a, b in zip(losses["gloo"], losses["ringo"]))
        share = 1 - statistics.median(took["no_sync"]) / statistics.median(took["gloo"])
        print(f"  losses differ by at most {far:.2g}; communication is {share:.0%} of gloo's step; {parameters / 1e6:.2f} million parameters", flush=True)


def operations(groups: dict[str, Any], rounds: int) -> None:
    n = dist.get_world_size()
    gloo, ours = groups["gloo"], groups["ringo"]
    for size in (1 << 12, 1 << 18, 1 << 22):
        x = torch.ones(size)
        tell(f"allreduce of {size}", alternate({b: lambda g=g: dist.all_reduce(x, group=g) for b, g in groups.items()}, rounds, 5), "gloo", "ringo")
    size = (1 << 24) // n
    part, whole = torch.ones(size), torch.empty(size * n)
    out = list(whole.chunk(n))
    apart = [torch.empty(size) for _ in range(n)]
    for name, tensors in (("one behind the other", out), ("apart", apart)):
        bodies = {b: lambda g=g, tensors=tensors: dist.all_gather(tensors, part, group=g) for b, g in groups.items()}
        tell(f"all_gather of 16 Mi values to tensors {name}", alternate(bodies, rounds, 1), "gloo", "ringo")
    whole = torch.ones(size * n)
    bodies = {
        "gloo allreduce": lambda: dist.all_reduce(whole, group=gloo),
        "ringo reduce_scatter": lambda: dist._reduce_scatter_base(part, whole, group=ours),
    }
    tell("reduce_scatter of 16 Mi values", alternate(bodies, rounds, 1), "gloo allreduce", "ringo reduce_scatter")


def cost(groups: dict[str, Any], rounds: int) -> None:
    """What the backend itself costs for each bucket: an allreduce of few values with its future, less that of the library."""
    group, x = groups["ringo"], torch.ones(16)
    start = group._group.start
    bodies = {
        "backend": lambda: dist.all_reduce(x, group=group, async_op=True).get_future().wait(),
        "library": lambda: start("allreduce", x, x.data_ptr(), 16, 0, 0).wait(),
    }
    took = alternate(bodies, rounds, 300)
    tell("cost of a bucket", took, "backend", "library")
    if dist.get_rank() == 0:
        print(f"  the backend itself: {(statistics.median(took['backend']) - statistics.median(took['library'])) * 1e6:.1f} us", flush=True)


def rank(r: int, n: int, path: str, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("ringo", init_method=f"file://{path}", rank=r, world_size=n)
    groups = {"gloo": dist.new_group(backend="gloo"), "ringo": dist.group.WORLD}
    for what in args.what:
        if what in MODELS:
            training(what, groups, args.rounds)
        else:
            {"operations": operations, "cost": cost}[what](groups, args.rounds)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--what", nargs="+", default=[*MODELS, "operations", "cost"], choices=[*MODELS, "operations", "cost"])
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [fork.Process(target=rank, args=(r, args.np, os.path.join(folder, "store"), args)) for r in range(args.np)]
        for p in ranks:
            p.start()
        for p in ranks:
            p.join()


if __name__ == "__main__":
    main()
