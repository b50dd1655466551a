#!/usr/bin/env python3
"""DLGS beside its rivals on four workers with slow links: time, break-down, accuracy. Linux and root.

usage: bench/dlgs/experiment.py --out DIR [--pixels DIR] [--images DIR] [--steps N [--plans] [--auto]] [--train] [--rules] …

The workers are network namespaces whose links are shaped so that the uncompressed exchange takes r
times the computation. Runs are kept in --out, and those that are whole are not made again; the
report of all that are there is written at the end: report.md, report.txt and charts as SVG. Without
a mode only that is done, and needs no root.
"""
import argparse, glob, json, os, sys, tempfile

import links, report
from methods import DENSE_PLANS, RATIOS, SPARSE_PLANS, TASKS, Method, auto_candidates, dense, dlgs, rules, sparse, trained_methods
from ranks import Runner, build, netns

CALIBRATION_STEPS = 12  # of an epoch, unless --steps says


def ratios(text):
    """Such as 3,2; another text is a fault that argparse reports."""
    return [float(x) for x in text.split(",")]


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--out", required=True, help="where runs are kept, and the report is written")
    ap.add_argument("--pixels", default="", help="CIFAR-10 as ringo train reads it, for ResNet-20 and VGG16")
    ap.add_argument("--images", default="", help="a tree of images, for ResNet-50")
    ap.add_argument("--tasks", default="resnet20,vgg16", help="of " + ", ".join(TASKS))
    ap.add_argument("--r", default="3,2", type=ratios, help="how many times the computation the uncompressed exchange takes")
    ap.add_argument("--steps", type=int, default=0, metavar="N", help="time all methods in epochs of N steps")
    ap.add_argument("--plans", action="store_true", help="with --steps: DLGS with every plan too")
    ap.add_argument("--rules", action="store_true", help="with --steps: DLGS by the paper's rule and by the default, each with the paper's planner and the exact plan; with --train: DLGS as printed too")
    ap.add_argument("--auto", action="store_true", help="with --steps: what auto chooses from, and auto, over shared memory, 1 Gbit/s and 100 Mbit/s instead")
    ap.add_argument("--train", action="store_true", help="train the whole schedule with every method, over links of the first r")
    ap.add_argument("--unshaped", action="store_true", help="with --train: over links that are not shaped, for accuracy alone")
    ap.add_argument("--epochs", type=int, default=3, help="of timing; the first warms up")
    ap.add_argument("--rounds", type=int, default=1, help="of timing: all methods in turns, so often")
    ap.add_argument("--only", default="", help="time or train these methods alone, by the names of their files, such as fp32-fixed,dlgs-0.01-exact")
    ap.add_argument("--spars", type=float, default=0.01, help="the ratio of --auto")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--congestion-control", default="reno", help="of all connections")
    ap.add_argument("--deadline", type=float, default=12 * 3600, help="seconds that a run may take")
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    o = ap.parse_args()
    o.tasks = o.tasks.split(",")
    check(ap, o)
    return o


def check(ap, o):
    """Reports what cannot be."""
    for t in o.tasks:
        if t not in TASKS:
            ap.error(f"--tasks {t}: want some of {', '.join(TASKS)}")
        elif (o.steps or o.train) and not data_of(o, TASKS[t]):
            ap.error(f"task {t} needs --{TASKS[t].data} DIR")
    if min(o.r) <= 0 or o.workers < 2 or o.epochs < 2 or o.rounds < 1 or o.steps < 0:
        ap.error("want --r above 0, --workers and --epochs of at least 2, --rounds of at least 1, --steps of at least 0")
    known = [m.name for m in (timed_methods(o) if o.steps else trained_methods(o.rules))]
    for name in o.only.split(",") if o.only else ():
        if name not in known or not (o.steps or o.train) or o.auto:
            ap.error(f"--only {name}: want --steps N or --train, and some of {', '.join(known)}")
    if (o.plans or o.auto) and not o.steps:
        ap.error("--plans and --auto belong to --steps N")
    if o.rules and (o.auto or not (o.steps or o.train)):
        ap.error("--rules belongs to --steps N without --auto, and to --train")
    if o.unshaped and not o.train:
        ap.error("--unshaped belongs to --train")


def data_of(o, task):
    return o.pixels if task.data == "pixels" else o.images


class Experiment:
    """Shaped workers, and what is run on them."""

    def __init__(self, o, runner, net):
        self.o, self.runner, self.net = o, runner, net

    def run(self, name, task, method, settings, **conditions):
        data = ["--data", os.path.abspath(data_of(self.o, task)), "--seed", str(self.o.seed)]
        conditions.setdefault("congestion_control", self.o.congestion_control)
        return self.runner.on_hosts(self.net, name, task.model, *method.flags(), *settings, *data, **conditions)

    def time_one(self, name, task, method, **conditions):
        settings = task.timing(self.o.workers, self.o.steps, self.o.epochs)
        return self.run(name, task, method, settings, **conditions)

    def link(self, task, r):
        """The links for a task and r, measured or kept; they are shaped when it returns."""
        found = report.read_link(self.o.out, task.name, r)
        if not found or (found["workers"], found["congestion_control"]) != (self.o.workers, self.o.congestion_control):
            found = self.calibrate(task, r)
            with open(report.link_path(self.o.out, task.name, r), "w") as f:
                json.dump(found, f, indent=1)
        print(f"{task.name}, r = {r:g}: computation {found['compute_ms']:.1f} ms, links of {links.text(found['rate'])}, "
              f"goodput {found['goodput'] / 1e6:.2f} MB/s, uncompressed exchange at least {found['exchange_ms']:.1f} ms", file=sys.stderr, flush=True)
        self.shape(found["rate"])
        return found

    def calibrate(self, task, r):
        """Measures the computation without limits on links, then the rate at which the goodput is what r asks for."""
        self.net.shape(None)
        n = self.o.steps or CALIBRATION_STEPS
        free = self.run(report.free_name(task.name), task, dense("one"), task.timing(self.o.workers, n, self.o.epochs), rate=None)
        f, values, w = report.steady(free), free.summary["params"], self.o.workers
        wanted = links.goodput_for(values, w, f["compute_ms"] / 1e3, r)
        rate = links.rate_for(wanted)
        for _ in range(2):
            self.shape(rate)
            goodput = self.net.goodput(links.stream_bytes(wanted))
            rate = links.corrected(rate, goodput, wanted)
        self.shape(rate)
        goodput = self.net.goodput(links.stream_bytes(wanted))
        return {"task": task.name, "r": r, "workers": w, "values": values, "compute_ms": f["compute_ms"], "update_ms": f["update_ms"], "rate": rate,
                "goodput": goodput, "exchange_ms": 1e3 * links.exchange_bytes(values, w) / goodput, "congestion_control": self.o.congestion_control}

    def shape(self, rate):
        self.net.shape(rate, burst=links.burst(rate))

    def time(self, task, r, methods):
        """All methods in turns, round by round."""
        link = self.link(task, r)
        for i in range(1, self.o.rounds + 1):
            for m in methods:
                self.time_one(report.timing_name(task.name, r, m, i), task, m, rate=link["rate"])

    def train(self, task, r):
        rate = None
        if self.o.unshaped:
            self.net.shape(None)
        else:
            rate = self.link(task, r)["rate"]
        for m in chosen(self.o, trained_methods(self.o.rules)):
            self.run(report.training_name(task.name, m), task, m, task.training(), rate=rate)

    def auto(self, task):
        spars = self.o.spars
        for link in report.AUTO_LINKS:
            if link != "shm":
                self.net.shape(link, burst=(256 if link == "1gbit" else 25) << 10)
            for i in range(1, self.o.rounds + 1):
                for m in [*auto_candidates(spars), Method("auto", "auto", spars)]:
                    self.choice(report.auto_name(task.name, link, m, i), task, m, link)

    def choice(self, name, task, m, link):
        if link != "shm":
            self.time_one(name, task, m, rate=link)
            return
        data = ["--data", os.path.abspath(data_of(self.o, task)), "--seed", str(self.o.seed)]
        settings = task.timing(self.o.workers, self.o.steps, self.o.epochs)
        self.runner.here(name, task.model, *m.flags(), *settings, "--transport", "shm", "--threads", "1", *data)


def timed_methods(o):
    """The uncompressed exchange with all plans, of which the best counts, and the others; DLGS with every plan and by both
    rules if asked."""
    out = [*map(dense, DENSE_PLANS), *sparse()]
    out += [dlgs(ratio, p) for ratio in RATIOS for p in SPARSE_PLANS if o.plans]
    out += [m for ratio in RATIOS for m in rules(ratio) if o.rules]
    return list({m.name: m for m in out}.values())  # each once


def chosen(o, methods):
    """Those that --only names."""
    return [m for m in methods if not o.only or m.name in o.only.split(",")]


def measure(o, runner):
    netns.need_root()
    netns.raise_on_signals()
    with netns.Net("dlgs", o.workers, o.congestion_control) as net:
        e = Experiment(o, runner, net)
        for task in (TASKS[t] for t in o.tasks):
            if o.auto:
                e.auto(task)
            elif o.steps:
                for r in o.r:
                    e.time(task, r, chosen(o, timed_methods(o)))
            if o.train and not task.time_only:
                e.train(task, o.r[0])


def main():
    o = options()
    with tempfile.TemporaryDirectory() as folder:
        working = o.steps or o.train
        if not working and not glob.glob(os.path.join(glob.escape(o.out), "*.jsonl")):
            raise SystemExit(f"no runs are kept in {o.out}: make some with --steps N or --train")
        runner = Runner(build(o.ringo, folder) if working else "", o.out, o.workers, o.deadline)
        try:
            if working:
                measure(o, runner)
        except KeyboardInterrupt:
            raise SystemExit(130)
        finally:  # what there is after a Ctrl-C too
            print(report.make(runner, o.workers, o.spars).write())


if __name__ == "__main__":
    main()
