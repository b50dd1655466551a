"""Tests of what needs no PyTorch: python3 -m unittest discover -s bench"""
import argparse, contextlib, io, os, sys, unittest, unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare

MNIST = compare.CASES[0]


class Options(unittest.TestCase):
    def options(self, line):
        with unittest.mock.patch.object(sys, "argv", ["compare.py", *line.split()]), contextlib.redirect_stderr(io.StringIO()):
            return compare.options()

    def test_cases(self):
        self.assertEqual(len(self.options("").cases), len(compare.CASES))
        self.assertEqual([c.name for c in self.options("--memory").cases], ["vgg16", "resnet50"])
        self.assertEqual([c.ringo for c in self.options("--models ctr400,mnist").cases], ["ctr-dnn", "mnist"])

    def test_what_cannot_be_is_refused(self):
        for line in ("--models lenet", "--rounds 0", "--np 0", "--memory --np 2", "--scaling --np 2", "--memory --scaling", "--precision fp16", "--precision bf16 --memory"):
            with self.subTest(line), self.assertRaises(SystemExit):
                self.options(line)

    def test_precisions(self):
        self.assertEqual(self.options("").precision, ["fp32"])
        self.assertEqual(self.options("--precision fp32,bf16").precision, ["fp32", "bf16"])

    def test_cores(self):
        o = argparse.Namespace(cpus="3,5,7")
        self.assertEqual(compare.choose_cpus(o, 2), {3, 5})
        with self.assertRaisesRegex(SystemExit, "4 cores are needed, 3 may be used"):
            compare.choose_cpus(o, 4)


class Rounds(unittest.TestCase):
    def test_ratios_are_taken_within_rounds(self):
        self.assertEqual(compare.median_ratio([(10, 5), (40, 10), (3, 1)]), (3, 2, 4))

    def test_both_sides_are_run_in_turns(self):
        for number, order in ((0, "ab"), (1, "ba")):
            ran = []
            side = lambda name: lambda: ran.append(name) or name
            self.assertEqual(compare.alternate(number, side("a"), side("b")), ("a", "b"))
            self.assertEqual("".join(ran), order)

    def test_the_table(self):
        cases = compare.CASES[:2]
        o = argparse.Namespace(cases=cases, rounds=1)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            found = compare.table(o, {cases[0].name: [(8.0, 2.0)], cases[1].name: [(1.0, 1.0)]}, "ms", "here")
        self.assertEqual((found[cases[0].name]["ratio"], found["geometric_mean"]), (4, 2))
        self.assertIn(f"the lowest is {cases[1].name}'s", out.getvalue())


class Models(unittest.TestCase):
    def test_names_are_those_of_the_listing(self):
        self.assertEqual(compare.listed_models("Models, with what:\n\n  mlp (79,510 parameters)\n      dense 100, dense 10\n  mnist-cnn, mnist (431,080 parameters)\n"
                                               "      data mnist, batch 64\n\n  --data DIR  a folder\n"), {"mlp", "mnist-cnn", "mnist"})

    def test_another_model_is_refused(self):
        sgd = {"params": 7, "optimizer": "sgd"}
        compare.same_model(MNIST, sgd, sgd)
        with self.assertRaisesRegex(SystemExit, "7 parameters in PyTorch and 8 in ringo"):
            compare.same_model(MNIST, sgd, {**sgd, "params": 8})
        with self.assertRaisesRegex(SystemExit, "by adamw in ringo"):
            compare.same_model(MNIST, sgd, {**sgd, "optimizer": "adamw"})

    def test_a_slow_peer_is_refused(self):
        torch = compare.Torch.__new__(compare.Torch)
        seen = {"version": "2", "build": "x", "blas": "libblas", "mkldnn": True, "mkldnn_bf16": True, "blas_is_fast": True, "blas_core": "SkylakeX"}
        torch.flags = lambda: {"avx2", "avx512f"}
        for wrong in ({"blas_is_fast": False}, {"mkldnn": False}, {"blas_core": "Prescott"}):
            torch.seen = None
            with self.subTest(wrong), self.assertRaisesRegex(SystemExit, "REFUSED"), contextlib.redirect_stderr(io.StringIO()):
                torch.check({**seen, **wrong})
        torch.seen = None
        with contextlib.redirect_stderr(io.StringIO()):
            torch.check(seen)
        self.assertEqual(torch.seen["blas"], "libblas")

    def test_an_old_processor_has_old_kernels(self):
        torch = compare.Torch.__new__(compare.Torch)
        torch.seen, torch.flags = None, lambda: {"sse3"}
        with contextlib.redirect_stderr(io.StringIO()):
            torch.check({"version": "2", "build": "x", "blas": "libblas", "mkldnn": True, "mkldnn_bf16": True, "blas_is_fast": True, "blas_core": "Prescott"})
        self.assertEqual(torch.seen["blas_core"], "Prescott")


if __name__ == "__main__":
    unittest.main()
