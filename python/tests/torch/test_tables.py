"""Embeddings and tables on parameter servers that `ringo run` starts."""

from __future__ import annotations

import shutil
import sys
import tempfile
import unittest

from test_start import run

EMBEDDINGS = """
import torch, torch.distributed as dist, ringo.torch
from torch import nn
dist.init_process_group("ringo")
r, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(r)
pairs = []
for mode in (None, "sum", "mean"):
    rows = ringo.torch.Embedding(str(mode), 4, mode, rule="sgd", lr=0.5, init="constant", value=0.25)
    plain = nn.Embedding(20, 4) if mode is None else nn.EmbeddingBag(20, 4, mode=mode)
    nn.init.constant_(plain.weight, 0.25)
    pairs.append((rows, plain))
tables = ringo.torch.Tables(*(rows for rows, _ in pairs))
batches = [torch.randint(20, (3, 5)) for _ in range(4)]
for step, keys in enumerate(batches):
    for rows, plain in pairs:
        got, want = rows(keys), plain(keys)
        torch.testing.assert_close(got, want)
        if step + 1 < len(batches):
            rows.prefetch(batches[step + 1])
        (got * torch.arange(1.0, 5.0)).sum().backward()
        plain.zero_grad()
        (want * torch.arange(1.0, 5.0)).sum().backward()
        dist.all_reduce(plain.weight.grad)
        with torch.no_grad():
            plain.weight -= 0.5 * plain.weight.grad / n
    tables.step()
for rows, plain in pairs:
    assert not list(rows.state_dict()) and not list(rows.parameters())
    with torch.no_grad():
        torch.testing.assert_close(rows(batches[0]), plain(batches[0]))
        assert (rows(torch.full((1, 5), 2**40)) != 0).all()  # the first weights of a row that is not there
numbers = tables.save()
assert len(numbers) == 2, numbers
print("rank", r, "agrees", flush=True)
dist.destroy_process_group()
"""

ARRAYS = """
import numpy as np, ringo
with ringo.join() as job:
    rows = job.tables(ringo.Table("t", 2, rule="sgd", lr=0.5, init="constant", value=1.0))
    keys, mean = np.array([3, 2**63, 5], np.uint64), (1 + job.size) / 2
    for step in (1, 2, 3):
        got = rows.pull("t", step, keys)
        np.testing.assert_array_equal(got, np.full((3, 2), 1 - 0.5 * mean * (step - 1), np.float32))
        rows.push("t", step, keys, np.full((3, 2), 1.0 + job.rank, np.float32))
        rows.clock(step)
    rows.flush()
    assert len(rows.save(3)) == job.servers == 2
    print("rank", job.rank, "agrees", flush=True)
"""


@unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
class Tables(unittest.TestCase):
    def agree(self, program: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            servers = ("--servers", "2", "--sync", "bsp", "--ps-durability", "checkpoint", "--ps-dir", folder)
            done = run("ringo", "run", "--np", "2", *servers, "--", sys.executable, "-c", program)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("agrees"), 2, done.stdout)

    def test_embeddings_are_those_of_pytorch(self) -> None:
        self.agree(EMBEDDINGS)

    def test_arrays(self) -> None:
        self.agree(ARRAYS)


if __name__ == "__main__":
    unittest.main()
