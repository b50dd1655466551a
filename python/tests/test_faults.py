"""Ranks that die, differ or come late; forks, signals, and the end of Python."""

from __future__ import annotations

import signal
import time
import unittest

import numpy as np
import ringo
from ranks import processes, threads


class Faults(unittest.TestCase):
    def test_a_dead_rank_is_named(self) -> None:
        for transport in ("shm", "tcp"):
            with self.subTest(transport):
                ranks = processes(
                    3,
                    f"""
                    job = joined(transport={transport!r})
                    x = job.zeros(1000)
                    try:
                        job.world.allreduce(x)  # rank 1 may end while another has not completed it
                        if job.rank == 1:
                            print(time.time(), flush=True)
                            os.kill(os.getpid(), signal.SIGKILL)
                        while True:
                            job.world.allreduce(x)
                    except ringo.LostError as fault:
                        assert fault.rank == 1 and fault.operation == "allreduce", (fault, fault.rank)
                        assert "allreduce" in str(fault) and "rank 1" in str(fault), fault
                        print(time.time(), flush=True)
                    """,
                )
                ends = [r.end() for r in ranks]
                self.assertEqual([code for code, _ in ends], [0, -signal.SIGKILL, 0], ends)
                died, *told = (float(ends[r][1]) for r in (1, 0, 2))
                self.assertLess(max(told) - died, 5)  # a second is measured elsewhere: tests do not measure time

    def test_mismatch(self) -> None:
        def body(job: ringo.Job) -> None:
            with self.assertRaises(ringo.RingoError) as caught:
                job.world.allreduce(np.zeros(3 + job.rank, np.float32))
            self.assertIsInstance(caught.exception, (ringo.MismatchError, ringo.LostError))
            self.assertIn("allreduce", str(caught.exception))

        threads(2, body)

    def test_late(self) -> None:
        at, secret = ringo.address(), ringo.ticket()
        with self.assertRaises(ringo.RingoError):
            ringo.join(size=2, rank=0, rendezvous=at, ticket=secret, join_timeout=0.2)

    def test_fault_of_the_program(self) -> None:
        def body(job: ringo.Job) -> None:
            job.world.barrier()  # both are there
            if job.rank == 0:
                job.fail("the data ran out")
            else:
                with self.assertRaisesRegex(ringo.LostError, "the data ran out") as caught:
                    job.world.barrier()
                self.assertEqual(caught.exception.rank, 0)

        threads(2, body)

    def test_left(self) -> None:
        job = ringo.join()
        job.leave()
        job.leave()
        for call in (job.world.barrier, lambda: job.zeros(3), lambda: job.subgroup([0])):
            with self.assertRaises(ringo.ClosedError):
                call()

    def test_forks(self) -> None:
        (rank,) = processes(
            1,
            """
            import multiprocessing, subprocess
            job = joined()
            x = np.ones(10)
            def quiet(q): q.put(7)
            def loud(q):
                try: job.world.allreduce(x)
                except ringo.ForkedError as fault: q.put(str(fault))
            fork = multiprocessing.get_context("fork")
            for target, want in ((quiet, "7"), (loud, "fork")):
                q = fork.SimpleQueue()
                p = fork.Process(target=target, args=(q,))
                p.start()
                assert want in str(q.get())
                p.join()
                assert p.exitcode == 0
            assert subprocess.run([sys.executable, "-c", "import ringo; ringo.join().leave()"]).returncode == 0
            job.world.allreduce(x)
            """,
        )
        self.assertEqual(rank.end(), (0, ""))

    def test_library_stays(self) -> None:
        """dlclose leaves the library there, and it works."""
        (rank,) = processes(
            1,
            """
            import _ctypes
            from ringo._library import library
            for _ in range(3):
                try: _ctypes.dlclose(library()._handle)
                except OSError: break
            job = joined()
            job.world.allreduce(np.ones(3))
            """,
        )
        self.assertEqual(rank.end(), (0, ""))

    def test_interrupt(self) -> None:
        ranks = processes(
            2,
            """
            import signal
            signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs this may have it ignored
            job = joined()
            if job.rank == 0:
                print("waits", flush=True)
                try: job.world.barrier()
                except KeyboardInterrupt: print("interrupted")
            else:
                time.sleep(60)
            """,
        )
        out = ranks[0].process.stdout
        assert out is not None
        self.assertEqual(out.readline(), "waits\n")
        time.sleep(0.2)
        ranks[0].process.send_signal(signal.SIGINT)
        self.assertEqual(ranks[0].end(), (0, "interrupted\n"))
        ranks[1].process.kill()
        ranks[1].end()

    def test_python_ends_in_the_middle(self) -> None:
        for thread in (False, True):
            (rank, other) = processes(
                2,
                f"""
                import threading
                job = joined()
                if job.rank == 1: time.sleep(60)
                if {thread}: threading.Thread(target=job.world.barrier, daemon=True).start()
                else: job.world.start_allreduce(np.ones(1000))
                time.sleep(0.1)
                print("ends")
                """,
            )
            self.assertEqual(rank.end(), (0, "ends\n"))
            other.process.kill()
            other.end()


if __name__ == "__main__":
    unittest.main()
