#!/usr/bin/env python3
"""Compressed gradients over slow links: DDP over gloo with PyTorch's own hooks, and over ringo, on hosts that are network namespaces.

    sudo python3 bench/torch/hosts.py [--hosts 4] [--model mnist] [--rounds 5] [--steps 4] [--times 3]

The links are so slow that gloo's exchange of a step takes --times its computation, which is measured first. All ways train in the same
processes, round about, one rank and one thread a host. It writes a line for each way: the median step, how many times as long gloo's takes (the median of the
ratios of neighbouring rounds), the bytes that a host sends in a step, and the mean loss of the last step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # after this folder, which has a compare, too
PORT = 29611


# ---- a rank ----


def hooks(gloo: Any) -> dict[str, tuple[str, Callable[[Any], None]]]:
    """The ways: backend, and what is done with a model of DDP."""
    import ringo.torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def power(rank: int) -> Callable[[Any], None]:
        # Its error feedback begins with the first compressed step; two steps before are exchanged whole, as DDP makes its buckets anew.
        state = powerSGD_hook.PowerSGDState(gloo, matrix_approximation_rank=rank, start_powerSGD_iter=2)
        return lambda model: model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    def strategy(*args: Any, **more: Any) -> Callable[[Any], None]:
        return lambda model: ringo.torch.hook(*args, **more).register(model)

    return {
        "gloo": ("gloo", lambda model: None),
        "gloo fp16_compress_hook": ("gloo", lambda model: model.register_comm_hook(gloo, default_hooks.fp16_compress_hook)),
        "gloo powerSGD_hook, rank 1": ("gloo", power(1)),
        "gloo powerSGD_hook, rank 4": ("gloo", power(4)),
        "ringo": ("ringo", lambda model: None),
        "ringo fp16": ("ringo", strategy("fp16")),
        "ringo dlgs 0.01": ("ringo", strategy("dlgs", density=0.01)),
        "ringo dlgs 0.01, planned": ("ringo", strategy("dlgs", density=0.01, plan="measured")),
        "ringo auto": ("ringo", strategy("auto")),
    }


def wrapped(module: Any, name: str, group: Any) -> Any:
    """A model of DDP, whose buckets are as a way needs them: a plan merges small ones; PowerSGD has one, as it starts operations when others end,
    and gloo mixes up those of two buckets that ranks start in different order.
    """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    first = dist._DEFAULT_FIRST_BUCKET_BYTES
    if "powerSGD" in name:
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 30
    cap = 1 if "planned" in name or "auto" in name else 1024 if "powerSGD" in name else 25
    model = DistributedDataParallel(module, process_group=group, broadcast_buffers=False, bucket_cap_mb=cap)
    dist._DEFAULT_FIRST_BUCKET_BYTES = first
    return model


def rank(args: argparse.Namespace) -> None:
    import ringo.torch
    import torch
    import torch.distributed as dist
    from compare import MODELS, seconds
    from torch import nn

    torch.set_num_threads(1)
    options = ringo.torch.Options(host=args.at, transport="tcp")
    dist.init_process_group("ringo", init_method=f"tcp://{args.at}:{PORT}", rank=args.rank, world_size=args.hosts, pg_options=options)
    groups = {"gloo": dist.new_group(backend="gloo"), "ringo": dist.group.WORLD}
    losses: dict[str, float] = {}
    steps, model = {}, nn.Module()
    ways = {name: way for name, way in hooks(groups["gloo"]).items() if not args.ways or name in args.ways}
    for name, (backend, hook) in ways.items():
        torch.manual_seed(1)
        module, shape = MODELS[args.model]()
        module.to(args.device)
        model = wrapped(module, name, groups[backend])
        hook(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        torch.manual_seed(2 + args.rank)
        x = torch.randn(shape, device=args.device)
        y = torch.randint(10, (len(module(x)),), device=args.device)

        def step(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y, name: str = name) -> None:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[name] = loss.item()

        steps[name] = step

    def alone() -> None:
        with model.no_sync():
            nn.functional.cross_entropy(model(x), y).backward()
        next(model.parameters()).grad.sum().item()  # it has ended on a device, too
        optimizer.zero_grad()

    alone()
    dist.barrier()
    tell = (lambda **record: print(json.dumps(record), flush=True)) if args.rank == 0 else (lambda **_: None)
    tell(alone_s=seconds(alone, 10), parameters=sum(p.numel() for p in model.parameters()))
    sys.stdin.readline()  # the links are slow now
    for name, step in steps.items():  # what is planned is planned after some steps
        seconds(step, 8)
    sent = lambda: int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text(encoding="ascii"))
    for turn in range(args.rounds):
        for name, step in steps.items():
            dist.barrier()
            before, took = sent(), seconds(step, args.steps)
            dist.barrier()
            tell(way=name, round=turn, step_s=took, sent=(sent() - before) / args.steps)
    for name, loss in losses.items():
        mean = torch.tensor(loss)
        dist.all_reduce(mean)
        tell(way=name, loss=mean.item() / args.hosts)
    dist.barrier()
    dist.destroy_process_group()


# ---- all of them ----


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--model", default="mnist", choices=["mnist", "resnet20", "resnet50", "lstm"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="of each way in a round")
    parser.add_argument("--times", type=float, default=3, help="how many times as long as its computation gloo's exchange of a step takes")
    parser.add_argument("--device", default="cpu", help="where ranks compute, such as cuda")
    parser.add_argument("--ways", nargs="*", help="those of the table that are measured; default: all")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--at", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        return rank(args)
    import netns

    netns.need_root()
    netns.raise_on_signals()
    with netns.Net("torch", args.hosts) as net:
        run(args, net, netns)


def run(args: argparse.Namespace, net: Any, netns: Any) -> None:
    env = dict(os.environ, GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    more = ["--at", net.address(0), "--hosts", str(args.hosts), "--model", args.model, "--rounds", str(args.rounds), "--steps", str(args.steps)]
    more += ["--device", args.device, *(["--ways", *args.ways] if args.ways else [])]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": env}
    ranks = [netns.start([*net.enter(r), sys.executable, str(HERE / "hosts.py"), "--rank", str(r), *more], **pipes) for r in range(args.hosts)]
    try:
        first = json.loads(ranks[0].stdout.readline() or "null")
        if first is None:
            raise SystemExit("rank 0 ended before it began to measure")
        moved = 2 * (args.hosts - 1) / args.hosts * 4 * first["parameters"]
        rate = 8 * moved / (args.times * first["alone_s"])
        net.shape(rate)
        print(f"{args.model}, {args.hosts} hosts: {first['alone_s'] * 1e3:.0f} ms of computation, links of {rate / 1e6:.0f} Mbit/s", flush=True)
        for p in ranks:
            print("go", file=p.stdin, flush=True)
        records = [json.loads(line) for line in ranks[0].stdout if line.startswith("{")]
        if any(p.wait(timeout=60) for p in ranks):
            raise SystemExit("a rank failed")
    finally:
        netns.end(ranks)
    report(records)


def report(records: list[dict[str, Any]]) -> None:
    losses = {r["way"]: r["loss"] for r in records if "loss" in r}
    took = {way: [r["step_s"] for r in records if r["way"] == way and "step_s" in r] for way in losses}
    print("| way | step | gloo / it | sent by a host in a step | loss |\n|---|---|---|---|---|")
    for way, times in took.items():
        ratio = statistics.median(a / b for a, b in zip(took["gloo"], times))
        sent = statistics.median(r["sent"] for r in records if r["way"] == way and "sent" in r)
        print(f"| {way} | {statistics.median(times) * 1e3:.0f} ms | {ratio:.2f} | {sent / 1e3:,.0f} kB | {losses[way]:.4f} |")


if __name__ == "__main__":
    main()
