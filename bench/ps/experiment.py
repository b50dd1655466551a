#!/usr/bin/env python3
"""What servers that keep the parameters of `ctr-dnn` cost in accuracy and speed.

usage: bench/ps/experiment.py modes|tiers|kills --like FILE --out DIR …

modes   bsp, async, ssp and geo on the same rows: AUC, log-loss, samples per second
tiers   a table of eight times the servers' memory against one in memory: the same AUC, samples per
        second, the most bytes on disk; the whole job is in a memory cgroup (needs root)
kills   servers killed -9 during training, with a log, against a run that is left alone: AUC, over seeds

Rows are made of the statistics of --like (Criteo's format; `ringo data criteo` fetches one), those of tiers by Zipf's law. Runs are
kept in --out, and those that are whole are not made again.
"""
import argparse, math, os, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "dlgs"))
from processes import Cgroup, Folder, Killer
from ranks import Runner, build, netns
from tables import Table

MODES = {"bsp": [], "async": [], "ssp": ["--staleness", "4"], "geo": ["--geo-steps", "8"]}
POINTS = 0.003  # by how much another mode's AUC may be below that of bsp
MIB = 1 << 20


def options():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("experiment", choices=("modes", "tiers", "kills"))
    ap.add_argument("--like", required=True, help="rows whose statistics those that are trained on have")
    ap.add_argument("--out", required=True, help="where rows and runs are kept, and the tables are written")
    ap.add_argument("--rows", type=int, default=10_000_000, help="to train on")
    ap.add_argument("--eval-rows", type=int, default=1_000_000)
    ap.add_argument("--modes", default=",".join(MODES))
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--servers", type=int, default=1)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--seeds", default="1", help="of the runs of modes and kills")
    ap.add_argument("--memory", type=int, default=64, help="of tiers: MiB of rows that servers have in memory, all together")
    ap.add_argument("--disk", type=int, default=2048, help="of tiers: MiB of rows on disk at most")
    ap.add_argument("--zipf", type=float, default=0.99, help="of tiers: exponent of the categories' law; 0: as in --like")
    ap.add_argument("--table-rows", type=int, default=8_000_000, help="of tiers")
    ap.add_argument("--kills", type=int, default=50)
    ap.add_argument("--kill-every", type=float, default=3, help="seconds between kills, half as much more or less")
    ap.add_argument("--deadline", type=float, default=3600, help="seconds that a run may take")
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    o = ap.parse_args()
    o.modes, o.seeds = o.modes.split(","), [int(s) for s in o.seeds.split(",")]
    for m in o.modes:
        if m not in MODES:
            ap.error(f"--modes {m}: want some of {', '.join(MODES)}")
    if min(o.rows, o.eval_rows, o.workers, o.servers, o.memory, o.kills) < 1 or not o.kill_every > 0:
        ap.error("want --rows, --eval-rows, --workers, --servers, --memory and --kills of at least 1, --kill-every above 0")
    return o


def rows(o, ringo, count, seed, zipf=0, values=0):
    """The file with so many rows, made where it is not there."""
    name = f"rows-{count}-{seed}" + (f"-zipf-{zipf:g}-{values}" if zipf else "")
    folder = os.path.join(o.out, name)
    path = os.path.join(folder, "train.tsv")
    if not os.path.exists(path):
        like = ["clicks", "--layout", "criteo", "--zipf", str(zipf), "--values", str(values)] if zipf else ["criteo", "--like", o.like]
        subprocess.run([ringo, "data", *like, "--generate", str(count), "--seed", str(seed), "--out", folder], check=True, stdout=sys.stderr)
    return path


class Experiment:
    """Runs of one model on the same rows."""

    def __init__(self, o, ringo, zipf=0, values=0):
        self.o = o
        self.runner = Runner(ringo, o.out, o.workers, o.deadline)
        self.train = rows(o, ringo, o.rows, 1, zipf, values)
        self.eval = rows(o, ringo, o.eval_rows, 2, zipf, values)
        self.name = os.path.basename(os.path.dirname(self.train))

    def run(self, name, seed, *flags):
        o = self.o
        return self.runner.here(f"{self.name}-{name}-{seed}", "ctr-dnn", "--train-file", self.train, "--eval-file", self.eval, "--stream", "--batch", str(o.batch),
                                "--epochs", "1", "--seed", str(seed), "--servers", str(o.servers), *flags).summary


def mean(runs, key):
    return statistics.mean(r[key] for r in runs)


def error(runs, key):
    """The standard error of the mean."""
    values = [r[key] for r in runs]
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def modes(o, ringo):
    x = Experiment(o, ringo)
    found = {m: [x.run(m, seed, "--sync", m, *MODES[m]) for seed in o.seeds] for m in o.modes}
    out = Table(f"ctr-dnn, {o.rows:,} rows of one epoch, {o.workers} trainers, {o.servers} servers, {len(o.seeds)} seeds",
                ["mode", "AUC", "to bsp", "within", "log-loss", "samples/s"])
    first = found.get("bsp")
    for m, runs in found.items():
        apart = mean(runs, "eval_auc") - mean(first, "eval_auc") if first else None
        out.add(" ".join([m, *MODES[m]]), mean(runs, "eval_auc"), apart, None if apart is None else apart >= -POINTS, mean(runs, "eval_logloss"), mean(runs, "samples_per_s"))
    out.note = f"within: at most {POINTS} below that of bsp, over {o.eval_rows:,} rows."
    return out


def tiers(o, ringo):
    x = Experiment(o, ringo, o.zipf, o.table_rows // 26)
    common = ["--sync", "async", "--set", "data.table-rows="+str(o.table_rows)]
    group = Cgroup(f"ringo-{os.getpid()}", (o.memory + 256) * MIB)
    free = x.run("memory", 1, *common)
    try:
        with tempfile.TemporaryDirectory(dir=o.out) as folder:
            disk = x.runner.watch = Folder(folder, "below")
            x.runner.prefix = group.enter()
            bounded = x.run(f"tiers-{o.memory}", 1, *common, "--ps-dir", folder, "--ps-memory", f"{o.memory // o.servers}MiB", "--set", f"ps.disk={o.disk // o.servers}MiB")
            peak = group.peak()
    finally:
        group.remove()
    out = Table(f"ctr-dnn, table of {o.table_rows:,} rows, {o.memory} MiB of them in memory, Zipf {o.zipf:g}, in a cgroup of {o.memory + 256} MiB",
                ["rows", "AUC", "log-loss", "samples/s", "of all in memory", "peak MiB", "most MiB on disk"])
    out.add("in memory", free["eval_auc"], free["eval_logloss"], free["samples_per_s"], 1.0, None, None)
    out.add("over two tiers", bounded["eval_auc"], bounded["eval_logloss"], bounded["samples_per_s"], bounded["samples_per_s"] / free["samples_per_s"], peak and peak / MIB, disk.most / MIB)
    return out


def kills(o, ringo):
    x = Experiment(o, ringo)
    alone = [x.run("undisturbed", seed, "--sync", "async") for seed in o.seeds]
    killed, count = [], 0
    for seed in o.seeds:
        with tempfile.TemporaryDirectory(dir=o.out) as folder:
            killer = x.runner.watch = Killer(o.kills, o.kill_every, seed)
            killed.append(x.run(f"killed-{o.kills}", seed, "--sync", "async", "--ps-durability", "wal", "--ps-dir", folder, "--set", "ps.checkpoint-every=20s", "--set", "job.max-restarts="+str(o.kills)))
            count += killer.killed
    x.runner.watch = None
    out = Table(f"ctr-dnn, async, {o.rows:,} rows, {len(o.seeds)} seeds, {count} kills of a server", ["servers", "AUC", "standard error", "log-loss", "samples/s"])
    for name, runs in (("left alone", alone), ("killed", killed)):
        out.add(name, mean(runs, "eval_auc"), error(runs, "eval_auc"), mean(runs, "eval_logloss"), mean(runs, "samples_per_s"))
    return out


def main():
    o = options()
    os.makedirs(o.out, exist_ok=True)
    o.out = os.path.abspath(o.out)
    netns.raise_on_signals()
    with tempfile.TemporaryDirectory() as folder:
        try:
            table = globals()[o.experiment](o, build(o.ringo, folder))
        except KeyboardInterrupt:
            raise SystemExit(130)
    for suffix, text in (("md", table.markdown()), ("txt", table.text())):
        with open(os.path.join(o.out, f"{o.experiment}.{suffix}"), "w") as f:
            f.write(text)
    print(table.text())


if __name__ == "__main__":
    main()
