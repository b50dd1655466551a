#!/usr/bin/env python3
"""Goodput of a job that loses a rank again and again: the steps that it completes, over those of the same job without losses.

    python3 bench/elastic/goodput.py RINGO [--minutes N] [--every S] [--stops N] [--model MODEL] [--np N]

Three jobs run in turn for the same time: without losses, with a fault every S seconds, and without losses again. A lost rank is replaced
(--min-np equals --np). Every Nth fault is a SIGSTOP, the others are SIGKILL. A step counts once, however often it is computed. Printed are also
the times from a fault to the next step that the job had not completed before the fault.
"""
import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time

from elastic import ranks

BATCH = {"mnist": 64, "cifar-resnet20": 16, "lstm": 8}


class Records:
    """The steps in a growing file of --json, read once."""

    def __init__(self, path):
        self.path, self.at, self.last = path, 0, 0

    def step(self):
        """Returns the highest number of completed steps so far."""
        try:
            with open(self.path) as f:
                f.seek(self.at)
                while (line := f.readline()).endswith("\n"):
                    self.at = f.tell()
                    if '"event":"step"' in line:
                        e = json.loads(line)
                        self.last = max(self.last, e["done"])
        except FileNotFoundError:
            pass
        return self.last


def run(o, every):
    """Returns the steps a second, from the first step on, and the times from each fault to a new step."""
    with tempfile.TemporaryDirectory() as d:
        line = [o.ringo, "train", o.model, "--data", "synthetic", "--train-limit", "20000", "--eval-limit", "100", "--epochs", "1000", "--batch", str(BATCH[o.model]),
            "--workers", str(o.np), "--np", str(o.np), "--threads", "1", "--min-np", str(o.np), "--checkpoint", d + "/run", "--log-every", "1", "--progress", "none", "--json", d + "/json"]
        p = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=open(d + "/err", "w"), env=dict(os.environ, ELASTIC_MARK=d))
        records, took, fault, number = Records(d + "/json"), [], None, itertools.count(1)
        while not (first := records.step()) and p.poll() is None:
            time.sleep(0.01)
        start = time.time()
        due, end = start + every, start + 60 * o.minutes
        while (now := time.time()) < end and p.poll() is None:
            if fault and records.step() > fault[1]:
                took.append(now - fault[0])
                fault = None
            if every and now >= due:
                n, there = next(number), sorted(ranks(f"ELASTIC_MARK={d}"))
                fault = (time.time(), records.step())
                os.kill(there[n % len(there)], signal.SIGSTOP if o.stops and n % o.stops == 0 else signal.SIGKILL)
                due += every
            time.sleep(0.02 if fault else 0.2)
        rate = (records.step() - first) / (time.time() - start)
        if p.poll() is not None:
            raise SystemExit(f"the job has ended: {open(d + '/err').read()[-2000:]}")
        p.send_signal(signal.SIGTERM)
        p.wait(60)
        return rate, took


def main():
    a = argparse.ArgumentParser()
    a.add_argument("ringo")
    a.add_argument("--minutes", type=float, default=10, help="time of each of the three jobs")
    a.add_argument("--every", type=float, default=29, help="seconds between faults")
    a.add_argument("--stops", type=int, default=0, help="every Nth fault is SIGSTOP; 0: none")
    a.add_argument("--model", default="cifar-resnet20", choices=BATCH)
    a.add_argument("--np", type=int, default=2)
    o = a.parse_args()
    before, _ = run(o, 0)
    rate, took = run(o, o.every)
    after, _ = run(o, 0)
    took.sort()
    print(f"{o.model}, {o.np} ranks: {before:.2f} and {after:.2f} steps/s without losses, {rate:.2f} with {len(took)} losses in {o.minutes:g} minutes: goodput {100 * rate / statistics.mean((before, after)):.1f} %")
    if took:
        print(f"from a fault to a new step: median {statistics.median(took):.2f} s, at most {took[-1]:.2f} s")


if __name__ == "__main__":
    main()
