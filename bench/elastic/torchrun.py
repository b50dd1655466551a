"""A killed rank of examples/python/elastic.py under `ringo run --min-np` and under torchrun with DDP over gloo: the time to the next step.

Usage: python3 bench/elastic/torchrun.py RINGO [--rounds 3] [--every 100]. It alternates the launchers; each job of two ranks loses rank 1 by
SIGKILL once. torchrun restarts both processes, which load rank 0's last checkpoint; ringo run continues with one rank (--min-np 1) or with a new
process (--min-np 2), without checkpoints. It prints the median times from the kill to the first step, and to the first one that was not done
before, and the steps that are done twice. PYTHONPATH and RINGO_LIBRARY select package ringo.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "elastic.py"
STEP = re.compile(r"step (\d+) of \d+ ranks at ([\d.]+)")


def commands(ringo: str, folder: str, every: int) -> dict[str, list[str]]:
    program = [str(EXAMPLE), "--steps", "1000000"]
    elastic = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", "2", "--max_restarts", "1",
               "--monitor_interval", "0.1", "--redirects", "1", "--tee", "1", "--log_dir", f"{folder}/logs"]  # fmt: skip
    return {
        "ringo, a rank less": [ringo, "run", "--np", "2", "--min-np", "1", "--", sys.executable, *program],
        "ringo, a new process": [ringo, "run", "--np", "2", "--min-np", "2", "--", sys.executable, *program],
        "torchrun, gloo": [*elastic, *program, "--backend", "gloo", "--checkpoint", f"{folder}/run.pt", "--every", str(every)],
    }


def rank_one(job: int) -> int:
    """The process of rank 1 among all below the job's."""
    below = {job}
    for _ in range(3):
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(stat.read_text().rpartition(")")[2].split()[1]) in below:
                    below.add(int(stat.parent.name))
            except OSError:
                pass
    for pid in below - {job}:
        place = dict(v.partition("=")[::2] for v in Path(f"/proc/{pid}/environ").read_text().split("\0"))
        if place.get("RINGO_RANK", place.get("RANK")) == "1":
            return pid
    raise RuntimeError("there is no rank 1")


def once(command: list[str], at: int) -> tuple[float, float, int]:
    """Seconds from the kill after step at to the first step, and to the first new one, and the steps done twice."""
    env = dict(os.environ, OMP_NUM_THREADS="1")
    job = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    killed, last, first, twice, text = 0.0, -1, 0.0, 0, []
    try:
        for line in job.stdout:  # type: ignore[union-attr]
            found = STEP.search(line)
            if found is None:
                text.append(line)
                continue
            step, when = int(found[1]), float(found[2])
            if killed and when > killed and (step <= last or first or "of 1 ranks" in line or when - before > 0.05):
                first = first or when
                if step > last:
                    return first - killed, when - killed, twice
                twice += 1
            else:
                last, before = step, when
            if step == at and not killed:
                pid = rank_one(job.pid)
                killed = time.time()
                os.kill(pid, signal.SIGKILL)
        raise RuntimeError("the job has ended:\n" + "".join(text))
    finally:
        os.killpg(job.pid, signal.SIGTERM)
        try:
            job.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ringo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every", type=int, default=100, help="steps between torchrun's checkpoints")
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float, int]]] = {}
    for number in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, command in commands(args.ringo, folder, args.every).items():
                found.setdefault(name, []).append(once(command, 2 * args.every + (number * 2 + 1) * args.every // (2 * args.rounds)))
    for name, runs in found.items():
        first, new, twice = (statistics.median(values) for values in zip(*runs))
        worst = max(run[1] for run in runs)
        print(f"{name}: first step after {first:.2f} s, new step after {new:.2f} s (at most {worst:.2f}), {twice:g} steps done twice")


if __name__ == "__main__":
    main()
