"""Every operation on every type, against NumPy; what is refused; subgroups, works and memory."""

from __future__ import annotations

import threading
import unittest
from functools import reduce as fold

import numpy as np
import ringo
from ranks import threads

KINDS = ("float32", "float64", "int32", "int64", "uint8", "float16")
OPS = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}


def values(rank: int, n: int, kind: str) -> np.ndarray:
    """Small whole numbers, so that sums and products are exact in each type."""
    return ((np.arange(n) * (rank + 2)) % 3 + 1).astype(kind)


class Operations(unittest.TestCase):
    def everywhere(self, body, sizes=(2, 3), **options) -> None:
        for n in sizes:
            for transport in ("shm", "tcp"):
                with self.subTest(ranks=n, transport=transport):
                    threads(n, body, transport=transport, **options)

    def test_reductions(self) -> None:
        def body(job: ringo.Job) -> None:
            for kind in KINDS:
                for name, function in OPS.items():
                    for n in (0, 1, 1000):
                        want = fold(function, [values(r, n, kind) for r in range(job.size)])
                        x = values(job.rank, n, kind)
                        job.world.allreduce(x, name)
                        np.testing.assert_array_equal(x, want)
                        x = values(job.rank, n, kind)
                        job.world.reduce(x, name, root=1)
                        np.testing.assert_array_equal(x, want if job.rank == 1 else values(job.rank, n, kind))
                src, dst = values(job.rank, 40 * job.size, kind), np.empty(40, kind)
                job.world.reduce_scatter(dst, src)
                want = fold(np.add, [values(r, 40 * job.size, kind) for r in range(job.size)])
                np.testing.assert_array_equal(dst, want[40 * job.rank :][:40])
            x = np.full((3, 5), float(job.rank))
            job.world.allreduce(x, ringo.Op.MEAN)
            np.testing.assert_array_equal(x, np.full((3, 5), (job.size - 1) / 2))

        self.everywhere(body)

    def test_algorithms(self) -> None:
        def body(job: ringo.Job) -> None:
            group = job.subgroup(range(job.size))
            self.assertEqual((job.world.algorithm, group.algorithm), (want, want))
            for w in (job.world, group):
                x = values(w.rank, 1000, "float32")
                w.allreduce(x)
                np.testing.assert_array_equal(x, fold(np.add, [values(r, 1000, "float32") for r in range(w.size)]))

        for want, options in {"ring": {"algorithm": "ring"}, "naive": {"algorithm": "naive"}, "auto": {}}.items():
            self.everywhere(body, **options)
        with self.assertRaisesRegex(ringo.InvalidError, '"rng" is not known .*: want one of auto, ring, doubling'):
            ringo.join(algorithm="rng")

    def test_moves(self) -> None:
        def body(job: ringo.Job) -> None:
            w, n = job.world, 30
            for kind in KINDS:
                each = [values(r, n, kind) for r in range(w.size)]
                x = each[w.rank].copy()
                w.broadcast(x, root=1)
                np.testing.assert_array_equal(x, each[1])
                dst = np.empty((w.size, n), kind)
                w.allgather(dst, each[w.rank])
                np.testing.assert_array_equal(dst, each)
                counts = [r + 1 for r in range(w.size)]
                parts = np.empty(sum(counts), kind)
                w.allgatherv(parts, each[w.rank][: w.rank + 1], counts)
                np.testing.assert_array_equal(parts, np.concatenate([each[r][: r + 1] for r in range(w.size)]))
                root = w.rank == 1
                dst = np.empty((w.size, n), kind)
                w.gather(dst if root else None, each[w.rank], root=1)
                if root:
                    np.testing.assert_array_equal(dst, each)
                x = np.empty(n, kind)
                w.scatter(x, np.stack(each) if root else None, root=1)
                np.testing.assert_array_equal(x, each[w.rank])
                src = np.stack([each[w.rank] + r for r in range(w.size)]).astype(kind)
                dst = np.empty_like(src)
                w.alltoall(dst, src)
                np.testing.assert_array_equal(dst, [(each[r] + w.rank).astype(kind) for r in range(w.size)])
            w.barrier()

        self.everywhere(body)

    def test_alltoallv(self) -> None:
        def body(job: ringo.Job) -> None:
            w = job.world
            outs = [w.rank + r for r in range(w.size)]  # to rank r
            src = np.concatenate([np.full(n, 10 * w.rank + r) for r, n in enumerate(outs)])
            dst = np.empty(sum(outs), src.dtype)
            w.alltoallv(dst, outs, src, outs)  # r + q is symmetric
            want = np.concatenate([np.full(w.rank + r, 10 * r + w.rank) for r in range(w.size)])
            np.testing.assert_array_equal(dst, want)

        self.everywhere(body)

    def test_two_ranks(self) -> None:
        def body(job: ringo.Job) -> None:
            after, before = (job.rank + 1) % job.size, (job.rank - 1) % job.size
            x, y = np.full(100_000, job.rank), np.empty(100_000, int)
            sent = job.world.start_send(x, after)
            job.world.receive(y, before)
            sent.wait()
            self.assertTrue((y == before).all())

        self.everywhere(body)

    def test_works(self) -> None:
        def body(job: ringo.Job) -> None:
            arrays = [np.full(5000, job.rank + i, np.float32) for i in range(200)]
            works = [job.world.start_allreduce(x) for x in arrays]
            for i in reversed(range(len(works))):
                self.assertTrue(works[i].wait())
                self.assertTrue(works[i].wait(1) and works[i].test())  # again
                self.assertEqual(arrays[i][7], sum(range(job.size)) + i * job.size)
            for i in range(300):  # nobody waits: operands live until they have ended
                last = job.world.start_allreduce(np.ones(2000, np.float32))
            last.wait()
            shared = [job.world.start_allreduce(np.ones(2000, np.float32)) for _ in range(500)]  # two threads wait, and starts look at old ones
            other = threading.Thread(target=lambda: [w.wait() for w in shared])
            other.start()
            for w in shared:
                w.wait()
                job.world.start_allreduce(np.ones(8, np.float32))
            other.join()
            job.world.barrier()
            if job.rank == 0:
                late = job.world.start_barrier()
                self.assertFalse(late.wait(0.01) or late.test())
                job.world.send(np.zeros(1), 1)
                late.wait()
            elif job.rank == 1:
                job.world.receive(np.zeros(1), 0)
                job.world.barrier()
            else:
                job.world.barrier()
            job.world.allreduce(np.ones(3))  # and all before it

        self.everywhere(body)

    def test_subgroups(self) -> None:
        def body(job: ringo.Job) -> None:
            if job.rank != 1:
                g = job.subgroup([2, 0])
                x = np.array([g.rank], np.int32)
                g.broadcast(x, root=0)
                self.assertEqual((x[0], g.size, g.ranks), (0, 2, (2, 0)))
                g.barrier()
                g.close()
                with self.assertRaises(ringo.ClosedError):
                    g.barrier()
            job.world.barrier()

        self.everywhere(body, sizes=(3,))

    def test_memory(self) -> None:
        kept = []

        def body(job: ringo.Job) -> None:
            x = job.zeros((100, 1000))
            self.assertEqual((x.shape, x.dtype, x.any()), ((100, 1000), np.float32, False))
            x += job.rank
            job.world.allreduce(x)
            self.assertTrue((x == sum(range(job.size))).all())
            kept.append(x[1])
            for _ in range(1000):
                job.zeros(1 << 20, "uint8")

        self.everywhere(body)
        self.assertGreaterEqual(sum(float(x.sum()) for x in kept), -np.inf)  # may still be touched

    def test_strategy(self) -> None:
        def body(job: ringo.Job) -> None:
            strategy = ringo.Strategy(job.world, "dlgs", {"a": 100, "b": 50}, density=0.1)
            strategy.arrange([["b"], ["a"]])
            x = (np.arange(100) * (job.rank + 1) % 17).astype(np.float32)
            left, total = x.copy(), x.copy()
            strategy.exchange(1, left)
            self.assertLess(np.count_nonzero(left), 60)
            kept = strategy.state_dict()["a"]
            for part in (total, kept):
                job.world.allreduce(part)
            np.testing.assert_allclose(left * job.size + kept, total, rtol=1e-6)
            strategy.load_state_dict({"a": np.zeros(100)})
            self.assertFalse(strategy.state_dict()["a"].any())
            for call in (lambda: strategy.exchange(1, x[:7]), lambda: strategy.arrange([["c"]]), lambda: ringo.Strategy(job.world, "no", {"a": 1})):
                with self.assertRaises(ringo.InvalidError):
                    call()
            job.world.barrier()
            strategy.close()

        self.everywhere(body)

    def test_names_of_reductions(self) -> None:
        def body(job: ringo.Job) -> None:
            for op in ("max", "MAX", ringo.Op.MAX, 3):
                x = np.full(3, job.rank, np.float32)
                job.world.allreduce(x, op)
                self.assertEqual(list(x), [1.0] * 3, op)

        threads(2, body)

    def test_exit_with_status_0(self) -> None:
        """sys.exit(0) leaves in good order; the error of a rank that waits begins with the one that left."""

        def body(job: ringo.Job) -> None:
            if job.rank == 1:
                job.__exit__(SystemExit, SystemExit(0), None)
                return
            with self.assertRaisesRegex(ringo.LostError, "^rank 1 ended early: it left the job, but rank 0 waits for it in allreduce 0: all ranks must start"):
                job.world.allreduce(np.zeros(9, np.float32))

        threads(2, body)

    def test_refused(self) -> None:
        x = np.zeros(4, np.float32)
        fixed = np.zeros(4)
        fixed.flags.writeable = False
        wrong = {
            "complex": lambda w: w.allreduce(x.astype(complex)),
            "^allreduce: 'nonsense' is not a reduction: want one of sum, mean, min, max, prod$": lambda w: w.allreduce(x, "nonsense"),
            "True is not a reduction: want one of": lambda w: w.allreduce(x, True),
            r"^reduce: 1\.0 is not a reduction: want one of": lambda w: w.reduce(x, 1.0),
            "None is not a reduction": lambda w: w.reduce_scatter(x.copy(), x, None),
            "7 is not a reduction": lambda w: w.allreduce(x, 7),
            "^send: 4294967296 is not a rank of the group: want a number from 0 to 0$": lambda w: w.send(x, 2**32),
            "receive: '0' is not a rank": lambda w: w.receive(x, "0"),
            "scatter: -1 is not a rank": lambda w: w.scatter(x, None, root=-1),
            "reduce: True is not a rank": lambda w: w.reduce(x, root=True),
            "not list": lambda w: w.allreduce([1.0]),
            "read-only": lambda w: w.allreduce(fixed),
            "behind the other": lambda w: w.allreduce(np.zeros((4, 4))[:, 1]),
            "different types": lambda w: w.allgather(np.zeros(4), x),
            "parts? for each": lambda w: w.allgather(np.zeros(9, np.float32), x),
            "root": lambda w: w.gather(None, x),
            "multiple": lambda w: w.alltoall(np.zeros(4), np.zeros(5)),
            "count for each": lambda w: w.allgatherv(x, x, [1, 3]),
            "broadcast: 9 is not a rank": lambda w: w.broadcast(x, root=9),
        }

        def body(job: ringo.Job) -> None:
            for text, call in wrong.items():
                with self.subTest(text), self.assertRaisesRegex(ringo.InvalidError, text):
                    call(job.world)
            job.world.allreduce(x.copy())
            with self.assertRaises(ringo.InvalidError):
                job.subgroup([0, 7])

        threads(1, body)


if __name__ == "__main__":
    unittest.main()
