"""Tests of what needs no PyTorch: python3 -m unittest discover -s bench/train"""
import argparse, contextlib, io, json, os, sys, tempfile, unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import precision, run, seeds


class Means(unittest.TestCase):
    def rows(self, pytorch, ringo):
        task = argparse.Namespace(figures=("loss",))
        return seeds.compare(task, {side: [[{"loss": v}] for v in values] for side, values in (("pytorch", pytorch), ("ringo", ringo))})

    def test_standard_errors_apart(self):
        row = self.rows([1, 2, 3], [5, 6, 7])[0]  # each variance is 1: the error is sqrt(1/3 + 1/3)
        self.assertEqual((row["pytorch"], row["ringo"], row["pytorch_sd"]), (2, 6, 1))
        self.assertAlmostEqual(row["errors_apart"], 4 / (2 / 3) ** 0.5)
        self.assertEqual(self.rows([1, 1], [1, 1])[0]["errors_apart"], 0)
        self.assertEqual(self.rows([1, 1], [2, 2])[0]["errors_apart"], float("inf"))

    def test_the_table_counts(self):
        rows = [{"figure": "loss", "epoch": e, "pytorch": 1, "pytorch_sd": 0, "ringo": 1, "ringo_sd": 0, "errors_apart": apart} for e, apart in ((1, 3.0), (2, 1.0))]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            seeds.print_table(rows, 2)
        self.assertIn("1 of 2 figures are within 2 standard errors; after the last epoch 1 of 1", out.getvalue())


class Precision(unittest.TestCase):
    def test_differences_of_equal_seeds(self):
        r = precision.row("m", "eval_loss", 0.01, True, [1.0, 2.0, 3.0], [1.01, 2.01, 3.04])
        self.assertAlmostEqual(r["difference"], 0.02)
        self.assertAlmostEqual(r["error"], 0.01)
        self.assertAlmostEqual(r["limit"], 0.02)
        exceeded = precision.row("m", "eval_auc", 0.001, False, [0.7, 0.71], [0.69, 0.70])
        self.assertFalse(exceeded["within"])
        self.assertIn("| m | auc | 0.7050 | 0.6950 | -0.0100 ± 0.0000 | 0.0010, exceeded |", precision.table([exceeded]))


class Runs(unittest.TestCase):
    def test_whole_runs_are_kept(self):
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stderr(io.StringIO()):
            o = argparse.Namespace(task="lstm", out=out)
            program = 'import sys, time, json; print(json.dumps({"event": "epoch", "epoch": 1, "train_loss": time.time()}))'
            command = [sys.executable, "-c", program]
            first = seeds.one_run(o, "ringo", command, 1, 1)
            self.assertEqual(seeds.one_run(o, "ringo", command, 1, 1), first)
            self.assertNotEqual(seeds.one_run(o, "ringo", [*command, "more"], 1, 1), first)
            self.assertNotEqual(seeds.one_run(o, "ringo", [*command, "more"], 1, 2), first)  # not whole
            with self.assertRaisesRegex(SystemExit, "exit 1"):
                seeds.one_run(o, "ringo", [sys.executable, "-c", "raise SystemExit(1)"], 2, 1)

    def test_rates(self):
        o = argparse.Namespace(lr=0.1, lr_steps="2:0.01,4:0.001")
        self.assertEqual([run.rate(o, e) for e in range(5)], [0.1, 0.1, 0.01, 0.01, 0.001])
        self.assertEqual(run.rate(argparse.Namespace(lr=0.1, lr_steps=""), 9), 0.1)

    def test_the_text_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("wiki-test.txt", "wiki-valid.txt"):
                open(os.path.join(folder, name), "w").close()
            found = seeds.ringo_data(argparse.Namespace(task="lstm", data=folder))
        self.assertEqual([os.path.basename(f) for f in found[1::2]], ["wiki-valid.txt", "wiki-test.txt"])


if __name__ == "__main__":
    unittest.main()
