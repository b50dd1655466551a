#!/usr/bin/env python3
"""Checks and measures ringo.torch on a machine with one GPU, in at most 5 minutes and without a network.

    python3 bench/gpu/gpu.py --ringo ./ringo --out FOLDER [--only NAME ...] [--seconds 290]
    python3 bench/gpu/gpu.py --ringo ./ringo --out FOLDER --cpu

It first compares results with the CPU's, and measures nothing if one is wrong. FOLDER gets gpu.json and gpu.md. With --cpu the same
script runs with a simulated device and small sizes, to test the script: its times mean nothing.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
Rows = list[dict[str, Any]]

ALL = {}  # cases by name: a function of each rank, and the jobs that run it


def case(name: str, *jobs: dict[str, Any]) -> Callable[[Any], Any]:
    """Registers a case. A job has np, and may have servers, the mode, and values for the function. One with full is left out with --cpu."""

    def register(function: Any) -> Any:
        ALL[name] = function, jobs
        return function

    return register


# ---- a rank ----


def begin(o: Any) -> Any:
    """Joins the job, and returns the rank's device."""
    sys.path[:0] = [str(ROOT / "python" / "tests" / "torch"), str(ROOT / "examples" / "python")]
    import ringo.torch
    import torch
    import torch.distributed as dist

    if o.cpu:
        from simulated import force

        force()
    torch.set_num_threads(1 if o.cpu else 4)
    dist.init_process_group("ringo")
    return ringo.torch.device()


def median_seconds(device: Any, body: Callable[[], Any], times: int) -> float:
    import torch

    took = []
    for i in range(times + 2):
        begin = time.perf_counter()
        body()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if i > 1:
            took.append(time.perf_counter() - begin)
    return statistics.median(took)


@case("check", {"np": 2}, {"np": 4, "full": True})
def check(o: Any, device: Any) -> Rows:
    """Operations, selection and gradients beside those of the CPU."""
    import ringo
    import ringo.torch
    import torch
    import torch.distributed as dist
    from ringo.torch._select import Selector

    r, n, rows = dist.get_rank(), dist.get_world_size(), []
    for kind in (torch.float32, torch.bfloat16, torch.int64):
        for size in (1, 1000, 3_000_000 if not o.cpu else 30_000):
            every = [((torch.arange(size) * (q + 2)) % 5).to(kind) for q in range(n)]
            x, part = every[r].to(device, copy=True), torch.empty(size, dtype=kind, device=device)
            gathered = torch.empty(n, size, dtype=kind, device=device)
            dist.all_reduce(x)
            dist.reduce_scatter(part, [e.to(device) for e in every])
            dist.all_gather(list(gathered.unbind()), every[r].to(device))
            for got, want in ((x, sum(every)), (part, every[r] * n), (gathered, torch.stack(every))):
                assert torch.equal(got.cpu(), want), (kind, size)
            root = every[r].to(device, copy=True)
            dist.broadcast(root, n - 1)
            assert torch.equal(root.cpu(), every[n - 1]), (kind, size)
        rows.append({"ranks": n, "checked": f"operations on {kind}", "result": "the CPU's"})
    size, group = 50_000, dist.group.WORLD._group
    alone = group.job.subgroup([r])
    for name, density in (("sparseTopK", 0.02), ("dlgs", 0.01)):
        library, selector = ringo.Strategy(alone, name, {"a": size}, density), Selector(name, density, {"a": size})
        torch.manual_seed(r)
        gradient = torch.randn(size)
        index, values = selector.select(("a",), gradient.to(device))
        want, got = gradient.clone(), torch.zeros(size, device=device)
        got[index] = values
        library.exchange(0, want.numpy())
        assert torch.equal(got.cpu(), want), name
        rows.append({"ranks": n, "checked": f"selection by {name}", "result": "the library's bits"})
    model = torch.nn.Linear(100, 10).to(device)
    dist.broadcast(model.weight.detach(), 0)
    share = ringo.torch.batch_share(8 * n, steps=1)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    torch.manual_seed(5)
    whole = torch.randn(8 * n, 100)
    first = sum(share._sizes()[:r])
    (share.weight * ddp(whole[first : first + share.size].to(device)).pow(2).mean()).backward()
    mine = model.weight.grad.clone()
    model.zero_grad()
    model(whole.to(device)).pow(2).mean().backward()
    assert torch.allclose(mine, model.weight.grad, rtol=1e-4, atol=1e-6)
    rows.append({"ranks": n, "checked": "gradient of DDP with batch_share", "result": "that of one process"})
    return rows


@case("allreduce", {"np": 2}, {"np": 4, "full": True})
def allreduce(o: Any, device: Any) -> Rows:
    """Sums of device tensors, beside gloo, and beside the copies alone."""
    import torch
    import torch.distributed as dist

    groups, rows = {"ringo": dist.group.WORLD}, []
    try:
        groups["gloo"] = dist.new_group(backend="gloo")
    except (RuntimeError, ValueError, AttributeError):
        pass  # this PyTorch has no gloo
    for size in (1 << 10, 1 << 14) if o.cpu else (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 24, 1 << 26):
        x, row = torch.zeros(size, device=device), {"ranks": dist.get_world_size(), "bytes": 4 * size}
        for name, group in groups.items():
            dist.barrier()
            row[name + " ms"] = 1e3 * median_seconds(device, lambda g=group: dist.all_reduce(x, group=g), 3 if o.cpu else 20 if size < 1 << 24 else 6)
        host = torch.zeros(size, pin_memory=device.type == "cuda")
        row["copies ms"] = 1e3 * median_seconds(device, lambda: (host.copy_(x, non_blocking=True), x.copy_(host, non_blocking=True)), 3)
        if "gloo ms" in row:
            row["gloo / ringo"] = row["gloo ms"] / row["ringo ms"]
        rows.append(row)
    return rows


@case("select", {"np": 1})
def select(o: Any, device: Any) -> Rows:
    """Selection of 0.1 % and 1 % of a gradient on the device, beside the copy of all to the host."""
    import torch
    from ringo.torch._select import Selector

    n, rows = 25_000 if o.cpu else 25_000_000, []
    gradients = itertools.cycle([torch.randn(n, device=device) for _ in range(4)])
    host = torch.empty(n, pin_memory=device.type == "cuda")
    copy = 1e3 * median_seconds(device, lambda: host.copy_(next(gradients)), 3)
    for density in (0.001, 0.01):
        for name in ("dlgs", "sparseTopK"):
            selector, counts = Selector(name, density, {"a": n}), []

            def step(selector: Any = selector, counts: list[int] = counts) -> None:
                values = selector.select(("a",), next(gradients))[1].cpu()
                selector.correct(("a",), values)
                counts.append(len(values))

            took = 1e3 * median_seconds(device, step, 30)
            row = {"values": n, "strategy": name, "density": density, "step ms": took, "selected": statistics.mean(counts)}
            rows.append({**row, "copy of all ms": copy})
    return rows


@case("share", {"np": 2}, {"np": 3, "full": True})
def share(o: Any, device: Any) -> Rows:
    """Rank 0 computes on the device, the other ranks on the CPU: samples per second with equal shares and with measured ones."""
    import ringo.torch
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    width, batch, r = (64, 32, dist.get_rank()) if o.cpu else (1024, 1024, dist.get_rank())
    where = device if r == 0 else torch.device("cpu")
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)).to(where))
    divided = ringo.torch.batch_share(batch)
    took = []
    for _ in range(40):
        begin = time.perf_counter()
        x = torch.randn(divided.size, width).to(where)
        (divided.weight * model(x).pow(2).mean()).backward()
        model.zero_grad()
        if o.cpu and r:
            time.sleep(0.0005 * divided.size)  # a slow rank
        divided.step()
        took.append(time.perf_counter() - begin)
    equal, measured = (batch / statistics.median(t) for t in (took[2:8], took[20:]))
    return [{"ranks": dist.get_world_size(), "batch": batch, "equal shares, samples/s": equal, "measured shares, samples/s": measured,
             "ratio": measured / equal, "shares": str(divided.sizes)}]  # fmt: skip


SERVED = [{"np": 2, "servers": 2, "mode": "bsp", "prefetch": p, "full": True} for p in (0, 1)] + [
    {"np": 2, "servers": 2, "mode": "async", "prefetch": 1, "cache": c, "reuse": u, "full": u < 15}
    for c, u in ((0, 0), (4096, 3), (65536, 3), (65536, 15))
]


@case("embeddings", *SERVED)
def embeddings(o: Any, device: Any, mode: str, prefetch: int, cache: int = 0, reuse: int = 0) -> Rows:
    """Steps of examples/python/dlrm.py, and the hit rate of the row cache."""
    import dlrm
    import ringo.torch
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    model = DistributedDataParallel(dlrm.DLRM().to(device), broadcast_buffers=False)
    tables = ringo.torch.Tables(model, device=device, cache=cache, reuse=reuse, sync=mode if cache else "")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    size, steps = (64, 12) if o.cpu else (4096, 120)
    generator = torch.Generator().manual_seed(dist.get_rank())
    batches, took, losses = [dlrm.clicks(size, generator) for _ in range(steps)], [], []
    for i, (numbers, categories, clicked) in enumerate(batches):
        begin = time.perf_counter()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(numbers.to(device), categories), clicked.to(device))
        if prefetch and i + 1 < steps:
            for table, keys in zip(model.module.tables, batches[i + 1][1]):
                table.prefetch(keys)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tables.step()
        took.append(time.perf_counter() - begin)
        losses.append(loss.detach())
    rate = dist.get_world_size() * size / statistics.median(took[steps // 6 :])
    return [{"mode": mode, "prefetch": prefetch, "cache rows": cache, "reuse": reuse, "samples/s": rate, "last loss": float(losses[-1]),
             "hit rate": tables.cache_report()["training"]["rate"]}]  # fmt: skip


WIDTHS = {"400-400-400-2": (400, 400, 400, 2), "4096-2048-1024-2": (4096, 2048, 1024, 2)}
ARCHITECTURES = [
    {"np": np, "servers": s, "mode": "bsp", "model": m, "where": where, "full": np > 1 or m != "400-400-400-2"}
    for m in WIDTHS
    for np, s, where in ((1, 0, "collective on the device"), (4, 2, "servers, CPU trainers"), (1, 2, "servers, trainer on the device"))
]


@case("architectures", *ARCHITECTURES)
def architectures(o: Any, device: Any, mode: str, model: str, where: str) -> Rows:
    """The architectures of the heterogeneous parameter servers: 26 slots with rows of 10, 13 numbers, and a network."""
    import ringo.torch
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    slots, dim, batch, steps = 26, 10, 32 if o.cpu else 512, 6 if o.cpu else 40
    device = torch.device("cpu") if "CPU" in where else device
    torch.manual_seed(1)
    widths = (slots * dim + 13, *((w // 16 or 2 for w in WIDTHS[model]) if o.cpu else WIDTHS[model]))
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.ReLU())][:-1]
    table = ringo.torch.Embedding("slots", dim) if "servers" in where else nn.Embedding(100_000, dim).to(device)
    network = DistributedDataParallel(nn.Sequential(*layers).to(device))
    tables = ringo.torch.Tables(table, device=device) if "servers" in where else None
    optimizer = torch.optim.SGD([*network.parameters(), *table.parameters()], lr=0.01)
    batches = [((torch.rand(batch, slots) * 11.5).exp().long(), torch.randn(batch, 13), torch.randint(2, (batch,))) for _ in range(steps)]
    took = []
    for i, (keys, numbers, y) in enumerate(batches):
        begin = time.perf_counter()
        rows = table(keys if tables else keys.to(device)).flatten(1)
        loss = nn.functional.cross_entropy(network(torch.cat([rows, numbers.to(device)], 1)), y.to(device))
        if tables and i + 1 < steps:
            table.prefetch(batches[i + 1][0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if tables:
            tables.step()
        loss.item()
        took.append(time.perf_counter() - begin)
    n = dist.get_world_size()
    return [{"model": model, "architecture": where, "ranks": n, "samples/s": n * batch / statistics.median(took[steps // 4 :])}]


def rank(o: Any) -> None:
    """Runs a case as a rank of its job."""
    import torch.distributed as dist

    config = json.loads(o.config)
    device = begin(o)
    rows = ALL[o.rank][0](o, device, **config)
    dist.barrier()
    if dist.get_rank() == 0:
        sys.stdout.write("ROWS " + json.dumps(rows) + "\n")  # in one write, as other processes write to the same pipe
    dist.destroy_process_group()


# ---- all jobs ----


def job(o: Any, name: str, config: dict[str, Any], seconds: float) -> Rows:
    """The rows of a job. Errors: it has failed, or not ended."""
    config = {k: v for k, v in config.items() if k != "full"}
    np, servers = config.pop("np"), config.pop("servers", 0)
    more = ["--servers", str(servers), "--sync", config["mode"]] if servers else []
    script = [str(Path(__file__).resolve()), "--rank", name, "--config", json.dumps(config), *(["--cpu"] if o.cpu else [])]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    done = subprocess.run([o.ringo, "run", "--np", str(np), *more, "--", sys.executable, *script], **pipes, text=True, timeout=seconds)
    for line in done.stdout.splitlines():
        if done.returncode == 0 and "ROWS [" in line:
            return json.loads(line[line.index("ROWS [") + 5 :])  # type: ignore[no-any-return]
    raise RuntimeError(f"{name} {config}: exit {done.returncode}: {done.stdout[-2000:]}")


def links(o: Any, seconds: float) -> Rows:
    """hook("dlgs") on the device beside plain DDP over links that take three times as long as the computation, as bench/torch/hosts.py has them."""
    model = ["--hosts", "2", "--model", "mnist" if o.cpu else "resnet50", "--rounds", "1" if o.cpu else "3", "--device", "cpu" if o.cpu else "cuda"]
    command = [sys.executable, str(ROOT / "bench" / "torch" / "hosts.py"), *model, "--ways", "gloo", "ringo", "ringo dlgs 0.01"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
    lines = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
    if done.returncode or len(lines) < 3:
        return [{"skipped": "links of a limited rate need root, ip and tc: " + (done.stderr.strip().splitlines() or ["no reason"])[-1][:200]}]
    return [dict(zip(lines[0], line)) for line in lines[2:]]


def heter(o: Any, seconds: float) -> Rows:
    """ringo's click models, CPU trainers and two servers: without a heter-trainer, with our own, and with one in PyTorch on the device."""
    rows, device, end = [], "torch-cpu" if o.cpu else "torch-cuda", time.monotonic() + seconds
    for model in ("ctr-dnn",) if o.cpu else ("ctr-dnn", "ctr-dnn-4096"):
        for where in ("", "cpu", device):
            size = ["--batch", "32", "--train-limit", "512"] if o.cpu else ["--batch", "512", "--train-limit", str(4 * 512 * 30)]
            more = ["--heter", "1", "--set", f"heter.device={where}"] if where else []
            job = ["train", model, "--np", "2" if o.cpu else "4", "--servers", "2", "--sync", "bsp", "--data", "synthetic", "--epochs", "2"]
            command = [o.ringo, *job, "--eval-limit", "64", "--threads", "1", "--progress", "none", "--json", "-", *size, *more]
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(1, end - time.monotonic()), stdin=subprocess.DEVNULL)
            epochs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event":"epoch"')]
            if done.returncode or not epochs:
                raise RuntimeError(f"heter {model} {where}: exit {done.returncode}: {done.stderr[-2000:]}")
            rows.append({"model": model, "heter-trainer": where or "none", "samples/s": epochs[-1]["samples_per_s"], "test loss": epochs[-1]["eval_loss"]})
            rows[-1]["of CPU trainers"] = rows[-1]["samples/s"] / next(row for row in rows if row["model"] == model)["samples/s"]
    return rows


PROGRAMS = {"heter": heter, "links": links}


def measure(o: Any) -> dict[str, Any]:
    """The rows of all cases, until the time is over."""
    end, found = time.monotonic() + o.seconds, {}
    for name in [*ALL, *PROGRAMS]:
        if o.only and name not in [*o.only, "check"]:
            continue
        found[name] = []
        for config in ALL[name][1] if name in ALL else [None]:
            if config and config.get("full") and o.cpu:
                continue
            left = end - time.monotonic()
            try:
                if left < 5:
                    raise subprocess.TimeoutExpired(name, 0)
                found[name] += PROGRAMS[name](o, left) if config is None else job(o, name, config, left)
            except subprocess.TimeoutExpired:
                found[name].append({"skipped": f"{config or ''}: {o.seconds:.0f} s are over"})
            except RuntimeError as fault:
                found[name].append({"failed": str(fault)})
        if name == "check" and any("failed" in row for row in found[name]):
            break
    return found


def table(rows: Rows) -> str:
    """Rows as Markdown."""
    head = list(dict.fromkeys(k for row in rows for k in row))

    def cell(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value).replace("\n", " ").replace("|", "/")[:300]

    cells = [[cell(row.get(k, "")) for k in head] for row in rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, ["---"] * len(head), *cells])


def card(o: Any) -> str:
    import torch

    return "none: a simulated device on the CPU, whose times mean nothing" if o.cpu else torch.cuda.get_device_name()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringo", default="ringo", help="the command")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the tables")
    parser.add_argument("--only", nargs="+", choices=[*ALL, *PROGRAMS], help="cases beside the check")
    parser.add_argument("--seconds", type=float, default=290, help="limit of all cases")
    parser.add_argument("--cpu", action="store_true", help="a simulated device and small sizes")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--config", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.rank:
        rank(o)
        return 0
    import torch

    if not o.cpu and not torch.cuda.is_available():
        raise SystemExit("there is no GPU: --cpu runs the script with a simulated device")
    about = {"date": datetime.date.today().isoformat(), "card": card(o), "torch": torch.__version__, "cores": os.cpu_count()}
    found = measure(o)
    o.out.mkdir(parents=True, exist_ok=True)
    (o.out / "gpu.json").write_text(json.dumps({**about, "cases": found}, indent=1) + "\n", encoding="utf-8")
    title = ", ".join(f"{k}: {v}" for k, v in about.items())
    docs = {name: function.__doc__ for name, (function, _) in ALL.items()} | {name: function.__doc__ for name, function in PROGRAMS.items()}
    text = f"{title}\n" + "".join(f"\n## {name}\n\n{docs[name]}\n\n{table(rows)}" for name, rows in found.items())
    (o.out / "gpu.md").write_text(text, encoding="utf-8")
    print(text)
    failed = [row["failed"] for rows in found.values() for row in rows if "failed" in row]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
