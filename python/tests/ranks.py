"""Starts the ranks of a job for tests: as threads of this process, or as processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import ringo

PRELUDE = """
import os, signal, sys, time
import numpy as np
import ringo
def joined(**more):
    e = os.environ
    return ringo.join(size=int(e["SIZE"]), rank=int(e["RANK"]), rendezvous=e["AT"], ticket=e["SECRET"], **more)
"""


def threads(n: int, body: Callable[[ringo.Job], None], **options: object) -> None:
    """Runs body on n ranks, threads of this process, and raises the first fault of any."""
    at, secret = ringo.address(), ringo.ticket()
    faults: list[tuple[int, BaseException]] = []

    def rank(r: int) -> None:
        try:
            with ringo.join(size=n, rank=r, rendezvous=at, ticket=secret, timeout=20, **options) as job:  # type: ignore[arg-type]
                body(job)
        except BaseException as fault:
            faults.append((r, fault))

    all_ranks = [threading.Thread(target=rank, args=(r,)) for r in range(n)]
    for t in all_ranks:
        t.start()
    for t in all_ranks:
        t.join(60)
    for r, fault in faults:
        raise AssertionError(f"rank {r}: {fault!r}") from fault


class Process:
    """A rank as a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def end(self, timeout: float = 30) -> tuple[int, str]:
        """Its exit status, and what it has written."""
        try:
            text, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            text, _ = self.process.communicate()
            return -999, "it did not end:\n" + text
        return self.process.returncode, text


def processes(n: int, program: str) -> list[Process]:
    """Starts a program as n ranks. It calls joined() to become one."""
    env = dict(os.environ, SIZE=str(n), AT=ringo.address(), SECRET=ringo.ticket(), PYTHONPATH=str(Path(ringo.__file__).parents[1]))
    env["PYTHONFAULTHANDLER"] = "1"
    text = PRELUDE + textwrap.dedent(program)
    started = []
    for r in range(n):
        process = subprocess.Popen(
            [sys.executable, "-c", text], env=dict(env, RANK=str(r)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(Process(process))
    return started
