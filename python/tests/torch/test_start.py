"""How programs start: by launchers, by hand, alone, and with several process groups in sequence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import ringo

AGAIN = """
import os, sys, time
import torch, torch.distributed as dist
import ringo.torch
folder, late, how = sys.argv[1:]
for k in range(3):
    if k:
        open(f"{folder}/{k}-{r}", "w").close()
        if r == 1 and k == 2 and how != "stays":
            if how == "raises":
                raise ValueError("of this rank")
            sys.exit(0)
    dist.init_process_group("ringo")
    r, n = dist.get_rank(), dist.get_world_size()
    x = torch.ones(3) * (r + 1)
    dist.all_reduce(x)
    assert x.tolist() == [n * (n + 1) / 2] * 3
    group = dist.new_group([n - 1])  # numbered as in the first round
    if r == n - 1:
        dist.all_reduce(x, group=group)
    other = (r + 1) % n
    while n > 1 and k < 2 and r == int(late[k]) and not os.path.exists(f"{folder}/{k + 1}-{other}"):
        time.sleep(0.01)  # the other rank begins the next group first
    dist.destroy_process_group()
print("rank", r, "of", n, "ends", flush=True)
"""

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in VARIABLES and not k.startswith(("RINGO_", "OMPI_", "PMI", "SLURM_")) or k == "RINGO_LIBRARY"}
    return dict(kept, PYTHONPATH=str(Path(ringo.__file__).parents[1]), **more)


def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)


class Start(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def again(self, late: str, how: str) -> tuple[str, ...]:
        """The command of AGAIN, in a folder of its own. late has the rank that leaves each of the first two groups late."""
        return (sys.executable, "-c", AGAIN, tempfile.mkdtemp(dir=self.folder), late, how)

    def by_hand(self, late: str, how: str) -> list[tuple[int, str]]:
        """Two ranks by PyTorch's variables: their exit status and output."""
        address, _, port = ringo.address().rpartition(":")
        command, started = self.again(late, how), []
        for rank in range(2):
            place = environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR=address, MASTER_PORT=port)
            started.append(subprocess.Popen(command, env=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        texts = [p.communicate(timeout=200)[0] for p in started]
        return [(p.returncode, text) for p, text in zip(started, texts)]

    def test_groups_in_sequence_by_hand(self) -> None:
        """Each rank is once the one that leaves a group late."""
        for rank, (status, text) in enumerate(self.by_hand("01", "stays")):
            self.assertEqual(status, 0, text)
            self.assertIn(f"rank {rank} of 2 ends", text)

    def test_a_rank_that_has_ended_is_named(self) -> None:
        for how in ("raises", "exits"):
            with self.subTest(how):
                status, text = self.by_hand("00", how)[0]
                self.assertEqual(status, 1, text)
                self.assertIn("init_process_group: rank 1: its process has ended", text)

    @unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
    def test_groups_in_sequence_by_ringo_run(self) -> None:
        for np, late in ((1, "00"), (3, "20")):
            with self.subTest(np=np, late=late):
                done = run("ringo", "run", "--np", str(np), "--", *self.again(late, "stays"))
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertEqual(done.stdout.count(f"of {np} ends"), np, done.stdout)

    @unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
    def test_a_rank_that_has_ended_ends_ringo_run(self) -> None:
        done = run("ringo", "run", "--np", "2", "--", *self.again("00", "raises"))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("init_process_group: rank 1: its process has ended", done.stdout)

    @unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
    def test_another_algorithm_than_the_launchers_is_refused(self) -> None:
        """And another transport."""
        program = (
            'import ringo.torch as t, torch, torch.distributed as d; d.init_process_group("ringo", pg_options=t.Options(algorithm="ring", '
            'transport="tcp")); x = torch.ones(5); d.all_reduce(x); assert x[0] == 2'
        )
        for algorithm, transport, want in (
            ("naive", "tcp", "algorithm 'ring': the launcher's ranks use 'naive'"),
            ("ring", "shm", "transport 'tcp': the launcher's ranks use 'shm'"),
            ("ring", "tcp", ""),
        ):
            more = ("--collective-algorithm", algorithm, "--transport", transport)
            done = run("ringo", "run", "--np", "2", *more, "--", sys.executable, "-c", program)
            self.assertEqual(done.returncode, 1 if want else 0, done.stdout)
            self.assertIn(want, done.stdout)

    @unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
    def test_servers_end_with_the_first_group(self) -> None:
        program = """
import torch, torch.distributed as dist, ringo.torch
for want in ("", "the parameter servers have ended"):
    dist.init_process_group("ringo")
    model = torch.nn.Sequential(ringo.torch.Embedding("users", 4))
    try:
        tables = ringo.torch.Tables(model)
        model(torch.tensor([1, 2])).sum().backward()
        tables.step()
        print("trained", flush=True)
    except ValueError as fault:
        assert want and want in str(fault), fault
        print("refused", flush=True)
    dist.destroy_process_group()
"""
        done = run("ringo", "run", "--np", "2", "--servers", "1", "--sync", "bsp", "--", sys.executable, "-c", program)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual((done.stdout.count("trained"), done.stdout.count("refused")), (2, 2), done.stdout)

    @unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
    def test_a_wait_for_a_killed_rank_ends_with_the_timeout(self) -> None:
        program = """
import datetime, os, signal, torch.distributed as dist, ringo.torch
ringo.torch._start._SLOW = 1
for k in range(2):
    if k and r == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.init_process_group("ringo", timeout=datetime.timedelta(seconds=3 if k else 60))
    r = dist.get_rank()
    dist.destroy_process_group()
"""
        done = run("ringo", "run", "--np", "2", "--", sys.executable, "-c", program)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("waiting for rank 1", done.stdout)
        self.assertIn("rank 1 has not called it within 3 s", done.stdout)

    def test_alone_is_a_job_of_one(self) -> None:
        done = run(*self.again("00", "stays"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("rank 0 of 1 ends", done.stdout)

    def test_an_incomplete_place_is_named(self) -> None:
        """And a place other than that of init_process_group."""
        program = """
import os, ringo.torch, torch.distributed as dist
def pytorch(**more): dist.init_process_group("ringo", **more)
for start, more, place, want in (
    (pytorch, {}, {"MASTER_ADDR": "127.0.0.1"}, "MASTER_PORT, RANK, WORLD_SIZE: not set, but MASTER_ADDR=127.0.0.1"),
    (pytorch, {}, {"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is not set"),
    (pytorch, {}, {"WORLD_SIZE": "2"}, "WORLD_SIZE=2: no other variable places this process"),
    (ringo.join, {}, {"WORLD_SIZE": "2"}, "WORLD_SIZE=2: no other variable places this process"),
    (ringo.join, {}, {"RINGO_WORLD_SIZE": "2"}, "RINGO_WORLD_SIZE=2: no other variable places this process"),
    (ringo.join, {}, {"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not set"),
    (pytorch, {"rank": 1, "world_size": 2}, {}, "rank 1, world_size 2: this process is rank 0 of 1"),
):
    os.environ.update(place)
    try:
        start(**more)
    except (ValueError, RuntimeError) as fault:
        assert want in str(fault), fault
    else:
        raise AssertionError(want)
    for name in place:
        del os.environ[name]
"""
        done = run(sys.executable, "-c", program)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
