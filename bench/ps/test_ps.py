import os, signal, subprocess, sys, tempfile, time, unittest

import experiment, processes

# A launcher with a child that is called as servers are, and one that is not.
LAUNCHER = """
import subprocess, sys, time
server = subprocess.Popen(["ringo", "server"], executable=sys.executable)
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(server.pid, flush=True)
print(server.wait(), flush=True)
time.sleep(60)
"""


class Processes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        with open(os.path.join(self.folder.name, "server"), "w") as f:
            f.write("import time; time.sleep(60)\n")
        self.launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE, text=True, cwd=self.folder.name, start_new_session=True)
        self.server = int(self.launcher.stdout.readline())

    def tearDown(self):
        os.killpg(self.launcher.pid, signal.SIGKILL)
        self.launcher.wait()
        self.launcher.stdout.close()
        self.folder.cleanup()

    def test_a_server_is_killed_and_nothing_else(self):
        deadline = time.monotonic() + 20
        while processes.servers(self.launcher.pid) != [self.server] and time.monotonic() < deadline:
            time.sleep(0.01)  # until it has become what it is called
        self.assertEqual(processes.servers(self.launcher.pid), [self.server])
        self.assertEqual(len(processes.descendants(self.launcher.pid)), 2)
        killer = processes.Killer(1, 0.01, 7)
        while not killer.killed and time.monotonic() < deadline:
            killer([self.launcher])
        self.assertEqual(self.launcher.stdout.readline(), "-9\n")
        self.assertEqual(len(processes.descendants(self.launcher.pid)), 1)
        killer([self.launcher])
        self.assertEqual((killer.killed, killer.left), (1, 0))


class Files(unittest.TestCase):
    def test_the_most_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "server-0", "below", "x"))
            inside, outside = os.path.join(folder, "server-0", "below", "x", "f"), os.path.join(folder, "server-0", "f")
            for path in (inside, outside):
                with open(path, "wb") as f:
                    f.write(os.urandom(100_000))
                    os.fsync(f.fileno())
            watch = processes.Folder(folder, "below")
            watch(None)
            os.unlink(inside)
            watch.next = 0
            watch(None)
            self.assertTrue(100_000 <= watch.most < 200_000, watch.most)


class Figures(unittest.TestCase):
    def test_means_and_errors(self):
        runs = [{"eval_auc": 0.7}, {"eval_auc": 0.8}]
        self.assertAlmostEqual(experiment.mean(runs, "eval_auc"), 0.75)
        self.assertAlmostEqual(experiment.error(runs, "eval_auc"), 0.05)
        self.assertIsNone(experiment.error(runs[:1], "eval_auc"))


if __name__ == "__main__":
    unittest.main()
