"""Tests of what needs no Redis: python3 -m unittest discover -s bench/redis"""
import argparse, contextlib, io, json, os, sys, unittest, unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare
from compare import Setting

CSV = '''"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"MGET __rand_int__ __rand_int__","7936.51","0.061","0.008","0.039","0.071","0.879","3.759"
'''


def options(line):
    with unittest.mock.patch.object(sys, "argv", ["program", *line.split()]), contextlib.redirect_stderr(io.StringIO()):
        return compare.options()


class Options(unittest.TestCase):
    def test_defaults(self):
        o = options("")
        self.assertEqual((o.rounds, o.keys, o.batch), (5, 1_000_000, 4096))

    def test_what_cannot_be_is_refused(self):
        for line in ("--rounds 0", "--time 0", "--search -1", "--batch 0", "--keys 1000", "--keys none"):
            with self.subTest(line), self.assertRaises(SystemExit):
                options(line)

    def test_a_missing_redis_is_named(self):
        with unittest.mock.patch.object(compare.shutil, "which", lambda _: None), self.assertRaises(SystemExit) as e:
            compare.tool("redis-server")
        self.assertIn("no redis-server", str(e.exception))
        self.assertIn("apt-get install redis-server", str(e.exception))


class Protocol(unittest.TestCase):
    def test_commands(self):
        self.assertEqual(compare.encode("MSET", b"k", b"a\r\nb"), b"*3\r\n$4\r\nMSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n")
        self.assertEqual(compare.key(42), b"000000000042")

    def test_answers(self):
        lines = io.BytesIO(b"+OK\r\n:17\r\n$4\r\na\r\nb\r\n$-1\r\n")
        self.assertEqual([compare.decode(lines) for _ in range(4)], ["OK", 17, b"a\r\nb", None])

    def test_errors_end(self):
        for text in (b"-ERR no such command\r\n", b"", b"+O"):
            with self.subTest(text), self.assertRaises(SystemExit):
                compare.decode(io.BytesIO(text))


class Benchmark(unittest.TestCase):
    def command(self, name, setting):
        with unittest.mock.patch.object(compare, "tool", lambda n: n):
            return compare.benchmark(7, name, setting, 100, 1000)

    def test_every_key_of_a_command_is_random(self):
        got = self.command("MGET", Setting(keys=3, depth=5, connections=2))
        self.assertEqual(got, "redis-benchmark -h 127.0.0.1 -p 7 -c 2 -P 5 -n 100 -r 1000 --csv MGET __rand_int__ __rand_int__ __rand_int__".split())
        got = self.command("MSET", Setting(keys=2, threads=2))
        self.assertEqual(got[-4:], ["__rand_int__", "y" * 64] * 2)
        self.assertEqual(got[got.index("--threads") + 1], "2")

    def test_figures(self):
        self.assertEqual(compare.parse(CSV)["rps"], 7936.51)
        self.assertEqual(compare.parse(CSV)["p99_latency_ms"], 0.879)
        for text in ("", CSV + CSV.splitlines()[1], "MGET: 100 requests per second\n"):
            with self.subTest(text), self.assertRaises(SystemExit):
                compare.parse(text)

    def test_a_rate_is_of_rows(self):
        redis = argparse.Namespace(port=7, keys=1000)
        with unittest.mock.patch.object(compare, "output", lambda _: CSV), unittest.mock.patch.object(compare, "tool", lambda n: n):
            self.assertAlmostEqual(compare.redis_rate(redis, "MGET", Setting(keys=2), 1, 1000), 2 * 7936.51)

    def test_requests_fill_the_time_in_whole_turns(self):
        s = Setting(keys=10, depth=4, connections=2)
        self.assertEqual(compare.requests_for(1_000_000, 2, s), 200_000)
        self.assertEqual(compare.requests_for(1, 1, s), 80)
        self.assertEqual(compare.requests_for(123_456, 1, s) % 8, 0)


class Search(unittest.TestCase):
    def test_the_best_of_each_field_is_kept(self):
        seen = []

        def rate(s):
            seen.append(s)
            return s.keys * (3 - abs(s.depth - 16) / 16) + (s.connections == 2) + s.io
        best, found = compare.search(rate)
        self.assertEqual(best, Setting(keys=1024, depth=16, connections=2, threads=1, io=2))
        self.assertEqual(found, rate(best))
        self.assertEqual(len(seen[:-1]), len(set(seen)))
        self.assertEqual(len(set(seen)), 1 + sum(len(v) - 1 for v in compare.CHOICES.values()))

    def test_no_more_threads_than_connections(self):
        compare.search(lambda s: self.assertGreaterEqual(s.connections, s.threads) or -s.connections)

    def test_io_threads_that_are_tried_have_a_server(self):
        self.assertIn(Setting().io, compare.CHOICES["io"])


class Figures(unittest.TestCase):
    def test_ringo(self):
        lines = [{"op": "fill", "rows_s": 1}, {"op": "pull", "rows_s": 8.0}, {"op": "push", "rows_s": 5.0}]
        got = compare.results("\n".join(map(json.dumps, lines)))
        self.assertEqual({op: r["rows_s"] for op, r in got.items()}, {"pull": 8.0, "push": 5.0})
        with self.assertRaises(SystemExit):
            compare.results(json.dumps(lines[1]))

    def test_the_command_of_ringo_is_of_rows_as_long_as_values(self):
        o = options("--ringo r --time 0.5")
        with unittest.mock.patch.object(compare, "output") as run, unittest.mock.patch.object(compare, "results", lambda text: text):
            compare.ringo_rates(o)
        line = " ".join(run.call_args.args[0])
        for words in ("r bench ps", "--dim 16", "--optimizer adagrad", "--op pull,push", "--dist uniform", "--time 0.5s", "--keys 1000000"):
            self.assertIn(words, line)

    def test_ratios_are_taken_within_rounds(self):
        self.assertEqual(compare.ratio([10, 40, 3], [5, 10, 1]), (3, 2, 4))

    def test_sides_take_turns(self):
        order, o = [], argparse.Namespace(rounds=3, keys=1000)
        side = lambda name, rates: lambda: order.append(name) or rates
        with contextlib.redirect_stderr(io.StringIO()):
            found = compare.measure(o, [side("g", {"MGET": 1.0}), side("s", {"MSET": 2.0}), side("r", {"pull": 9.0, "push": 8.0})])
        self.assertEqual("".join(order), "gsrsrgrgs")
        self.assertEqual(found, {"MGET": [1.0] * 3, "MSET": [2.0] * 3, "pull": [9.0] * 3, "push": [8.0] * 3})
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            out = compare.show(o, found)
        self.assertEqual((out["pull"]["ratio"], out["push"]["ratio"]), (9, 4))
        self.assertIn("8: met", text.getvalue())
        self.assertIn("5: missed", text.getvalue())


if __name__ == "__main__":
    unittest.main()
