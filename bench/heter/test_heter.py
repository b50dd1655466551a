import json, os, subprocess, sys, tempfile, unittest

import experiment
import mixes

# A launcher with a server, a heter-trainer and a rank.
LAUNCHER = """
import subprocess, sys, time
for role in ("server", "heter", "train"):
    subprocess.Popen(["ringo", role], executable=sys.executable)
time.sleep(60)
"""


class FakeGroup:
    def __init__(self):
        self.pids = []

    def add(self, pid):
        self.pids.append(pid)


class Places(unittest.TestCase):
    def test_each_role_is_put_in_its_group(self):
        with tempfile.TemporaryDirectory() as folder:
            for role in ("server", "heter", "train"):
                with open(os.path.join(folder, role), "w") as f:
                    f.write("import time; time.sleep(60)\n")
            launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], cwd=folder)
            groups = {"cheap": FakeGroup(), "dear": FakeGroup()}
            _, roles = experiment.ARCHITECTURES["heter-trainers"]
            try:
                placed = experiment.place(launcher, roles, groups, 3)
            finally:
                for pid, _ in experiment.descendants(launcher.pid):
                    os.kill(pid, 9)
                launcher.kill()
                launcher.wait()
            self.assertEqual(len(placed), 3)
            self.assertEqual((len(groups["cheap"].pids), len(groups["dear"].pids)), (2, 1))


class Figures(unittest.TestCase):
    def test_the_bound_is_that_of_the_slowest_group(self):
        self.assertEqual(experiment.bound({"cheap": 0.5, "dear": 1}, {"cheap": 2, "dear": 10}, 100), 10)
        self.assertEqual(experiment.bound({"cheap": 0.5, "dear": 1}, {"cheap": 8, "dear": 10}, 100), 6.25)

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
    def test_a_mix_is_read(self):
        self.assertEqual(mixes.parse("2x0.25/1x0.5/1x1,2x0.5"), {"train": [0.25, 0.25], "server": [0.5], "heter": [1, 0.5, 0.5]})
        for mix in mixes.MIXES.split():
            self.assertLessEqual(sum(sum(c) for c in mixes.parse(mix).values()), 2)

    def test_two_batches_make_a_line(self):
        self.assertEqual(mixes.line(3, 6, 100, 400), {"step": 2, "sample": 0.01})
        self.assertEqual(mixes.line(6, 3, 100, 400), {"step": 3, "sample": 0})


if __name__ == "__main__":
    unittest.main()
