#!/usr/bin/env python3
"""Random losses of ranks in jobs of virtual workers: each job must end as an undisturbed one.

    python3 bench/elastic/elastic.py RINGO [--seed N] [--jobs N] [--max-faults N]

A job is drawn by its seed: model, strategy, transport, numbers of workers and ranks, and a schedule of 1 to --max-faults
faults (steps, rank, signal), SIGKILL, SIGSTOP or SIGTERM (the rank leaves) after a number of steps of a start; 0 means during the start. After the job, these are compared with a run on one rank without faults: the
hash of the parameters and the metrics of each epoch, which count each sample once. No process, and so no memory of snapshots,
and no file in /dev/shm may remain, no rank without a fault may be lost, and a job with departures only may compute no step again. Of a failed job the seed and the shortest schedule that still fails are printed.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

MODELS = {  # samples of a worker's step, steps of an epoch
    "mnist": (8, 100),
    "cifar-resnet20": (2, 40),
    "lstm": (2, 20),
}
STRATEGIES = ["fp32", "topk", "dgc", "dlgs"]
TRANSPORTS = ["shm", "tcp"]
COMMON = ["--data", "synthetic", "--eval-limit", "33", "--threads", "1", "--progress", "none", "--log-every", "1"]
PATIENCE = 600  # seconds of a job


class Job:
    def __init__(self, seed, max_faults):
        r = random.Random(seed)
        self.seed, self.model = seed, r.choice(list(MODELS))
        self.strategy, self.transport = r.choice(STRATEGIES), r.choice(TRANSPORTS)
        self.workers = r.randint(2, 8)
        self.ranks = r.randint(2, min(4, self.workers))
        self.least = r.randint(1, self.ranks)
        self.every = r.choice([0, 0, 7, 25])
        self.faults = []
        for i in range(r.randint(1, max_faults)):  # no two in starts without a snapshot, which end a job
            steps = r.randint(5, 20) if i % 2 else r.randint(0, 20)
            self.faults.append((steps, r.randrange(8), r.choice(["KILL", "KILL", "KILL", "STOP", "TERM", "TERM"])))
        if r.randrange(5) == 0:  # departures only
            self.faults = [(max(steps, 5), rank, "TERM") for steps, rank, _ in self.faults]

    def line(self):
        batch, steps = MODELS[self.model]
        words = ["train", self.model, *COMMON, "--epochs", "2", "--batch", str(batch), "--train-limit", str(batch * steps * self.workers)]
        words += ["--workers", str(self.workers), "--strategy", self.strategy]
        return words + ([] if self.strategy == "fp32" else ["--spars", "0.05"])

    def __str__(self):
        return (f"seed {self.seed}: {self.model} {self.strategy} {self.transport}, {self.workers} workers, {self.ranks} ranks, "
                f"at least {self.least}, --checkpoint-every {self.every}")


def processes(mark):
    """Returns the environments of processes with a mark, by number."""
    out = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = f.read().split(b"\0")
        except OSError:
            continue
        if mark.encode() in env:
            out[int(pid)] = dict(v.split(b"=", 1) for v in env if b"=" in v)
    return out


def ranks(mark):
    return [pid for pid, env in processes(mark).items() if b"RINGO_RANK" in env]


def events(path):
    try:
        with open(path) as f:
            for line in f:
                if line.endswith("\n"):
                    yield json.loads(line)
    except FileNotFoundError:
        return


def result(path):
    """Returns the hash and the metrics of each epoch, of the last start that ended it."""
    epochs, last = {}, {}
    for e in events(path):
        if e.get("event") == "epoch":
            epochs[e["epoch"]] = {k: e[k] for k in ("train_loss", "eval_loss", "train", "eval") if k in e}
        elif e.get("event") == "summary":
            last = e
    return last.get("params_sha256"), epochs


def progress(path):
    """Returns the number of starts that have steps, and the number of steps of the last one."""
    starts, steps = 0, 0
    for e in events(path):
        if e.get("event") == "run":
            starts, steps = starts + 1, 0
        steps += e.get("event") == "step"
    return starts, steps


def repeated(path):
    """Returns the number of steps that were computed again."""
    done = [e["done"] for e in events(path) if e.get("event") == "step"]
    return len(done) - len(set(done))


def undisturbed(ringo, job, cache):
    key = " ".join(job.line())
    if key not in cache:
        with tempfile.TemporaryDirectory() as d:
            subprocess.run([ringo, *job.line(), "--np", "1", "--json", d + "/json"], check=True, capture_output=True, timeout=PATIENCE)
            cache[key] = result(d + "/json")
    return cache[key]


def disturbed(ringo, job, faults, want):
    """Runs a job with faults and returns the reason of its failure, or ''."""
    with tempfile.TemporaryDirectory() as d:
        mark = f"ELASTIC_MARK={d}"
        line = [ringo, *job.line(), "--transport", job.transport, "--np", str(job.ranks), "--min-np", str(job.least), "--checkpoint", d + "/run", "--json", d + "/json"]
        if job.every:
            line += ["--checkpoint-every", str(job.every)]
        p = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=open(d + "/err", "w"), env=dict(os.environ, ELASTIC_MARK=d))
        end, left, given, victim, before = time.time() + PATIENCE, list(faults), 0, 0, 0
        while p.poll() is None and time.time() < end:
            there, (starts, steps) = sorted(ranks(mark)), progress(d + "/json")
            if left and there and victim not in there and (steps if starts > before else 0) >= left[0][0]:
                _, rank, sig = left.pop(0)
                victim, before = there[rank % len(there)], starts
                try:
                    os.kill(victim, getattr(signal, "SIG" + sig))
                    given += 1
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
        if p.poll() is None:
            for pid in processes(mark):
                os.kill(pid, signal.SIGKILL)
            p.wait()
            return f"not done after {PATIENCE} s"
        with open(d + "/err") as f:
            stderr = f.read()
        if p.returncode != 0:
            return f"status {p.returncode}: {stderr[-2000:]}"
        if (got := result(d + "/json")) != want:
            return f"{got}, want {want}; stderr: {stderr[-2000:]}"
        if all(sig == "TERM" for _, _, sig in faults) and (n := repeated(d + "/json")):
            return f"{n} steps computed again; stderr: {stderr[-2000:]}"
        if (lost := stderr.count(" is lost (") + stderr.count(" leaves (") + stderr.count(" has not joined again")) > given:
            return f"{lost} losses after {given} faults; stderr: {stderr[-2000:]}"
        time.sleep(0.2)
        if there := processes(mark):
            return f"processes remain: {sorted(there)}"
        if more := [n for n in os.listdir("/dev/shm") if f"-{p.pid}-" in n]:
            return f"files in /dev/shm remain: {more}"
    return ""


def shortest(ringo, job, faults, want):
    """Removes faults one by one while the job still fails."""
    i = 0
    while i < len(faults) and len(faults) > 1:
        fewer = faults[:i] + faults[i + 1:]
        if disturbed(ringo, job, fewer, want):
            faults = fewer
        else:
            i += 1
    return faults


def main():
    p = argparse.ArgumentParser()
    p.add_argument("ringo")
    p.add_argument("--seed", type=int, default=1, help="seed of the first job")
    p.add_argument("--jobs", type=int, default=20)
    p.add_argument("--max-faults", type=int, default=20)
    a = p.parse_args()
    cache, failed, total = {}, 0, 0
    for seed in range(a.seed, a.seed + a.jobs):
        job = Job(seed, a.max_faults)
        want, start = undisturbed(a.ringo, job, cache), time.time()
        why = disturbed(a.ringo, job, job.faults, want)
        total += len(job.faults)
        print(f"{job}, {len(job.faults)} faults: {'FAILED: ' + why if why else 'ok'} ({time.time() - start:.0f} s)", flush=True)
        if why:
            failed += 1
            print(f"  shortest schedule (steps, rank, signal): {shortest(a.ringo, job, job.faults, want)}", flush=True)
    print(f"{a.jobs} jobs, {total} faults, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
