"""Starts ranks with PyTorch for tests: forks, as to load PyTorch takes seconds. This process must not have loaded libringo."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import ringo.torch
import torch
import torch.distributed as dist


def _rank(rank: int, n: int, path: str, body: Callable[..., Any], out: Any, options: Any, prepare: Callable[[int], Any] | None) -> None:
    torch.set_num_threads(1)
    try:
        if prepare is not None:
            prepare(rank)
        dist.init_process_group("ringo", init_method=f"file://{path}", rank=rank, world_size=n, timeout=timedelta(seconds=30), pg_options=options)
        result = body()
        if dist.is_initialized():
            dist.destroy_process_group()
        out.put((rank, "", result))
    except BaseException:
        out.put((rank, traceback.format_exc(), None))


def ranks(
    n: int,
    body: Callable[[], Any],
    options: ringo.torch.Options | None = None,
    dead: tuple[int, ...] = (),
    prepare: Callable[[int], Any] | None = None,
) -> dict[int, Any]:
    """Runs body on n ranks of backend ringo, and returns what each returns. Those of dead are killed. Errors: the first of any.

    prepare is called with the rank before the process group begins.
    """
    fork = multiprocessing.get_context("fork")
    out = fork.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")
        started = [fork.Process(target=_rank, args=(r, n, path, body, out, options, prepare), daemon=False) for r in range(n)]
        for p in started:
            p.start()
        results: dict[int, Any] = {}
        while len(results) < n - len(dead):
            rank, fault, result = out.get()
            if fault:
                for p in started:
                    p.kill()
                raise AssertionError(f"rank {rank}: {fault}")
            results[rank] = result
        for p in started:
            p.join(30)
    for r, p in enumerate(started):
        if r not in dead and p.exitcode != 0:
            raise AssertionError(f"rank {r} ends with {p.exitcode}")
    return results
