#!/usr/bin/env python3
"""Starts ctr-dnn with servers and heter-trainers on four hosts by `ringo train --hosts` through a real sshd, and breaks jobs at random.

usage: bench/hosts/heter.py [--faults N] [--seed S] [--ringo FILE]

Ranks and servers are on hosts 0 and 1, heter-trainers on hosts 2 and 3. A fault kills a heter-trainer, the session of sshd or the launcher of
its host, cuts its link, or does that to both of them, to a server's host or to the job's launcher. As long as a heter-trainer is left
the job goes on, and names the one that is not; else everything is to end on every host within a deadline. It needs what check.py needs.
"""
import os, random, re, signal, subprocess, threading, time

import check
from check import netns

MODEL = ["train", "ctr-dnn", "--data", "synthetic", "--train-limit", "20000", "--eval-limit", "500", "--progress", "none", "--batch", "100", "--threads", "1"]
AFTER = 30  # seconds in which a job that goes on says that it has done another epoch


def words(ranks, heters):
    return ["--np", str(ranks), "--servers", "2", "--set", "servers.hosts=h0,h1", "--heter", str(heters), "--set", "heter.hosts=h2,h3"]


def job(o, hosts, list, *more):
    ssh = ["--set", f"job.ssh=ssh -F {hosts.folder}/config", "--hosts", list]
    return netns.start(hosts.inside(0, [o.ringo, *MODEL, *ssh, *more]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=check.ROOT)


class Lines:
    """What a job prints, as it comes."""

    def __init__(self, p):
        self.p, self.text, self.changed = p, "", threading.Condition()
        self.ended = False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.p.stdout:
            with self.changed:
                self.text += line
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait(self, pattern, seconds, start=0):
        """Whether a pattern comes behind a place within so many seconds; returns that place's end, or -1."""
        end = time.time() + seconds
        with self.changed:
            while not (found := re.search(pattern, self.text[start:])):
                left = end - time.time()
                if left <= 0 or self.ended:
                    return -1
                self.changed.wait(left)
            return start + found.end()


def role(q, name):
    return len(q["words"]) > 1 and q["words"][1] == name


def strike(o, hosts, kind, rng):
    """Breaks something of a job; returns what the launcher is to say, whether the job goes on, and what mends it."""
    all = check.processes(o.ringo)
    space = {i: os.stat(f"/run/netns/{hosts.net.hosts[i]}").st_ino for i in range(check.HOSTS)}
    on = lambda i, name: [q["pid"] for q in all if q["space"] == space[i] and role(q, name)]
    kill = lambda pids: [os.kill(pid, signal.SIGKILL) for pid in pids]
    link = lambda i, way: subprocess.run(["ip", "-n", hosts.net.bridge, "link", "set", f"p{i}", way], check=True)
    victim = rng.randrange(2)
    host = 2 + victim
    lost = rf"heter-trainer {victim} on h{host} is lost"
    if kind == "heter":
        kill(on(host, "heter"))
        return lost + ".*killed by signal 9", True, None
    if kind == "again":
        kill(on(host, "heter"))
        return rf"{lost}.*it is started again(.|\n)*heter-trainer {victim} of 2 is up", True, None
    if kind == "session":
        kill(check.session(space[host]))
        return lost, True, None
    if kind == "attendant":
        kill(on(host, "attend-host"))
        return lost, True, None
    if kind == "link":
        link(host, "down")
        return lost, True, lambda: link(host, "up")
    if kind == "both":
        for i in (2, 3):
            kill(on(i, "heter"))
        return r"heter-trainer [01] on h[23] is lost", False, None
    if kind == "server":
        kill(check.session(space[1]))
        return r"(rank 1|server 1) on h1 is lost", False, None
    launcher = next(q["pid"] for q in all if role(q, "train") and q["rank"] is None)
    os.kill(launcher, signal.SIGKILL if kind == "launcher" else signal.SIGTERM)
    return "" if kind == "launcher" else "interrupted by SIGTERM", False, None


KINDS = ["heter", "again", "session", "attendant", "link", "both", "server", "launcher", "told"]


def end(o, lines, limit):
    """How long it takes until a job has ended on all hosts."""
    begun = time.time()
    while (lines.p.poll() is None or check.processes(o.ringo)) and time.time() - begun < limit:
        time.sleep(0.1)
    left = check.processes(o.ringo)
    for q in left:
        os.kill(q["pid"], signal.SIGKILL)
    lines.p.kill()
    if left:
        raise SystemExit(f"left after {limit} s: {left}\n{lines.text}")
    return time.time() - begun


lost_line = r"ringo: (?!server \d+: the connection).*"  # what is told first


def fault(o, hosts, kind, rng):
    again = ["--set", "job.max-restarts=1"] if kind == "again" else []
    lines = Lines(job(o, hosts, "h0,h1", *words(2, 2), "--epochs", "100000", *check.TIMES, *again))
    at = lines.wait(r"epoch +1/", check.PATIENCE)
    if at < 0:
        raise SystemExit(f"it does not train\n{lines.text}")
    time.sleep(rng.random())
    want, goes, mend = strike(o, hosts, kind, rng)
    try:
        begun, at = time.time(), len(lines.text)
        if goes:
            named = lines.wait(want, check.DEADLINE, at)
            took = time.time() - begun
            for _ in range(2):  # epochs: one may have been under way
                if named < 0 or (named := lines.wait(r"epoch +\d+/", AFTER, named)) < 0:
                    raise SystemExit(f"{kind}: want {want!r}, and that it goes on, in\n{lines.text[at:]}\nof\n{lines.text}")
            launcher = next(q["pid"] for q in check.processes(o.ringo) if role(q, "train") and q["rank"] is None)
            os.kill(launcher, signal.SIGTERM)
            all = end(o, lines, check.DEADLINE)
            line = re.search(lost_line, lines.text[at:])[0]
            print(f"{kind:<10} named after {took:4.1f} s, goes on, ended within {all:4.1f} s of SIGTERM: {line[:170]}", flush=True)
            return
        all = end(o, lines, check.SOON)
        if not re.search(want, lines.text[at:]):
            raise SystemExit(f"{kind}: want {want!r} in\n{lines.text[at:]}\nof\n{lines.text}")
        line = re.search(lost_line, lines.text[at:]) or [""]
        print(f"{kind:<10} ended within {all:4.1f} s: {line[0][:170]}", flush=True)
    finally:
        if mend:
            mend()
        lines.p.kill()


def main():
    o = check.options(__doc__.split("\n")[0], KINDS, len(KINDS))
    with check.rig(o) as hosts:
        exact = ["--epochs", "1", "--set", "heter.micro-batches=1"]  # one trainer and one heter-trainer: all sums have one order
        alone = subprocess.run([o.ringo, *MODEL, *exact, "--np", "1", "--servers", "2", "--heter", "1"], capture_output=True, text=True)
        want = check.hash_of(alone.stdout, f"one host\n{alone.stderr}")
        check.same(job(o, hosts, "h0", *words(1, 1), *exact), want, "four hosts")
        rng, kinds = random.Random(o.seed), o.kinds.split(",")
        for i in range(o.faults):
            fault(o, hosts, kinds[i % len(kinds)], rng)


if __name__ == "__main__":
    main()
