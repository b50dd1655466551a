"""Programs that continue after the loss of a rank: examples/python/elastic.py, whose ranks are killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from test_start import environment, run

ELASTIC = Path(__file__).parents[3] / "examples" / "python" / "elastic.py"

DIES = """
import os, signal, sys
import torch, torch.distributed as dist, ringo.torch
dist.init_process_group("ringo")
for step in range(3):
    if step == 2 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))
"""

FAILS = """
import sys, torch.distributed as dist, ringo.torch
dist.init_process_group("ringo")
dist.destroy_process_group()
sys.exit(3)
"""

ALONE = """
import torch, torch.distributed as dist, ringo.torch
for want in ("no process group of `ringo run`", "no rank of this job is lost"):
    try:
        ringo.torch.reform()
    except ValueError as fault:
        assert want in str(fault), fault
    else:
        raise AssertionError(want)
    dist.is_initialized() or dist.init_process_group("ringo")
"""


def ranks_of(launcher: int) -> dict[int, int]:
    """The processes of a launcher's first ranks by their number."""
    found = {}
    for pid in " ".join(threads.read_text() for threads in Path(f"/proc/{launcher}/task").glob("*/children")).split():
        try:
            place = dict(v.partition("=")[::2] for v in Path(f"/proc/{pid}/environ").read_text().split("\0"))
        except OSError:
            continue
        if "RINGO_RANK" in place:
            found[int(place["RINGO_RANK"])] = int(pid)
    return found


@unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
class Reform(unittest.TestCase):
    def test_a_program_continues_without_killed_ranks(self) -> None:
        """With a rank less, and with a new process in place of rank 0. No step is left out, or done twice but for the one of the loss."""
        command = ["ringo", "run", "--np", "3", "--min-np", "2", "--", sys.executable, str(ELASTIC), "--steps", "700"]
        job = subprocess.Popen(command, env=environment(OMP_NUM_THREADS="1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.kill)
        victims, others, before, last = {100: 1, 300: 0}, [], (-1, 3), []
        for line in job.stdout:
            found = re.match(r"step (\d+) of (\d+) ranks", line)
            if found is None:
                others.append(line)
                continue
            step, size = map(int, found.groups())
            self.assertIn(step - before[0], (0, 1, 2) if last else (1,), line)  # 2: rank 0 was killed before it had printed a step
            if last:
                last = [] if step > before[0] else last
            if step in victims:
                ranks = ranks_of(job.pid)
                os.kill(ranks[victims.pop(step)], signal.SIGKILL)
                last = [step]
            before = (step, size)
        text = "".join(others)
        self.assertEqual((job.wait(60), before), (0, (699, 2)), text)
        self.assertRegex(text, r"rank 1 is lost \(killed by signal 9 \(SIGKILL\)\): the job goes on with 2 ranks, after")
        self.assertRegex(text, r"rank 0 is lost \(killed by signal 9 \(SIGKILL\)\): the job goes on with 2 ranks, after")

    def test_without_reform_a_loss_ends_the_job(self) -> None:
        begin = time.monotonic()
        done = run("ringo", "run", "--np", "3", "--min-np", "2", "--", sys.executable, "-c", DIES)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("ringo: rank 1 is lost: killed by signal 9 (SIGKILL)", done.stdout)
        self.assertIn("a program continues by ringo.torch.reform", done.stdout)
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_failure_after_the_group_fails_the_job(self) -> None:
        done = run("ringo", "run", "--np", "2", "--min-np", "1", "--", sys.executable, "-c", FAILS)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("exit status 3", done.stdout)

    def test_reform_needs_a_lost_rank(self) -> None:
        for launcher in (), ("ringo", "run", "--np", "1", "--"):
            done = run(*launcher, sys.executable, "-c", ALONE)
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
