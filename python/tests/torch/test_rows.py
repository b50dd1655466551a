"""Embeddings on a device, simulated on the CPU: losses with and without prefetching and a cache, and errors."""

from __future__ import annotations

import re
import shutil
import sys
import unittest
from pathlib import Path

import torch
from ringo.torch._rows import Outbox, Place, RowCache
from test_start import run

PROGRAM = """
import sys, torch, torch.distributed as dist, ringo.torch
from torch import nn
from unittest import mock
sys.path.insert(0, HERE)
from simulated import force
def tell(*words):  # in one write, as other processes write to the same pipe
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
if DEVICE:
    force(0.0005)
dist.init_process_group("ringo")
r, n = dist.get_rank(), dist.get_world_size()
bag = ringo.torch.Embedding("bag", 4, "sum", rule="sgd", lr=0.5, init="constant", value=0.25)
rows = ringo.torch.Embedding("rows", 4, rule="sgd", lr=0.5, init="constant", value=0.5)
"""

TRAINS = (
    PROGRAM
    + """
tables = ringo.torch.Tables(bag, rows, **MORE)
torch.manual_seed(r)
batches = [(k, k[:, 0]) for k in (torch.rand(12, 6, 5) * 4).exp().long()]
for step, (keys, firsts) in enumerate(batches):
    loss = (torch.cat([bag(keys), rows(firsts)], 1) * torch.arange(1.0, 9.0)).tanh().sum()
    if PREFETCH and step + 1 < len(batches):
        bag.prefetch(batches[step + 1][0]), rows.prefetch(batches[step + 1][1])
    loss.backward()
    tables.step()
    if step % 4 == 3:
        with torch.no_grad():
            for _ in range(2):
                tell("rank", r, "step", step, "loss", float(loss), "evaluated", float((bag(keys) * 3).sum()))
tell("rank", r, "cache", tables.cache_report())
dist.destroy_process_group()
"""
)

ERRORS = (
    PROGRAM
    + """
for more, text in (
    (dict(cache=4), f'Tables: rank {r}: cache 4, reuse 0, sync \\'\\': a cache needs the mode'),
    (dict(cache=4, reuse=1, sync="bsp"), "in bsp a row is outdated after its step"),
    (dict(reuse=1), "no reuse without a cache"),
    (dict(device="meta"), f"Tables: rank {r}: (0,) float32 on meta"),
):
    try:
        ringo.torch.Tables(bag, rows, **more)
    except ValueError as fault:
        assert text in str(fault), fault
    else:
        raise AssertionError(text)
tables = ringo.torch.Tables(bag, rows)
keys = torch.ones(2, 3, dtype=torch.int64)
for wrong, text in (
    (keys.int(), f"pull: rank {r}: embedding 'bag', step 1: keys (2, 3) int32 on cpu: want int64 on the CPU"),
    (keys.float(), "keys (2, 3) float32 on cpu"),
    (torch.empty(3, dtype=torch.int64, device="meta"), "keys (3,) int64 on meta: want int64 on the CPU"),
):
    try:
        bag(wrong)
    except TypeError as fault:
        assert text in str(fault), fault
    else:
        raise AssertionError(text)
from ringo.torch import _embedding
for kind in (_embedding.OutOfMemory, RuntimeError):
    with mock.patch.object(type(tables.place), "host", side_effect=kind("no memory")):
        try:
            bag(keys)
        except kind as fault:
            assert f"pull: rank {r}: embedding 'bag', step 1: rows (1, 4) float32 on cpu: no memory" in str(fault), fault
        else:
            raise AssertionError("it had memory")
bag(keys).sum().backward()
tables.step()
try:
    (bag(keys) * float("nan")).sum().backward()
    tables.step()
    tables.save()
except ValueError as fault:
    assert f"push: rank {r}: embedding 'bag', step 2: gradients (1, 4) float32 on cpu: 4 values are not finite" in str(fault), fault
else:
    raise AssertionError("it had pushed NaN")
tell("rank", r, "is right")
dist.group.WORLD.before_close.clear()  # which would log the error
tables.rows.close()
dist.destroy_process_group()
"""
)


@unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
class Rows(unittest.TestCase):
    def output(self, program: str, mode: str = "bsp", device: bool = True, prefetch: bool = True, np: int = 2, **more: object) -> list[str]:
        constants = f"HERE, DEVICE, PREFETCH, MORE = {str(Path(__file__).parent)!r}, {device}, {prefetch}, {more}\n"
        done = run("ringo", "run", "--np", str(np), "--servers", "1", "--sync", mode, "--", sys.executable, "-c", constants + program)
        self.assertEqual(done.returncode, 0, done.stdout)
        return sorted(line[line.index("rank ") :] for line in done.stdout.splitlines() if re.search(r"rank \d (step|cache|is)", line))

    def test_bsp_has_the_same_bits(self) -> None:
        """With a device, with prefetching, and with a cache, which evaluations use."""
        want = self.output(TRAINS, device=False, prefetch=False)
        self.assertEqual(len(want), 14)
        cache = {"cache": 64, "sync": "bsp"}
        for more in ({"prefetch": False}, cache, {"device": False, **cache}):
            with self.subTest(**more):
                lines = self.output(TRAINS, **more)
                self.assertEqual([line for line in lines if "loss" in line], [line for line in want if "loss" in line])
                if "cache" in more:
                    self.assertRegex(lines[0], r"'training': {'lookups': 0, .*'evaluation': {'lookups': \d+, 'hits': [1-9]")

    def test_async_is_within_its_bound(self) -> None:
        """With one rank, a row of the cache lacks the gradients of as many steps as reuse: rule sgd, one key, a constant gradient."""
        program = PROGRAM + """
tables = ringo.torch.Tables(bag, **MORE)
keys, got = torch.full((1, 1), 7), []
for step in range(9):
    out = bag(keys)
    got.append(float(out[0, 0]))
    out.sum().backward()
    tables.step()
tell("rank", r, "step", got, tables.cache_report()["training"])
dist.destroy_process_group()
"""
        for mode, reuse in (("async", 3), ("ssp", 1)):
            (line,) = self.output(program, mode, np=1, cache=16, reuse=reuse, sync=mode)
            fresh = [step - step % (reuse + 1) for step in range(9)]
            self.assertIn(f"step {[0.25 - 0.5 * s for s in fresh]}", line)
            hits = sum(f != s for s, f in enumerate(fresh))
            self.assertIn(f"'hits': {hits}", line)

    def test_another_mode_is_named(self) -> None:
        program = PROGRAM + 'ringo.torch.Tables(bag, cache=4, sync="async")'
        done = run("ringo", "run", "--np", "1", "--servers", "1", "--sync", "bsp", "--", sys.executable, "-c",
                   f"HERE, DEVICE = {str(Path(__file__).parent)!r}, False\n" + program)  # fmt: skip
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, "sync.*(async.*bsp|bsp.*async)")

    def test_errors(self) -> None:
        for device in (False, True):
            self.assertEqual(self.output(ERRORS, device=device, np=1), ["rank 0 is right"])


class Cache(unittest.TestCase):
    def test_rows_are_those_that_were_stored(self) -> None:
        """A naive twin, a dict without a limit, has each row that the cache finds; frequent keys are found often."""
        torch.manual_seed(1)
        cache, place, twin = RowCache(torch.zeros(64, 3), reuse=2), Place("cpu", 0), {}
        for step in range(1, 200):
            keys = torch.unique((torch.rand(40) * 7).exp().long() * 0x9E3779B97F4A7C1)
            rows, found = torch.rand(len(keys), 3), cache.find(keys, step, False)
            for key, hit, slot in zip(keys.tolist(), found.tolist(), cache.slots(keys).tolist()):
                if hit:
                    value, last = twin[key]
                    assert step <= last and torch.equal(cache.values[slot], value)
            missing = ~found
            cache.store(keys[missing], rows[missing], step, False, place)
            twin.update({k: (v, step + 2) for k, v in zip(keys[missing].tolist(), rows[missing])})
        self.assertGreater(cache.hits[0] / cache.lookups[0], 0.1)
        self.assertFalse(cache.find(keys, 199, True).any())  # none is of an evaluation

    def test_an_error_is_raised_later(self) -> None:
        outbox, sent = Outbox(), []
        outbox.put(lambda: sent.append(1))
        outbox.drain()
        outbox.put(lambda: 1 / 0)
        outbox.put(lambda: sent.append(2))
        for call in (outbox.drain, outbox.check, lambda: outbox.end_step(lambda: None)):
            self.assertRaises(ZeroDivisionError, call)
        self.assertEqual(sent, [1])


if __name__ == "__main__":
    unittest.main()
