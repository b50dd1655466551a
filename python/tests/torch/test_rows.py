"""Embeddings on a device, simulated on the CPU: losses with and without prefetching and a cache, and errors."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from ringo.torch._rows import Outbox, Place, RowCache
from test_start import run

PROGRAM = """
import sys, torch, torch.distributed as dist, ringo.torch
from contextlib import nullcontext
from unittest import mock
sys.path.insert(0, HERE)
from simulated import direct, force
def tell(*words):  # in one write, as other processes write to the same pipe
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
force(0.0005)
dist.init_process_group("ringo")
r, n = dist.get_rank(), dist.get_world_size()
def pair(name=""):
    return (ringo.torch.Embedding("bag" + name, 4, "sum", rule="sgd", lr=0.5, init="constant", value=0.25),
            ringo.torch.Embedding("rows" + name, 4, rule="sgd", lr=0.5, init="constant", value=0.5))
def connected(tables, *models, device=True, **more):
    \"\"\"Tables that go on with the connection of others, of which a job has one.\"\"\"
    with mock.patch.object(ringo.Job, "tables", lambda *_, **__: tables.rows), nullcontext() if device else direct():
        following = ringo.torch.Tables(*models, **more)
    if tables.outbox is not None:
        tables.outbox.drain()
    following.next_step = tables.next_step
    return following
"""

TRAINS = (
    PROGRAM
    + """
torch.manual_seed(r)
batches = [(k, k[:, 0]) for k in (torch.rand(12, 6, 5) * 4).exp().long()]
cache = dict(cache=64, sync="bsp")
variants = [(False, False, {}), (True, False, {}), (True, True, cache), (False, True, cache)]  # with a device, with prefetching
pairs, results = [pair(str(i)) for i in range(len(variants))], []
tables = ringo.torch.Tables(torch.nn.ModuleList(e for both in pairs for e in both))
for (device, prefetch, more), (bag, rows) in zip(variants, pairs):
    tables, result = connected(tables, bag, rows, device=device, **more), []
    for step, (keys, firsts) in enumerate(batches):
        loss = (torch.cat([bag(keys), rows(firsts)], 1) * torch.arange(1.0, 9.0)).tanh().sum()
        if prefetch and step + 1 < len(batches):
            bag.prefetch(batches[step + 1][0]), rows.prefetch(batches[step + 1][1])
        loss.backward()
        tables.step()
        if step % 4 == 3:
            with torch.no_grad():
                result += [float(loss), *(float((bag(keys) * 3).sum()) for _ in range(2))]
    results.append(result)
    assert result == results[0], (device, prefetch, more, results)
    report = tables.cache_report()
    assert report["training"]["lookups"] == 0 and (report["evaluation"]["hits"] > 0) == bool(more), report
assert len(set(results[0])) == 6, results  # two evaluations are equal
tell("rank", r, "is right")
dist.destroy_process_group()
"""
)

ERRORS = (
    PROGRAM
    + """
bag, rows = pair()
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
with direct():
    tables = ringo.torch.Tables(bag, rows)
keys = torch.ones(2, 3, dtype=torch.int64)
for device in (True, False):
    tables = connected(tables, bag, rows, device=device)
    at = f"rank {r}: embedding 'bag', step {tables.next_step}:"
    for wrong, text in (
        (keys.int(), f"pull: {at} keys (2, 3) int32 on cpu: want int64 on the CPU"),
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
                assert f"pull: {at} rows (1, 4) float32 on cpu: no memory" in str(fault), fault
            else:
                raise AssertionError("it had memory")
    bag(keys).sum().backward()
    tables.step()
at = f"rank {r}: embedding 'bag', step {tables.next_step}:"
try:
    (bag(keys) * float("nan")).sum().backward()
except ValueError as fault:
    assert f"push: {at} gradients (1, 4) float32 on cpu: 4 values are not finite" in str(fault), fault
else:
    raise AssertionError("it had pushed NaN")
tell("rank", r, "is right")
dist.destroy_process_group()
"""
)

BOUND = (
    PROGRAM
    + """
bag, rows = pair()
tables = ringo.torch.Tables(bag, rows, **MORE)
keys, got, lacks = [torch.full((1, 1), 7) for _ in range(10)], [], []
for step in range(9):
    out, ahead = bag(keys[step]), rows(keys[step])
    rows.prefetch(keys[step + 1])
    got.append(float(out[0, 0]))
    lacks.append(step - (0.5 - float(ahead[0, 0, 0])) / 0.5)
    (out.sum() + ahead.sum()).backward()
    tables.step()
tell("rank", r, "step", got, "hits", tables.caches["bag"].hits[0], "lacks", max(lacks))
dist.destroy_process_group()
"""
)

LEAVES = (
    PROGRAM
    + """
bag, _ = pair()
tables, keys = ringo.torch.Tables(bag), torch.ones(1, 1, dtype=torch.int64)
tables.place.device.delay = 0.2
out = (r + 1) * bag(keys).sum()
out.backward(retain_graph=True), (2 * out).backward()  # before the first gradient is copied
tables.step()
if r == 0:
    tell("rank 0 is at", float(bag(keys)[0, 0]))
    dist.destroy_process_group()  # rank 1 ends without this
"""
)

FAILS = (
    PROGRAM
    + """
bag, _ = pair()
tables, keys = ringo.torch.Tables(bag), [torch.ones(2, 3, dtype=torch.int64) for _ in range(4)]
tables.place.device.delay = 0.2  # the error follows the end of the step
try:
    for step, batch in enumerate(keys[:3]):
        out = bag(batch)
        bag.prefetch(keys[step + 1])
        (out * float("nan" if r == step == 1 else 1)).sum().backward()
        tables.step()
except RuntimeError as fault:
    tell("rank", r, "is told:", fault)
"""
)


@unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
class Rows(unittest.TestCase):
    def started(self, program: str, mode: str = "bsp", np: int = 2, **more: object) -> Any:
        constants = f"HERE, MORE = {str(Path(__file__).parent)!r}, {more}\n"
        return run("ringo", "run", "--np", str(np), "--servers", "1", "--sync", mode, "--", sys.executable, "-c", constants + program)

    def output(self, program: str, **more: Any) -> list[str]:
        done = self.started(program, **more)
        self.assertEqual(done.returncode, 0, done.stdout)
        return sorted(re.findall(r"rank \d (?:step|is).*", done.stdout))

    def test_bsp_has_the_same_bits(self) -> None:
        """With a device, with prefetching, and with a cache, which evaluations use."""
        self.assertEqual(self.output(TRAINS), ["rank 0 is right", "rank 1 is right"])

    def test_async_is_within_its_bound(self) -> None:
        """With one rank, a row of the cache lacks the gradients of as many steps as reuse, and with prefetch of one more: rule sgd, one key, a
        constant gradient.
        """
        for mode, reuse in (("async", 3), ("ssp", 1)):
            (line,) = self.output(BOUND, mode=mode, np=1, cache=16, reuse=reuse, sync=mode)
            fresh = [step - step % (reuse + 1) for step in range(9)]
            self.assertIn(f"step {[0.25 - 0.5 * s for s in fresh]}", line)
            hits = sum(f != s for s, f in enumerate(fresh))
            self.assertIn(f"hits {hits} lacks ", line)
            self.assertIn(float(line.rpartition(" ")[2]), (reuse, reuse + 1))

    def test_another_mode_is_named(self) -> None:
        done = self.started(PROGRAM + 'ringo.torch.Tables(*pair(), cache=4, sync="async")', np=1)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, "sync.*(async.*bsp|bsp.*async)")

    def test_gradients_are_sent_at_the_end(self) -> None:
        """Of each of two backward passes, and by a rank that ends without destroy_process_group."""
        self.assertEqual(self.output(LEAVES), [f"rank 0 is at {0.25 - 0.5 * 4.5}"])

    def test_an_error_on_the_thread_ends_the_job(self) -> None:
        """All ranks, which wait for rows that were requested in advance, get the error of rank 1."""
        began = time.monotonic()
        done = self.started(FAILS)
        self.assertLess(time.monotonic() - began, 60, done.stdout)
        self.assertNotEqual(done.returncode, 0)
        for r in range(2):
            self.assertRegex(done.stdout, f"rank {r} is told: .*push: rank 1: embedding 'bag', step 2: gradients .1, 4. float32 on cpu: 4 values are not finite")

    def test_errors(self) -> None:
        self.assertEqual(self.output(ERRORS, np=1), ["rank 0 is right"])


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
        sent: list[int] = []
        failed: list[str] = []
        outbox = Outbox(failed.append)
        outbox.put(lambda: sent.append(1))
        outbox.drain()
        with mock.patch.object(outbox, "_queue") as queue:
            outbox.drain()  # asks the thread only for what was put
        self.assertFalse(queue.mock_calls)
        outbox.put(lambda: 1 / 0)
        outbox.put(lambda: sent.append(2))
        for call in (outbox.drain, outbox.check, lambda: outbox.end_step(lambda: None)):
            self.assertRaises(ZeroDivisionError, call)
        self.assertEqual((sent, failed), ([1], ["ZeroDivisionError: division by zero"]))
        with self.assertLogs("ringo.torch"):
            outbox.finish()

    def test_the_thread_ends(self) -> None:
        outbox, until = Outbox(print), threading.Event()
        outbox.put(until.wait)
        thread = outbox._thread
        if (child := os.fork()) == 0:  # it has no thread, for which it would wait
            outbox.finish()
            os._exit(0)
        deadline = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
        if ended == (0, 0):
            os.kill(child, signal.SIGKILL)
        self.assertEqual(ended, (child, 0))
        until.set()
        outbox.finish()
        thread.join(20)
        self.assertFalse(thread.is_alive())


if __name__ == "__main__":
    unittest.main()
