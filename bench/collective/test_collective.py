"""Tests of what needs neither peers nor root: python3 -m unittest discover -s bench/collective"""
import argparse, contextlib, io, os, sys, unittest, unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare, wire


def options(module, line):
    with unittest.mock.patch.object(sys, "argv", ["program", *line.split()]), contextlib.redirect_stderr(io.StringIO()):
        return module.options()


class Options(unittest.TestCase):
    def test_sides_are_of_the_tables_that_have_them(self):
        o = options(compare, "")
        self.assertEqual((o.tables, o.np, o.floats), (list(compare.TABLES), [2, 4], compare.FLOATS))
        o = options(compare, "--sides openmpi-shm,ringo-arena --np 3 --floats 1,2")
        self.assertEqual((o.tables, o.np, o.floats), (["shm"], [3], [1, 2]))
        self.assertEqual(list(compare.sides(o, "shm", 3)), ["openmpi-shm", "ringo-arena"])
        self.assertEqual(options(compare, "--sides ringo-tcp,limit").tables, list(compare.TABLES))

    def test_every_side_can_be_measured(self):
        for found in (None, "/usr/bin/mpicc.mpich"):
            with unittest.mock.patch.object(compare.shutil, "which", lambda name: found):
                for table in compare.TABLES:
                    want = [s for s in compare.SIDES[table] if found or not s.startswith("mpich")]
                    self.assertEqual(list(compare.sides(options(compare, ""), table, 2)), want)
        with unittest.mock.patch.object(compare.shutil, "which", lambda name: None):
            self.assertEqual(list(compare.sides(options(compare, "--sides mpich-tcp"), "tcp", 2)), ["mpich-tcp"])

    def test_peers_and_ringo_are_told_of_computation(self):
        ran = []
        with unittest.mock.patch.object(compare, "objects", lambda command, **more: ran.append(" ".join(command)) or []):
            for line, peer, own in (("", " 0.3 1", "--json -"), ("--skew 100", " 0.3:0:100 1", "--gap 0us --skew 100us"), ("--gap 5", " 0.3:5:0 1", "--gap 5us --skew 0us")):
                o = options(compare, f"--floats 1 --ringo r --peers p {line}")
                all_sides = compare.sides(o, "shm", 2)
                self.assertEqual(["limit" in all_sides, "ringo-run-shm" in all_sides], [line == ""] * 2)
                all_sides["openmpi-shm"](), all_sides["ringo-arena"]()
                self.assertTrue(ran[-2].endswith(peer) and own in ran[-1], ran)

    def test_what_cannot_be_is_refused(self):
        for line in ("--tables udp", "--np 0", "--rounds 0", "--time 0", "--floats -1", "--gap -1", "--skew -1", "--sides nccl", "--tables shm --sides ringo-tcp"):
            with self.subTest(line), self.assertRaises(SystemExit):
                options(compare, line)
        for line in ("--hosts 1", "--per-host 0", "--rounds 0", "--floats 0", "--time 0"):
            with self.subTest(line), self.assertRaises(SystemExit):
                options(wire, line)


class Figures(unittest.TestCase):
    def test_medians(self):
        self.assertEqual(compare.medians([{"floats": 1, "median_us": 2.5}, {"count": 4, "median_us": 7}]), {1: 2.5, 4: 7})

    def test_ratios_are_taken_within_rounds(self):
        self.assertEqual(compare.ratio([10, 40, 3], [5, 10, 1]), (3, 2, 4))

    def test_sides_take_turns(self):
        o, order = argparse.Namespace(rounds=3, floats=[1], apart=True, gap=10, skew=5), []
        side = lambda name, us: lambda: order.append(name) or {1: us}
        with unittest.mock.patch.object(compare, "sides", lambda *_: {"gloo-tcp": side("g", 6.0), "ringo-tcp": side("r", 2.0)}):
            with contextlib.redirect_stderr(io.StringIO()):
                found = compare.measure(o, "tcp", 2)
        self.assertEqual("".join(order), "grrggr")
        with contextlib.redirect_stdout(io.StringIO()):
            shown = compare.show(o, "TCP", 2, found)
        self.assertEqual(shown["ratios"], {"gloo-tcp / ringo-tcp": {1: (3, 3, 3)}})


if __name__ == "__main__":
    unittest.main()
