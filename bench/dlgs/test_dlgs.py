"""Tests of what needs no root and no network: python3 -m unittest discover -s bench/dlgs"""
import contextlib, io, json, os, sys, tempfile, textwrap, unittest, unittest.mock
import xml.etree.ElementTree as ET

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import experiment, links, methods, report, strategies, svg, volumes
from ranks import Run, Runner
from tables import Factor, Percent, Table, cell


def epoch(n, **more):
    return {"event": "epoch", "epoch": n, "step_ms": 100.0, "compute_ms": 60.0, "compress_ms": 10.0, "exposed_comm_ms": 25.0, "update_ms": 5.0,
            "train_loss": 1.0 / n, "eval_loss": 1.1 / n, "eval_accuracy": 0.1 * n, "step_bytes_sent": 8000, **more}


def keep(folder, name, epochs, **summary):
    """A kept run as Runner writes it."""
    lines = [{"event": "command"}, *epochs, {"event": "summary", "wall_s": 12.0, "params": 1000, "plan": "exact", "buckets": 3, **summary}]
    with open(os.path.join(folder, name + ".jsonl"), "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)


class Links(unittest.TestCase):
    def test_an_exchange_takes_r_times_the_computation(self):
        values, workers, compute = 269_722, 4, 0.07
        for r in (1, 2, 3):
            b = links.goodput_for(values, workers, compute, r)
            self.assertAlmostEqual(links.exchange_bytes(values, workers) / b, r * compute)
        self.assertEqual(links.exchange_bytes(1000, 4), 6000)  # 2 x 3/4 of 4,000 bytes
        self.assertEqual(links.exchange_bytes(1000, 2), 4000)

    def test_a_correction_finds_the_rate(self):
        share = 0.93  # of a link that is another one than expected
        rate = links.rate_for(1e6)
        self.assertGreater(rate, 8e6)
        rate = links.corrected(rate, rate / 8 * share, 1e6)
        self.assertAlmostEqual(rate / 8 * share, 1e6)

    def test_what_cannot_be_is_refused(self):
        for values, workers, compute, r in ((0, 4, 1, 1), (1, 1, 1, 1), (1, 4, 0, 1), (1, 4, 1, 0)):
            with self.assertRaises(ValueError):
                links.goodput_for(values, workers, compute, r)
        with self.assertRaises(ValueError):
            links.corrected(1e6, 0, 1e6)

    def test_bursts_are_short_beside_a_step(self):
        self.assertEqual(links.burst(1e9), 250_000)
        self.assertEqual(links.burst(1e6), 15_140)  # a frame must fit

    def test_rates_as_text(self):
        self.assertEqual([links.text(r) for r in (2.5e9, 62.5e6, 9_600, 12)], ["2.5 Gbit/s", "62.5 Mbit/s", "9.6 kbit/s", "12 bit/s"])


class Tables(unittest.TestCase):
    def test_cells(self):
        for v, want in ((None, "–"), (True, "yes"), (12345, "12,345"), (3.14159, "3.142"), (31.4159, "31.42"), (314.159, "314.2"), (31415.9, "31,416"),
                        (0.0123456, "0.01235"), (Factor(2.5), "2.50 x"), (Percent(0.9123), "91.23 %"), ("x", "x")):
            self.assertEqual(cell(v), want)

    def test_text_and_markdown(self):
        t = Table("T", ["name", "ms"], [["a", 1.5], ["long", None]], note="N")
        self.assertEqual(t.text(), "T\n\nname   ms\n----  ---\na     1.5\nlong    –\n\nN\n")
        self.assertEqual(t.markdown(), "## T\n\n| name | ms |\n|---|---:|\n| a | 1.5 |\n| long | – |\n\nN\n")
        with self.assertRaises(ValueError):
            t.add("one cell")

    def test_a_bar_in_a_cell_does_not_end_it(self):
        self.assertIn(r"a\|b", Table("T", ["x"], [["a|b"]]).markdown())


class Charts(unittest.TestCase):
    def test_ticks_are_round_and_enclose(self):
        self.assertEqual(svg.ticks(0, 100), [0, 20, 40, 60, 80, 100])
        for low, high in ((0, 1), (0.13, 0.97), (-3, 7.5), (1e-9, 2e-9), (0, 1e12), (5, 5), (0, 0), (99.1, 99.2)):
            t = svg.ticks(low, high)
            self.assertTrue(t[0] <= low and t[-1] >= high and 2 <= len(t) <= 12, (low, high, t))
            gaps = {round((b - a) / (t[1] - t[0]), 6) for a, b in zip(t, t[1:])}
            self.assertEqual(gaps, {1.0})

    def parse(self, text):
        root = ET.fromstring(text)
        for e in root.iter():
            for name in ("x", "x1", "x2", "cx"):
                self.assertTrue(0 <= float(e.get(name, 0)) <= svg.WIDTH, ET.tostring(e))
            for name in ("y", "y1", "y2", "cy"):
                self.assertTrue(0 <= float(e.get(name, 0)) <= svg.HEIGHT, ET.tostring(e))
            for name in ("width", "height"):
                self.assertGreaterEqual(float(e.get(name, 0)), 0, ET.tostring(e))
        return root

    def test_lines(self):
        series = [svg.Series("a < b & c", [(1, 0.5), (2, None), (3, 0.7), (4, 0.9)]), svg.Series("d", [(1, 0.1), (4, float("nan"))], svg.COLOURS[1], "6 4")]
        root = self.parse(svg.lines("loss", "epoch", "loss", series))
        found = [len(e.get("points").split()) for e in root.iter() if e.tag.endswith("polyline")]
        self.assertEqual(found, [1, 2, 1])  # broken at the gap
        self.assertIn("a < b & c", [e.text for e in root.iter() if e.tag.endswith("text")])

    def test_a_higher_value_is_higher_up(self):
        root = self.parse(svg.lines("t", "x", "y", [svg.Series("a", [(0, 1), (1, 3), (2, 2)])]))
        ys = [float(e.get("cy")) for e in root.iter() if e.tag.endswith("circle")]
        self.assertTrue(ys[1] < ys[2] < ys[0])

    def test_stacks_add_up(self):
        series = [svg.Series("a", [10, 20]), svg.Series("b", [30, None], svg.COLOURS[1])]
        root = self.parse(svg.bars("t", "ms", ["one\ntwo", "three"], series, stacked=True, rules=[("best", 15)]))
        bars = [e for e in root.iter() if e.tag.endswith("rect") and len(e)]
        height = lambda e: float(e.get("height"))
        self.assertEqual(len(bars), 3)
        self.assertAlmostEqual(height(bars[1]), 3 * height(bars[0]), delta=0.3)
        self.assertAlmostEqual(float(bars[1].get("y")) + height(bars[1]), float(bars[0].get("y")), delta=0.3)
        self.assertIn("40", [e.text for e in root.iter() if e.tag.endswith("text")])

    def test_bars_side_by_side(self):
        root = self.parse(svg.bars("t", "ms", ["a", "b"], [svg.Series("x", [1, 2]), svg.Series("y", [2, 4], svg.COLOURS[1])]))
        bars = [e for e in root.iter() if e.tag.endswith("rect") and len(e)]
        spans = sorted((float(e.get("x")), float(e.get("x")) + float(e.get("width"))) for e in bars)
        self.assertTrue(all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), spans)

    def test_names_of_many_groups_do_not_touch(self):
        self.assertEqual(svg.label_size(["a", "b"]), 12)
        many = svg.label_size(["uncompressed\nper-layer"] * 11)
        self.assertTrue(8 <= many < 12)
        self.assertLess(11 * 12 * 0.6 * many, svg.WIDTH - svg.LEFT - svg.RIGHT)

    def test_nothing_to_draw_is_refused(self):
        with self.assertRaises(ValueError):
            svg.lines("t", "x", "y", [svg.Series("a", [(1, None)])])
        with self.assertRaises(ValueError):
            svg.bars("t", "y", ["a"], [svg.Series("a", [None])])
        with self.assertRaises(ValueError):
            svg.bars("t", "y", ["a", "b"], [svg.Series("a", [1])])

    def test_a_long_legend_takes_more_rows(self):
        series = [svg.Series(f"a rather long name {i}", [(0, 1), (1, i)], svg.COLOURS[i]) for i in range(7)]
        rows = {e.get("y") for e in self.parse(svg.lines("t", "x", "y", series)).iter() if (e.text or "").startswith("a rather")}
        self.assertEqual(len(rows), 3)


class Reports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = folder.name
        self.runner = Runner("", self.out, 4, 1)

    def link(self, task="resnet20", r=3.0):
        with open(report.link_path(self.out, task, r), "w") as f:
            json.dump({"task": task, "r": r, "workers": 4, "compute_ms": 60.0, "update_ms": 5.0, "rate": 62e6, "goodput": 7e6, "exchange_ms": 180.0, "congestion_control": "reno"}, f)

    def make(self, spars=0.01):
        made = report.make(self.runner, 4, spars)
        return {t.title: (t, charts) for t, charts in made.tables}, made

    def test_the_first_epoch_does_not_count(self):
        run = Run(json.dumps(e) for e in (epoch(1, step_ms=900), epoch(2, step_ms=100), epoch(3, step_ms=120)))
        self.assertEqual(report.steady(run)["step_ms"], 110)
        self.assertNotIn("density", report.steady(run))

    def test_steps(self):
        self.link()
        for plan, ms in (("one", 260.0), ("fixed", 220.0), ("exact", 210.0)):
            keep(self.out, report.timing_name("resnet20", 3, methods.dense(plan), 1), [epoch(1), epoch(2, step_ms=ms)])
        for i, ms in ((1, 70.0), (2, 84.0)):
            dlgs = methods.Method("DLGS", "dlgs", 0.01, methods.DLGS_PLAN)
            keep(self.out, report.timing_name("resnet20", 3, dlgs, i), [epoch(1), epoch(2, step_ms=ms, density=0.01)])
        tables, made = self.make()
        table, charts = tables["resnet20: a step where the uncompressed exchange takes 3 times the computation"]
        dense, dlgs = table.rows
        self.assertEqual(dense[:3], ["uncompressed", "exact", 210.0])
        self.assertEqual(dlgs[0], "DLGS 0.01")
        self.assertAlmostEqual(dlgs[4], 210 / 77)
        self.assertEqual(dlgs[3], "70.0–84.0")
        self.assertEqual(dlgs[9], 8.0)  # kB of a rank and step
        self.assertIn("65.0 ms, 3.23 x", table.note)  # 210 / (60 + 5)
        self.assertIn("DLGS 0.01", made.write())
        self.assertEqual(charts, ["resnet20-r3-steps.svg"])
        for name in charts:
            ET.parse(os.path.join(self.out, name))
        plans, _ = tables["resnet20: plans at r = 3"]
        self.assertEqual([row[1] for row in plans.rows], ["one", "fixed", "exact"])
        self.assertAlmostEqual(plans.rows[0][5], 260 / 210)

    def test_both_rules(self):
        self.link()
        for m, ms in zip(methods.rules(0.1), (90.0, 80.0, 75.0, 60.0)):
            keep(self.out, report.timing_name("resnet20", 3, m, 1), [epoch(1), epoch(2, step_ms=ms, density=0.2)])
        table, _ = self.make()[0]["resnet20: DLGS by rule and planner at r = 3"]
        self.assertEqual([row[:3] for row in table.rows], [["DLGS 0.1", rule, plan] for rule in ("paper", "corrected") for plan in ("dlgs-scan", "exact")])
        self.assertEqual([row[6] for row in table.rows], [1.5, 80 / 60, 1.25, 1])
        os.remove(self.runner.path(report.timing_name("resnet20", 3, methods.rules(0.1)[0], 1)))
        os.remove(self.runner.path(report.timing_name("resnet20", 3, methods.rules(0.1)[1], 1)))
        self.assertNotIn("resnet20: DLGS by rule and planner at r = 3", self.make()[0])  # one rule alone

    def test_steps_of_methods_that_were_picked(self):
        self.link()
        keep(self.out, report.timing_name("resnet20", 3, methods.Method("DLGS", "dlgs", 0.01, methods.DLGS_PLAN), 1), [epoch(1), epoch(2, step_ms=70.0)])
        table, charts = self.make()[0]["resnet20: a step where the uncompressed exchange takes 3 times the computation"]
        self.assertEqual([(row[0], row[2], row[4]) for row in table.rows], [("DLGS 0.01", 70.0, None)])
        self.assertIn("would reach 65.0 ms. ms per step", table.note)
        self.assertEqual(charts, ["resnet20-r3-steps.svg"])

    def test_a_plan_that_was_picked_alone(self):
        self.link()
        name = lambda plan: report.timing_name("resnet20", 3, methods.Method("DLGS", "dlgs", 0.01, plan), 1)
        keep(self.out, name("exact"), [epoch(1), epoch(2)])
        self.assertNotIn("resnet20: plans at r = 3", self.make()[0])  # the table of steps has it
        os.remove(self.runner.path(name("exact")))
        keep(self.out, name("one"), [epoch(1), epoch(2, step_ms=70.0)])
        table, _ = self.make()[0]["resnet20: plans at r = 3"]
        self.assertEqual([row[1:4] for row in table.rows], [["one", 3, 70.0]])

    def test_predictions_are_of_the_last_choice(self):
        self.link()
        measured = {"event": "choice_measured", "predicted_ms": 50.0, "step_ms": 55.0, "predicted_exact_ms": 60.0, "step_exact_ms": 57.0}
        keep(self.out, report.timing_name("resnet20", 3, methods.dense("exact"), 1), [epoch(1), {"event": "choice_measured", "predicted_ms": 1.0, "step_ms": 2.0}, measured, epoch(2)])
        table, charts = self.make()[0]["resnet20: predicted and measured step at r = 3"]
        self.assertEqual([row[2:5] for row in table.rows], [["all", 50.0, 55.0], ["exact", 60.0, 57.0]])
        self.assertAlmostEqual(table.rows[1][5], 0.95)
        self.assertEqual(charts, ["resnet20-r3-predicted.svg"])

    def test_predictions_of_rounds(self):
        self.link()
        for i, step in ((1, 50.0), (2, 55.0), (3, 65.0)):
            measured = {"event": "choice_measured", "predicted_ms": 50.0, "step_ms": step}
            keep(self.out, report.timing_name("resnet20", 3, methods.dense("exact"), i), [epoch(1), measured, epoch(2)])
        table, _ = self.make()[0]["resnet20: predicted and measured step at r = 3"]
        self.assertEqual(table.rows[0][2:], ["all", 50.0, 55.0, 1.1, "1.000–1.300"])

    def test_every_task_and_r_that_is_there(self):
        for task, r in (("resnet50", 2.0), ("resnet20", 2.5), ("resnet20", 10.0)):
            self.link(task, r)
            keep(self.out, report.timing_name(task, r, methods.dense("fixed"), 1), [epoch(1), epoch(2, step_ms=50.0)])
        self.assertEqual([(t.split(":")[0], t.split()[-4]) for t in self.make()[0]], [("resnet20", "10"), ("resnet20", "2.5"), ("resnet50", "2")])

    def test_epochs(self):
        for m in (methods.dense("exact"), methods.Method("DLGS", "dlgs", 0.1, methods.DLGS_PLAN)):
            keep(self.out, report.training_name("resnet20", m), [epoch(n) for n in range(1, 4)])
        tables, made = self.make()
        table, charts = tables["resnet20: after 14 epochs"]
        self.assertEqual([row[0] for row in table.rows], ["uncompressed", "DLGS 0.1"])
        self.assertAlmostEqual(table.rows[0][1], 0.3)
        self.assertEqual(charts, ["resnet20-eval_accuracy.svg", "resnet20-train_loss.svg", "resnet20-eval_loss.svg"])
        made.write()
        with open(os.path.join(self.out, "report.md")) as f:
            self.assertIn("![resnet20-train_loss](resnet20-train_loss.svg)", f.read())

    def test_auto(self):
        for m, ms in zip(methods.auto_candidates(0.01), (100.0, 80.0, 83.0, 120.0, 130.0)):
            keep(self.out, report.auto_name("resnet20", "1gbit", m, 1), [epoch(1), epoch(2, step_ms=ms)])
        keep(self.out, report.auto_name("resnet20", "1gbit", methods.Method("auto", "auto", 0.01), 1), [epoch(1), {"event": "choice", "strategy": "bf16", "candidates": [{"strategy": "fp16", "step_ms": 81.0}]}, epoch(2)])
        table, _ = self.make()[0]["resnet20: auto over 1gbit"]
        self.assertEqual([row[5] for row in table.rows], ["", "", "auto", "", ""])
        self.assertEqual([row[1] for row in table.rows], [None, 81.0, None, None, None])
        self.assertIn("3.8 % over the best, within 5 %", table.note)
        self.assertIn("NOT within", report.verdict("fp32", {"fp32": 110, "fp16": 100}))
        self.assertIn("not measured", report.verdict("int8", {"fp32": 110}))

    def test_an_empty_folder_makes_an_empty_report(self):
        self.assertEqual(self.make()[1].write(), "")


class Volumes(unittest.TestCase):
    def test_dense(self):
        for strategy, want in (("fp32", 8000), ("fp16", 4000), ("bf16", 4000), ("partialUpdate", 2000), ("int8", 2000 + 4 * (6 + 2))):
            self.assertEqual(volumes.predicted(strategy, [1500, 500], 2), want)
        self.assertEqual(volumes.predicted("fp32", [1000], 4), 6000)

    def test_sparse(self):
        self.assertEqual(volumes.entries(1000, 0.0101), 11)
        self.assertEqual(volumes.entries(3, 0.01), 1)
        self.assertEqual(volumes.predicted("topk", [1000], 2, 0.01), 24 + 12 + 40 + 12)
        self.assertIsNone(volumes.predicted("topk", [1000], 2, 0.6))


    def test_payloads_are_those_of_exchange(self):  # the same as in internal/exchange/payload_test.go
        for n, k, size in (
            (1000, 0, 0), (1000, 10, 64), (1000, 500, 2137), (1000, 1000, 4012), (1000, 1, 19), (100000, 1000, 5211),
            (100000, 5000, 24525), (100000, 10000, 47751), (1048576, 1049, 5909), (431080, 4311, 22425), (431080, 43108, 205806),
            (5, 1, 17), (1, 1, 16), (300, 128, 562), (300, 129, 566), (16777216, 167773, 872291)):
            self.assertEqual(volumes.payload(n, k), size, (n, k))


class Strategies(unittest.TestCase):
    def results(self):
        runs = lambda *accuracy: [Run(json.dumps(e) for e in (epoch(1), epoch(2), {"event": "summary", "eval_accuracy": a, "plan": "fixed"})) for a in accuracy]
        return [strategies.Result(m, r, {"fixed": [1500, 500]}, 2) for m, r in (
            (methods.Method("fp32", "fp32"), runs(0.985, 0.987, 0.989)),
            (methods.Method("dlgs", "dlgs", 0.01), runs(0.984, 0.985, 0.986)),
            (methods.Method("topk", "topk", 0.01), runs(0.97, 0.99, 0.98)))]

    def test_means_are_compared_with_fp32(self):
        t = strategies.table(self.results(), 10, 2)
        self.assertEqual([row[0] for row in t.rows], ["fp32", "dlgs 0.01", "topk 0.01"])
        for row, points in zip(t.rows, (0, -0.2, -0.7)):
            self.assertAlmostEqual(row[3], points)
        self.assertEqual([row[4] for row in t.rows], [True, True, False])
        self.assertAlmostEqual(t.rows[1][2], 0.001 / 3**0.5)
        self.assertAlmostEqual(t.rows[0][8], 1)  # 8,000 bytes of 2,000 values
        self.assertIsNone(t.rows[1][8])  # nobody told its density
        self.assertGreater(t.rows[2][8], 1)
        t.text()

    def test_every_strategy_has_a_name_of_its_own(self):
        names = [m.name for m in strategies.strategies(0.003)]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(names[0], "fp32")
        self.assertIn("dlgs-0.01", names)
        self.assertIn("dlgs-0.01-paper", names)
        self.assertIn("sparseThreshold-0.003", names)


FAKE = """\
    #!{python}
    import json, sys, time
    out = sys.argv[sys.argv.index("--json") + 1]
    if "--fail" in sys.argv:
        print("it broke", file=sys.stderr)
        sys.exit(3)
    if "--hang" in sys.argv:
        time.sleep(60)
    with open(out, "w") as f:
        f.write(json.dumps({epoch}) + "\\n" + json.dumps({{"event": "summary", "made": time.time()}}) + "\\n")
    """


class Runs(unittest.TestCase):
    """Runs of a program that stands for ringo."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = os.path.join(folder.name, "ringo")
        with open(program, "w") as f:
            f.write(textwrap.dedent(FAKE).format(python=sys.executable, epoch=epoch(1)))
        os.chmod(program, 0o755)
        self.runner = Runner(program, os.path.join(folder.name, "out"), 2, deadline=20, grace=0.1)

    def run_it(self, *flags, **conditions):
        with contextlib.redirect_stderr(io.StringIO()):
            return self.runner.here("run", "mnist", *flags, **conditions)

    def test_a_whole_run_is_kept(self):
        first = self.run_it("--lr", "0.1", rate=1e6)
        self.assertEqual(first.command["flags"], ["--lr", "0.1"])
        self.assertEqual(self.run_it("--lr", "0.1", rate=1e6).summary, first.summary)
        self.assertNotEqual(self.run_it("--lr", "0.2", rate=1e6).summary, first.summary)
        self.assertNotEqual(self.run_it("--lr", "0.2", rate=2e6).summary, first.summary)

    def test_half_a_run_is_made_again(self):
        whole = self.run_it()
        with open(self.runner.path("run")) as f:
            lines = f.readlines()
        with open(self.runner.path("run"), "w") as f:
            f.writelines(lines[:-1])
        self.assertNotEqual(self.run_it().summary, whole.summary)

    def test_a_failure_says_why_and_keeps_nothing(self):
        with self.assertRaisesRegex(SystemExit, "(?s)exit 3.*it broke"):
            self.run_it("--fail")
        self.assertIsNone(self.runner.kept("run"))

    def test_what_takes_too_long_is_ended(self):
        self.runner.deadline = 0.3
        with self.assertRaisesRegex(SystemExit, "not done after 0.3 s"):
            self.run_it("--hang")
        self.assertRaises(ChildProcessError, os.waitpid, -1, os.WNOHANG)  # no child is left


class Settings(unittest.TestCase):
    def test_methods(self):
        self.assertEqual(methods.dense("fixed").flags(), ["--strategy", "fp32", "--plan", "fixed"])
        m = methods.Method("DLGS", "dlgs", 0.01, "exact", every=1)
        self.assertEqual(m.flags(), ["--strategy", "dlgs", "--spars", "0.01", "--plan", "exact", "--set", "exchange.dlgs-every=1", "--tune"])
        self.assertEqual((m.name, m.title), ("dlgs-0.01-exact-every1", "DLGS 0.01"))
        o = self.options("--out x --pixels y --tasks resnet20 --steps 4 --plans --rules")
        names = [m.name for m in experiment.timed_methods(o)]
        self.assertEqual(len(set(names)), len(names))
        o.plans = o.rules = False
        self.assertEqual(len(experiment.timed_methods(o)), 11)

    def test_both_rules_with_both_planners(self):
        self.assertEqual([m.name for m in methods.rules(0.01)], ["dlgs-0.01-dlgs-scan-paper", "dlgs-0.01-exact-paper", "dlgs-0.01-dlgs-scan", "dlgs-0.01-exact"])
        self.assertEqual(methods.rules(0.01)[0].flags(), ["--strategy", "dlgs", "--spars", "0.01", "--plan", "dlgs-scan", "--set", "exchange.dlgs-rule=paper", "--tune"])
        o = self.options("--out x --pixels y --tasks resnet20 --steps 4 --rules --only dlgs-0.1-exact-paper,dlgs-0.1-exact")
        self.assertEqual([m.name for m in experiment.chosen(o, experiment.timed_methods(o))], ["dlgs-0.1-exact", "dlgs-0.1-exact-paper"])
        o = self.options("--out x --pixels y --tasks resnet20 --train --rules")
        self.assertEqual([m.name for m in methods.trained_methods(o.rules)][-2:], ["dlgs-0.1-dlgs-scan-paper", "dlgs-0.01-dlgs-scan-paper"])

    def test_a_tenth_of_the_papers_schedule(self):
        t = methods.TASKS["resnet20"]
        self.assertEqual(t.steps_per_epoch(4), 390)
        self.assertEqual(methods.TASKS["vgg16"].steps_per_epoch(4), 78)
        self.assertIn("8:0.01,12:0.001", t.training())
        self.assertIn("8:0.0005,12:5e-05", methods.TASKS["vgg16"].training())
        self.assertEqual(t.timing(4, 16, 3)[-4:], ["--train-limit", "2048", "--eval-limit", "128"])

    def options(self, line):
        with unittest.mock.patch.object(sys, "argv", ["experiment.py", *line.split()]), contextlib.redirect_stderr(io.StringIO()):
            return experiment.options()

    def test_only(self):
        o = self.options("--out x --pixels y --tasks resnet20 --train --only topk-0.1,fp32-exact")
        self.assertEqual([m.name for m in experiment.chosen(o, methods.trained_methods())], ["fp32-exact", "topk-0.1"])
        o = self.options("--out x --pixels y --tasks resnet20 --train")
        self.assertEqual(len(experiment.chosen(o, methods.trained_methods())), 7)
        o = self.options("--out x --pixels y --tasks resnet20 --steps 4 --plans --only dlgs-0.01-one")
        self.assertEqual([m.name for m in experiment.chosen(o, experiment.timed_methods(o))], ["dlgs-0.01-one"])

    def test_options_that_do_nothing_are_refused(self):
        for line in ("--out x --plans", "--out x --rules", "--out x --steps 4 --pixels y --tasks resnet20 --only dlgs-0.1-exact-paper", "--out x --unshaped", "--out x --steps 4", "--out x --only fp32-one", "--out x --steps 4 --pixels y --tasks resnet20 --only sgd", "--out x --train --pixels y --tasks resnet20 --only fp32-one", "--out x --tasks lenet", "--out x --epochs 1", "--out x --r 0"):
            with self.subTest(line), self.assertRaises(SystemExit):
                self.options(line)


if __name__ == "__main__":
    unittest.main()
