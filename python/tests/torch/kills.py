"""Kills random ranks at random times, and counts in how many jobs every survivor's exception names the dead one.

Usage: python3 kills.py [--times 200] [--seed 1]. It is no part of the quick tests: 200 take a few minutes. RINGO_LIBRARY says where libringo
is, unless a wheel has it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import numpy as np
import ringo
import ringo.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def arrays(job: ringo.Job) -> Callable[[], Any]:
    """Operations on NumPy arrays, some in shared memory and some not, a few of them under way at a time."""
    shared, own, every = job.zeros(20000), np.zeros(3000), job.zeros((job.size, 500))

    def step() -> None:
        works = [job.world.start_allreduce(shared), job.world.start_allreduce(own, "max")]
        job.world.allgather(every, every[job.rank])
        job.world.broadcast(own[:10], root=0) if works[1].wait() else None
        works[0].wait()
        job.world.barrier()

    return step


def training(_: ringo.Job) -> Callable[[], Any]:
    """Steps of DDP."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 200)), bucket_cap_mb=0.1)
    x = torch.randn(8, 30)
    return lambda: model(x).sum().backward()


def compressed(_: ringo.Job) -> Callable[[], Any]:
    """Steps of DDP with compressed gradients."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 200)), bucket_cap_mb=0.1)
    ringo.torch.hook("dlgs", 0.05).register(model)
    x = torch.randn(8, 30)
    return lambda: model(x).sum().backward()


def rank(r: int, n: int, what: str, transport: str, store: str, pipe: Any) -> None:
    """Works until it fails, and tells of whom the exception says that it is dead."""
    torch.set_num_threads(1)
    dist.init_process_group("ringo", init_method=f"file://{store}", rank=r, world_size=n, pg_options=ringo.torch.Options(transport=transport))
    step = WORK[what](dist.group.WORLD._group.job)
    step()
    pipe.send("works")
    try:
        while True:
            step()
    except RuntimeError as fault:  # DDP's has the text alone
        pipe.send((getattr(fault, "rank", None), str(fault)))
    dist.destroy_process_group()  # as at the end of a program: rank 0, which coordinates the job, tells the others before it goes


WORK = {"arrays": arrays, "training": training, "compressed": compressed}


def heard(pipe: Any, seconds: float) -> Any:
    """What a rank says, None if it says nothing in time, or ends."""
    try:
        return pipe.recv() if pipe.poll(seconds) else None
    except EOFError:
        return None


def once(draw: random.Random, folder: str, number: int) -> tuple[str, str]:
    """One job: what it was, and what was wrong, "" if nothing."""
    n, what, transport = draw.choice((2, 3, 4)), draw.choice(sorted(WORK)), draw.choice(("shm", "tcp"))
    victim, fork = draw.randrange(n), get_context("fork")
    about = f"{n} ranks, {what}, {transport}, rank {victim} is killed"
    pipes, ranks = [], []
    for r in range(n):
        here, there = fork.Pipe()
        pipes.append(here)
        ranks.append(fork.Process(target=rank, args=(r, n, what, transport, os.path.join(folder, str(number)), there)))
        ranks[-1].start()
        there.close()
    try:
        for r, pipe in enumerate(pipes):
            if heard(pipe, 90) != "works":
                return about, f"rank {r} does not work"
        time.sleep(draw.random() * 0.2)
        os.kill(ranks[victim].pid or 0, signal.SIGKILL)
        since = time.monotonic()
        for r, pipe in enumerate(pipes):
            if r == victim:
                continue
            told = heard(pipe, max(0.1, 30 - (time.monotonic() - since)))
            if told is None:
                return about, f"rank {r} does not notice"
            named, text = told
            if f"rank {victim} is lost" not in text or named not in (victim, None):
                return about, f"rank {r}: {named}: {text}"
        return about, "" if time.monotonic() - since < 5 else f"it took {time.monotonic() - since:.1f} s"
    finally:
        for process in ranks:
            process.kill()
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default=os.environ.get("TMPDIR", "/tmp"))
    args = parser.parse_args()
    draw, wrong, kinds = random.Random(args.seed), 0, Counter[str]()
    for i in range(args.times):
        about, fault = once(draw, args.folder, i)
        kinds[about.split(", ")[1]] += 1
        if fault:
            wrong += 1
            print(f"job {i} ({about}): {fault}", flush=True)
    print(f"{args.times - wrong} of {args.times} deaths have their right name in every survivor's exception: {dict(kinds)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
