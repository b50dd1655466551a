import json, os, subprocess, sys, tempfile, unittest

import auc
import experiment
import mixes

# A launcher with a server, a heter-trainer and a rank, and a child that is no other program yet. Its first argument is that of a rank.
LAUNCHER = """
import os, subprocess, sys, time
if "--np" in sys.argv and os.fork():
    time.sleep(0.2)
    for role in ("server", "heter", "train"):
        subprocess.Popen(["ringo", role], executable="/proc/self/exe")
time.sleep(60)
"""


class FakeGroup:
    def __init__(self):
        self.pids = []

    def add(self, pid):
        self.pids.append(pid)


class Pairs(unittest.TestCase):
    def test_differences_are_those_of_pairs(self):
        self.assertEqual(auc.row("async", [(0.70, 0.71), (0.74, 0.77)]), "| async | 2 | 0.7200 (0.0283) | 0.7400 (0.0424) | +0.0200 ± 0.0100 |")
        self.assertIn("+0.0100 ± nan", auc.row("geo", [(0.70, 0.71)]))


class Places(unittest.TestCase):
    def test_each_process_is_put_in_a_group_of_its_role(self):
        with tempfile.TemporaryDirectory() as folder:
            for role in ("server", "heter", "train"):
                with open(os.path.join(folder, role), "w") as f:
                    f.write(LAUNCHER)
            command = ["ringo", "train", "--np", "1"]
            launcher = subprocess.Popen(command, executable=sys.executable, cwd=folder)
            groups = {role: FakeGroup() for role in ("server", "heter", "train")}
            try:
                placed = experiment.place(launcher, command, {role: [g] for role, g in groups.items()})
                self.assertEqual(sorted(placed.values()), ["heter", "server", "train"])
                said = {role: [args for pid, args in experiment.descendants(launcher.pid) if pid in g.pids] for role, g in groups.items()}
            finally:
                for pid, _ in experiment.descendants(launcher.pid):
                    os.kill(pid, 9)
                launcher.kill()
                launcher.wait()
            self.assertEqual({role: [args[1:-1] for args in of] for role, of in said.items()}, {role: [[role]] for role in groups})

    def test_a_process_that_does_not_come_is_told(self):
        launcher = subprocess.Popen([sys.executable, "-c", ""])
        with self.assertRaisesRegex(SystemExit, "{'heter': 1} are missing"):
            experiment.place(launcher, [], {"heter": [FakeGroup()]})


class Figures(unittest.TestCase):
    def test_the_bound_is_that_of_the_slowest_group(self):
        self.assertEqual(experiment.bound({"cheap": 0.5, "dear": 1}, {"cheap": 2, "dear": 10}, 100), 10)
        self.assertEqual(experiment.bound({"cheap": 0.5, "dear": 1}, {"cheap": 8, "dear": 10}, 100), 6.25)
        self.assertEqual(experiment.bound({"dear": 1.5, "heter": 1, "train": 1}, {"dear": 12, "heter": 10, "train": 1}, 100), 10)

    def test_what_a_process_used_is_read(self):
        before = os.times()
        used = experiment.used(os.getpid())
        after = os.times()
        self.assertTrue(before.user + before.system - 0.02 <= used <= after.user + after.system + 0.02, (before, used, after))
        self.assertEqual(experiment.used(2 ** 22 + 1), 0)

    def test_only_whole_lines_are_read(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            f.write(json.dumps({"event": "epoch", "epoch": 1}) + "\n" + json.dumps({"event": "step"}) + "\n" + '{"event": "ep')
            f.flush()
            self.assertEqual([e["epoch"] for e in experiment.read(f.name)], [1])
        self.assertEqual(experiment.read("/nowhere/at/all"), [])

    def test_ratios_are_to_cpu_trainers(self):
        def runs(*rates):
            return [{"samples_per_s": r, "bound": 400, "stages": None} for r in rates]

        lines = experiment.table({("m", "servers, CPU trainers", False): runs(90, 100, 300), ("m", "heter-trainers", False): runs(200, 150, 250)})
        self.assertEqual(lines[0], "| more | m | servers, CPU trainers | 100 | 1.00 x | 0.25 |  |")
        self.assertEqual(lines[1], "| more | m | heter-trainers | 200 | 2.00 x | 0.50 |  |")

    def test_waits_are_told_longest_first(self):
        stage = {"busy_s": 1, "starved_s": 0, "blocked_s": 0}
        stages = {"pull": {**stage, "busy_s": 0, "starved_s": 2}, "pool": stage, "send": {**stage, "starved_s": 50}, "back": {**stage, "starved_s": 6}}
        self.assertEqual(experiment.waits(stages), "back starved 60 %, pull starved 20 %, pool busy 10 %")
        self.assertEqual(experiment.waits(None), "")


class Mixes(unittest.TestCase):
    def test_a_machine_that_takes_longer_is_slower(self):
        cost = {"step": 1, "sample": 0.5}  # 2 s for 2 samples
        profile = {"heter": dict.fromkeys(("read_s", "pool_s", "back_s", "part_s"), cost) | {"split": {"serve_s": cost, "rows_s": cost}}}
        self.assertEqual(mixes.speed(profile, {"spent": {"train": 8, "server": 4, "heter": 4}}, 2), 0.75)
        self.assertEqual(mixes.speed(profile, {"spent": {"train": 6, "server": 3, "heter": 3}}, 2), 1)

    def test_a_mix_is_read(self):
        self.assertEqual(mixes.parse("2x0.25/1x0.5/1x1,2x0.5"), {"train": [0.25, 0.25], "server": [0.5], "heter": [1, 0.5, 0.5]})
        for mix in mixes.MIXES.split():
            self.assertLessEqual(sum(sum(c) for c in mixes.parse(mix).values()), 2)

    def test_two_batches_make_a_line(self):
        self.assertEqual(mixes.line(3, 6, 100, 400), {"step": 2, "sample": 0.01})
        self.assertEqual(mixes.line(6, 3, 100, 400), {"step": 3, "sample": 0})


if __name__ == "__main__":
    unittest.main()
