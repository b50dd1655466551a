import json, os, tempfile, unittest

import accuracy, distopt, dlgs, heter, papers, ring


class TestPapers(unittest.TestCase):
    def test_page_has_the_kept_results(self):
        with open(papers.PAGE) as f:
            page = f.read()
        self.assertEqual(page, papers.written(page, os.path.join(papers.HERE, "results")), "run bench/papers/papers.py page")

    def test_pictures_are_of_the_kept_results(self):
        with open(papers.PAGE) as f:
            page = f.read()
        for name, text in papers.draw(os.path.join(papers.HERE, "results")).items():
            self.assertIn(f"(pictures/{name})", page)
            with open(os.path.join(os.path.dirname(papers.PAGE), "pictures", name)) as f:
                self.assertEqual(f.read(), text, "run bench/papers/papers.py page")

    def test_kept_measurements_are_not_made_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.json")
            self.assertEqual(papers.Kept(path).measure("one", lambda: 1), 1)
            self.assertEqual(papers.Kept(path).measure("one", lambda: self.fail("measured again")), 1)
            with open(path) as f:
                self.assertEqual(json.load(f), {"one": 1})

    def test_place_replaces_what_is_between_the_marks(self):
        begin, end = papers.mark("ring")
        page = f"before\n{begin}old\n{end}after\n"
        self.assertEqual(papers.place(page, "ring", "new\n"), f"before\n{begin}\nnew\n\n{end}after\n")
        self.assertRaises(SystemExit, papers.place, page, "distopt", "new\n")

    def test_formulas_are_those_of_the_text(self):
        # 1.2 GB at 1 GB/s: 1.2 s with 2 workers and 10.8 s with 10, one way; the ring moves 2 (N-1)/N of it.
        one = 4 * ring.FLOATS / 1.2
        self.assertAlmostEqual(ring.formula("naive", 2, one), 2 * 1200, places=6)
        self.assertAlmostEqual(ring.formula("naive", 10, one), 2 * 10800, places=6)
        self.assertAlmostEqual(ring.formula("ring", 10, one), 2 * 1080, places=6)

    def test_tables_have_a_row_for_each_measurement(self):
        run = {"accuracy": [0.9] * 10, "step_bytes_sent": 100, "params": 10, "params_sha256": "a"}
        values = {name: run for name in [*distopt.OPTIONS, "fp32, mpiexec"]} | {"machine": "m"}
        text = distopt.tables(values)
        self.assertIn("| 10 | 0.9891 | 0.9000 | 0.9000 |", text)
        self.assertIn("are equal bit for bit", text)
        self.assertIn("are NOT equal", distopt.tables(values | {"fp32, mpiexec": run | {"params_sha256": "b"}}))
        part = {"step_mean_ms": 90.0, "compute_ms": 9.0, "compress_ms": 1.0, "exposed_comm_ms": 8.0, "bytes_sent": 7, "steps": 2}
        at = dlgs.prefix(dlgs.RESNET20, 3)
        values = {f"{at}{name}, round {k}": part | {"step_mean_ms": 30.0 if "DLGS" in name else 90.0} for name in dlgs.METHODS for k in (1, 2, 3)}
        values |= {f"{at}{name}, round 4": part for name in list(dlgs.METHODS)[1:]}  # a round that is not complete
        values |= {"machine": "m", f"{at}goodput": 1e6, "ResNet-20, no limit": part, dlgs.prefix(dlgs.VGG16, 3) + "top-k 0.1, round 1": part}
        self.assertIn("| DLGS 0.01 | 30 | 9 | 1.0 | 8 | 7 | 3.00 |", dlgs.tables(values))
        self.assertNotIn("VGG16", dlgs.tables(values))  # not complete
        self.assertAlmostEqual(dlgs.goodput(1000, 10, 3), 3 * 4000 / 0.030)
        values = {f"{a} {n}": 2.0 for a in ("naive", "ring") for n in ring.RANKS} | {"machine": "m", "goodput": 1e6, "model goodput": 1e6}
        part = {"step_ms": 30.0, "update_ms": 1.0, "compute_ms": 9.0, "steps": 2}
        for n, overlap in ring.CASES:
            values |= {f"model {n} {overlap}": part | {"exposed_comm_ms": 20.0 if overlap == "off" else 15.0}, f"plan {n} {overlap}": 58.0}
        values |= {f"forecast {n} {overlap}": 400.0 for n in ring.GPUS for overlap in ring.OVERLAP}
        text = ring.tables(values)
        self.assertEqual(text.count("\n| "), 6 + len(ring.RANKS) + len(ring.CASES) + len(ring.GPUS))  # and heads
        self.assertIn("| 4 | on | 9 | 15 | 58 | 0.26 | 5 | 0 |", text)

    def test_accuracy_has_the_worst_method_first(self):
        names = [accuracy.run_name(task, method, seed, change) for task, method, change, seed, _ in accuracy.runs()]
        self.assertEqual(len(names), len(set(names)))
        run = {"accuracy": 0.8, "test_loss": 1.0, "samples": 100, "steps": 40, "buckets": 4, "density": 0.1, "by_epoch": [0.5, 0.8], "train_loss": [2.0, 1.0]}
        values = {"machine": "m", "ringo": "c"} | {name: run for name in names if "VGG16" in name and "seed 3" not in name}
        values["VGG16, uncompressed, seed 1"] = run | {"accuracy": 0.9}
        values["VGG16, LAGS 0.01, seed 1"] = run | {"accuracy": 0.6}
        text = accuracy.tables(values)
        self.assertNotIn("ResNet-20", text)
        self.assertIn("| LAGS 0.01 | 2 | 70.0 ± 10.0 | 15.0 ± 15.0 | 1.00 ± 0.00 | 1.00 ± 0.00 | 0.100 |", text)
        self.assertLess(text.index("| LAGS 0.01 "), text.index("| top-k 0.1 "))
        self.assertLess(text.index("| top-k 0.1 "), text.index("| uncompressed "))
        drawn = accuracy.pictures(values)
        self.assertEqual(list(drawn), ["accuracy-vgg16.svg", "loss-vgg16.svg"])
        self.assertEqual(drawn["accuracy-vgg16.svg"].count("<polyline"), len(accuracy.METHODS))

    def test_modes_cross_where_their_ratio_passes_one(self):
        self.assertAlmostEqual(heter.crossing(lambda x: 300 / x, 1, 1e6), 300, delta=3)
        self.assertAlmostEqual(heter.crossing(lambda x: x / 300, 1, 1e6), 300, delta=3)
        self.assertIsNone(heter.crossing(lambda x: 2, 1, 1e6))
        self.assertAlmostEqual(heter.between([(1, 0.25), (10, 0.5), (1000, 2)]), 100)
        self.assertIsNone(heter.between([(1, 0.25), (10, 0.5)]))

    def test_architectures_have_their_quotas(self):
        self.assertEqual(heter.mix("ctr-dnn", heter.HETER), "4x0.05/2x0.1/1x0.3")
        self.assertEqual(heter.mix("ctr-dnn-4096", heter.HETER, 0.02), "4x0.02/2x0.1/4x0.3")
        self.assertEqual(heter.mix("ctr-dnn", heter.FAT), "4x0.3/2x0.1/0x1")
        for model in heter.HETERS:
            for architecture, small, _ in heter.points(model):
                self.assertLess(sum(sum(of) for of in heter.mixes.parse(heter.mix(model, architecture, small)).values()), 2)

    def test_heterogeneous_tables_have_a_row_for_each_measurement(self):
        values, speed = {"machine": "m"}, {heter.RANKS: 90.0, heter.CPU: 20.0, heter.FAT: 50.0, heter.HETER: 60.0}
        for model in heter.HETERS:
            values |= {f"plan rate {model}": 400e6, f"plan quota {model}": None}
            for a, small, rate in heter.points(model):
                key = heter.name(model, a, small, rate)
                values |= {f"plan {key}": 55.0} | {f"{key}, round {k}": {"rate": 40.0 if a == heter.HETER and rate >= 400e6 else speed[a]} for k in (1, 2, 3)}
        text = heter.tables(values)
        self.assertIn("| heterogeneous | 4x0.05/2x0.1/1x0.3 | 60 | 3.00 | 55 | 0.92 |", text)
        self.assertIn("| 0.05 | 400 | 50 | 55 | 40 | 55 | 0.80 | 1.00 | 1.25 |", text)
        self.assertIn("by the plan at 400 Mbit/s", text)
        self.assertIn("65 % more than CPU trainers", heter.pictures(values)["heter-ctr-dnn.svg"])


if __name__ == "__main__":
    unittest.main()
