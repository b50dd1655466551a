#!/usr/bin/env python3
"""Loses a role of jobs at random times, and wants each job to go on, or to end by the right name.

usage: sudo bench/heter/losses.py --ringo FILE [--jobs 20] [--what heter,cut,server,trainer] [--dead-after 2] [--seed 1]

Each job trains ctr-dnn with two trainers, two servers and two heter-trainers, which are started one by one on three hosts that are network namespaces: trainers
and servers on the first, a heter-trainer on each of the others.

  heter    SIGKILL or SIGSTOP of a heter-trainer: the job goes on, and all samples are trained on
  cut      the link of a heter-trainer's host is cut: likewise
  server   SIGKILL of a server, whose log is kept (wal), and which is started again where it was: likewise
  trainer  SIGKILL or SIGSTOP of a trainer: the other one and the heter-trainers end and name it, within the deadline (servers, which nobody
           launched, wait for two minutes whether it comes back)

Prints a line for each job, and how many of each kind did what they should. Exits 1 if one did not.
"""
import argparse, json, os, random, re, shutil, signal, subprocess, sys, tempfile, time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns

EPOCHS, SAMPLES = 12, 6000
MODEL = ["--train-limit", str(SAMPLES), "--eval-limit", "1000", "--batch", "128", "--threads", "1", "--epochs", str(EPOCHS), "--progress", "none"]


class Job:
    def __init__(self, o, net, folder):
        self.o, self.net, self.folder = o, net, folder
        self.env = dict(os.environ, RINGO_TICKET=subprocess.run([o.ringo, "ticket"], capture_output=True, text=True, check=True).stdout.strip())
        self.times = ["--set", "job.heartbeat=200ms", "--dead-after", f"{o.dead_after}s"]
        at = net.address
        self.servers = f"{at(0)}:7001,{at(0)}:7002"
        self.heters = f"{at(1)}:7011,{at(2)}:7011"
        self.all = {}
        for i in range(2):
            self.server(i)
            self.start(f"heter {i}", 1 + i, "heter", "--index", str(i), "--np", "2", "--set", "model=ctr-dnn", "--set", f"heter.addresses={self.heters}", "--threads", "1")
        for r in range(2):
            self.start(f"trainer {r}", 0, "train", "ctr-dnn", "--data", "synthetic", *MODEL, "--np", "2", "--rank", str(r), "--rendezvous", f"{at(0)}:7000", "--servers", "2",
                       "--ps-addrs", self.servers, "--durability", "wal", "--ps-dir", f"{folder}/ps", "--set", f"heter.addresses={self.heters}", *(["--json", f"{folder}/json"] if r == 0 else []))

    def server(self, i):
        self.start(f"server {i}", 0, "server", "--index", str(i), "--np", "2", "--sync", "bsp", "--ps-addrs", self.servers, "--durability", "wal", "--ps-dir", f"{self.folder}/ps")

    def start(self, name, host, *command):
        out = open(f"{self.folder}/{name}", "a")
        self.all[name] = netns.start([*self.net.enter(host), self.o.ringo, *command, *self.times], stdout=out, stderr=out, env=self.env)

    def said(self, name):
        with open(f"{self.folder}/{name}") as f:
            return f.read()

    def epochs(self):
        try:
            with open(f"{self.folder}/json") as f:
                return [e for e in (json.loads(line) for line in f if line.endswith("\n")) if e["event"] == "epoch"]
        except FileNotFoundError:
            return []

    def await_epoch(self, n, deadline=60):
        end = time.time() + deadline
        while len(self.epochs()) < n and time.time() < end:
            time.sleep(0.01)
        return len(self.epochs()) >= n

    def wait(self, names, deadline):
        """Seconds until these have ended; None: not in time."""
        began = time.time()
        while any(self.all[n].poll() is None for n in names):
            if time.time() - began > deadline:
                return None
            time.sleep(0.01)
        return time.time() - began


def lose(job, kind, rng):
    """Loses something, and returns what it was, and which processes it leaves."""
    which = rng.randrange(2)
    sig = rng.choice([signal.SIGKILL, signal.SIGSTOP])
    names = [n for n in job.all]
    if kind == "cut":
        netns.run(f"ip -n {job.net.bridge} link set p{1 + which} down")
        return f"link of heter {which}", f"heter {which}", names
    name = {"heter": "heter", "server": "server", "trainer": "trainer"}[kind] + f" {which}"
    if kind == "server":
        sig = signal.SIGKILL
    # ip netns exec has become the program: the process is its own
    job.all[name].send_signal(sig)
    if kind == "server":
        job.all[name].wait()
        job.server(which)
        return f"{name} by {sig.name}, started again", name, names
    return f"{name} by {sig.name}", name, [n for n in names if n != name and not (kind == "trainer" and n.startswith("server"))]


def check(o, job, kind, rng):
    if not job.await_epoch(1):
        return "did not begin", "nothing"
    time.sleep(rng.uniform(0, 0.5))
    what, victim, left = lose(job, kind, rng)
    began, seen = time.time(), len(job.epochs())
    if kind == "trainer":
        number = int(victim.split()[1])
        took = job.wait(left, o.dead_after + 10)
        if took is None:
            return f"{[n for n in left if job.all[n].poll() is None]} did not end", what
        named = [n for n in left if not re.search(rf"(rank|trainer) {number}\b", job.said(n))]
        ended = [n for n in left if job.all[n].returncode == 0]
        return (f"{named} do not name it" if named else f"{ended} ended well" if ended else None), f"{what}: ended after {took:.2f} s"
    main = ["trainer 0", "trainer 1"] + [n for n in left if n != victim and not n.startswith("trainer")]
    if kind == "server":
        main = left
    if job.wait(main, 120) is None:
        return f"{[n for n in main if job.all[n].poll() is None]} did not end", what
    if bad := [n for n in main if job.all[n].returncode != 0]:
        return f"{bad} failed", what
    if seen >= EPOCHS:
        return "it had ended before", what
    batches = SAMPLES // (2 * 128)
    epochs = job.epochs()
    if len(epochs) != EPOCHS or any(e.get("samples", SAMPLES) < batches * 256 for e in epochs):
        return f"{len(epochs)} epochs", what
    if kind in ("heter", "cut") and "heter-trainer" not in job.said("trainer 0") + job.said("trainer 1"):
        return "no trainer names it", what
    return None, f"{what}, in epoch {seen + 1}; the rest took {time.time() - began:.1f} s"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ringo", required=True)
    ap.add_argument("--jobs", type=int, default=20, help="of each kind")
    ap.add_argument("--what", default="heter,cut,server,trainer")
    ap.add_argument("--dead-after", type=float, default=2)
    ap.add_argument("--seed", type=int, default=1)
    o = ap.parse_args()
    o.ringo = os.path.abspath(o.ringo)
    netns.need_root()
    netns.raise_on_signals()
    rng, failed = random.Random(o.seed), 0
    for kind in o.what.split(","):
        good = 0
        for i in range(o.jobs):
            folder = tempfile.mkdtemp(prefix="losses-")
            with netns.Net("losses", hosts=3) as net:
                job = Job(o, net, folder)
                try:
                    fault, what = check(o, job, kind, rng)
                finally:
                    netns.end(job.all.values())
            print(f"{kind} {i + 1}: {what}" + (f": FAILED: {fault}; see {folder}" if fault else ""), flush=True)
            good += fault is None
            failed += fault is not None
            if not fault:
                shutil.rmtree(folder)
        print(f"{kind}: {good} of {o.jobs}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
