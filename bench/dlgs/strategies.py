#!/usr/bin/env python3
"""Every strategy beside fp32: the digits' convolutional network, two workers, several seeds.

usage: bench/dlgs/strategies.py --data MNIST --out DIR [--seeds 1,2,3] [--only fp16,dlgs-0.01] …

Prints, and writes to strategies.md and strategies.txt in --out, the mean test accuracy after the last
epoch with its distance to that of fp32, and the bytes that a rank sent in a step beside what
the formulas predict. Runs are kept in --out, and those that are whole are not made again.
"""
import argparse, json, math, os, statistics, subprocess, sys, tempfile

import volumes
from methods import PAPER_RULE, RATIOS, Method
from ranks import Runner, build, netns
from report import steady
from tables import Percent, Table

MODEL = "mnist"
BATCH = 64
EXACT = ("sparseTopK", "topk", "lags")  # send exactly the share that was asked for; of others it is measured
POINTS = 0.3  # by how much a mean may differ from fp32's


def strategies(threshold):
    """One by one, the sparse ones at each ratio."""
    plain = [Method(s, s) for s in ("fp32", "fp16", "bf16", "int8", "partialUpdate")]
    sparse = [Method(s, s, ratio) for s in ("sparseTopK", "topk", "lags", "dgc", "dlgs") for ratio in RATIOS]
    sparse += [Method("dlgs as printed", "dlgs", ratio, rule=PAPER_RULE) for ratio in RATIOS]
    return [*plain, *sparse, Method("sparseThreshold", "sparseThreshold", threshold)]


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--data", default="", help="MNIST's four files; without, only the table of what is kept")
    ap.add_argument("--out", required=True, help="where runs are kept, and the table is written")
    ap.add_argument("--seeds", default="1,2,3")
    ap.add_argument("--only", default="", help="some strategies, by their names in the table; fp32 always")
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--threshold", type=float, default=0.02, help="of sparseThreshold; it should send at most a tenth")
    ap.add_argument("--deadline", type=float, default=3600, help="seconds that a run may take")
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    o = ap.parse_args()
    o.seeds = [int(s) for s in o.seeds.split(",")]
    o.methods = strategies(o.threshold)
    known = [m.name for m in o.methods]
    o.only = o.only.split(",") if o.only else known
    for name in o.only:
        if name not in known:
            ap.error(f"--only {name}: want some of {', '.join(known)}")
    if o.epochs < 1 or o.workers < 2 or not o.threshold > 0:
        ap.error("want --epochs of at least 1, --workers of at least 2, --threshold above 0")
    o.methods = [m for m in o.methods if m.name in o.only or m.name == "fp32"]
    return o


def run_name(method, epochs, seed):
    return f"{MODEL}-{epochs}-{method.name}-{seed}"


def one_run(o, runner, method, seed):
    return runner.here(run_name(method, o.epochs, seed), MODEL, *method.flags(), "--batch", str(BATCH), "--epochs", str(o.epochs),
                       "--seed", str(seed), "--transport", "tcp", "--threads", "1", "--data", os.path.abspath(o.data))


def groups(o, runner):
    """By plan, how many values each of its groups has: of `ringo plan`, or kept."""
    path = os.path.join(o.out, f"{MODEL}-groups.json")
    if runner.ringo:
        found = {plan: groups_of(runner.ringo, plan) for plan in ("one", "per-layer", "fixed")}
        with open(path, "w") as f:
            json.dump(found, f)
    if not os.path.exists(path):
        return {}
    with open(path) as f:
        return json.load(f)


def groups_of(ringo, plan):
    command = [ringo, "plan", MODEL, "--np", "2", "--strategy", "fp32", "--plan", plan, "--compute-ms", "1", "--json", "-"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [g["values"] for g in json.loads(next(line for line in lines if line.startswith("{")))["groups"]]


class Result:
    """The seeds of a strategy. found has the groups of each plan."""

    def __init__(self, method, runs, found, workers):
        self.method, self.accuracy = method, [r.summary["eval_accuracy"] for r in runs]
        figures = [steady(r) for r in runs]
        median = lambda key: statistics.median(f[key] for f in figures) if all(key in f for f in figures) else None
        self.sent, self.density, self.step_ms = median("step_bytes_sent"), median("density"), median("step_ms")
        share = method.spars if method.strategy in EXACT else self.density
        sizes = found.get(runs[0].summary.get("plan"))
        self.predicted = sizes and volumes.predicted(method.strategy, sizes, workers, share)

    @property
    def mean(self):
        return statistics.mean(self.accuracy)

    @property
    def error(self):
        """The standard error of the mean."""
        return statistics.stdev(self.accuracy) / math.sqrt(len(self.accuracy)) if len(self.accuracy) > 1 else 0.0


def table(results, epochs, workers):
    fp32 = next(r for r in results if r.method.strategy == "fp32")
    out = Table(f"{MODEL}: every strategy beside fp32, {epochs} epochs, {workers} workers, {len(fp32.accuracy)} seeds",
                ["strategy", "accuracy", "standard error", "points to fp32", "within", "step ms", "sent kB", "predicted kB", "sent / predicted", "density"])
    for r in results:
        points = 100 * (r.mean - fp32.mean)
        ratio = r.sent / r.predicted if r.sent and r.predicted else None
        kb = lambda v: v and v / 1e3
        out.add(r.method.title, Percent(r.mean), Percent(r.error), points, abs(points) <= POINTS, r.step_ms, kb(r.sent), kb(r.predicted), ratio, r.density)
    out.note = f"within: {POINTS} points of fp32's mean. sent kB: payload per rank and step, of the training alone; predicted of the share that was asked for or, where a threshold decides, that was sent."
    return out


def collect(runner, o, found):
    """The strategies of which all seeds are there, fp32 first."""
    out = []
    for m in o.methods:
        runs = [runner.kept(run_name(m, o.epochs, seed)) for seed in o.seeds]
        if all(runs):
            out.append(Result(m, runs, found, o.workers))
    return out if out and out[0].method.strategy == "fp32" else []


def main():
    o = options()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(build(o.ringo, folder) if o.data else "", o.out, o.workers, o.deadline)
        netns.raise_on_signals()
        try:
            for seed in o.seeds if o.data else ():
                for m in o.methods:
                    one_run(o, runner, m, seed)
        except KeyboardInterrupt:
            raise SystemExit(130)
        finally:
            write(o, collect(runner, o, groups(o, runner)))


def write(o, results):
    if not results:
        return
    t = table(results, o.epochs, o.workers)
    for name, text in (("strategies.md", t.markdown()), ("strategies.txt", t.text())):
        with open(os.path.join(o.out, name), "w") as f:
            f.write(text)
    print(t.text())


if __name__ == "__main__":
    main()
