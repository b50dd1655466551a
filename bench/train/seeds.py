#!/usr/bin/env python3
"""Trains the same model on the same data with ringo and with PyTorch and compares the means over seeds.

usage: bench/train/seeds.py cifar|lstm|ctr|wide-deep|deepfm|dcn-v2|dlrm|din --data DIR [--out DIR] [--seeds 1,2,3] [--side both] …

Each run's JSON lines are kept in --out, and runs that are whole there are not made again: a
comparison may be interrupted, and the sides made at different times. Two means differ when they
are more than two standard errors of their difference apart; with three seeds that happens by
chance to about one figure in eight.
"""
import argparse, json, math, os, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, ".."))
from compare import find_python


class Task:
    """One comparison: ringo's model and workers, the peer's program, settings of both, figures to compare."""

    def __init__(self, model, np, program, settings, figures, ringo_only=(), peer_only=()):
        self.model, self.np, self.program = model, np, program
        self.settings, self.figures, self.ringo_only, self.peer_only = settings, figures, ringo_only, peer_only


def clicks(model, lr, schema="criteo"):
    """A model of keys, by tables of so many rows that a dense Adagrad of PyTorch takes seconds."""
    return Task(model, 1, "torch_clicks.py", {"epochs": 2, "batch": 128, "lr": lr}, ("train_loss", "eval_logloss", "eval_auc"),
                ("--optimizer", "adagrad", "--layout", schema, "--set", "data.table-rows=10000"), ("--model", model))


TASKS = {
    "cifar": Task("cifar-resnet20", 2, "torch_cifar.py",
                  {"epochs": 10, "batch": 32, "lr": 0.05, "momentum": 0.9, "weight-decay": 1e-4},
                  ("train_loss", "eval_loss", "eval_accuracy")),
    "lstm": Task("lstm", 1, "torch_lstm.py",
                 {"epochs": 3, "batch": 20, "lr": 20, "momentum": 0, "weight-decay": 0, "clip-norm": 0.25, "dropout": 0.5},
                 ("train_loss", "eval_loss", "eval_perplexity"), ("--optimizer", "sgd")),
    "ctr": Task("ctr-dnn", 1, "torch_ctr.py", {"epochs": 2, "batch": 64, "lr": 0.01},
                ("train_loss", "eval_logloss", "eval_auc"), ("--optimizer", "adagrad", "--weight-decay", "0")),
    "wide-deep": clicks("wide-deep", 0.003), "deepfm": clicks("deepfm", 0.003), "dcn-v2": clicks("dcn-v2", 0.003), "dlrm": clicks("dlrm", 0.002),
    "din": clicks("din", 0.01, "movielens"),
}


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("task", choices=TASKS)
    ap.add_argument("--data", required=True, help="the folder that both read; for cifar, cifar_pixels.py's")
    ap.add_argument("--out", default="", help="where runs are kept (default: nowhere)")
    ap.add_argument("--seeds", default="1,2,3")
    ap.add_argument("--side", choices=("both", "ringo", "pytorch"), default="both")
    ap.add_argument("--epochs", type=int, default=0)
    ap.add_argument("--threads", type=int, default=1, help="per ringo worker, and of PyTorch")
    ap.add_argument("--lr-steps", default="", help="EPOCHS:RATE,… for both")
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    ap.add_argument("--python", default="")
    ap.add_argument("--json", default="", help="write means and verdicts to this file")
    o = ap.parse_args()
    o.seeds = [int(s) for s in o.seeds.split(",")]
    return o


def commands(o, task, build_dir):
    """The commands of both sides, by name, the seed left out."""
    settings = dict(task.settings)
    if o.epochs:
        settings["epochs"] = o.epochs
    if o.lr_steps:
        settings["lr-schedule"] = o.lr_steps
    flags = [x for k, v in settings.items() for x in ("--" + k, str(v))]
    out = {}
    if o.side != "pytorch":
        binary = o.ringo or os.path.join(build_dir, "ringo")
        if not o.ringo:
            subprocess.run(["go", "build", "-o", binary, "./cmd/ringo"], cwd=ROOT, check=True)
        out["ringo"] = [binary, "train", task.model, "--np", str(task.np), "--threads", str(o.threads), "--progress", "none",
                        "--json", "-", *flags, *task.ringo_only, *ringo_data(o)]
    if o.side != "ringo":
        workers = ["--workers", str(task.np)] if task.np > 1 else []
        out["pytorch"] = [find_python(o.python), os.path.join(HERE, task.program), "--threads", str(o.threads), *flags, *workers, *task.peer_only, "--data", o.data]
    return out, settings["epochs"]


def ringo_data(o):
    """The text has no file named train: it is short, and its validation part is trained on."""
    if o.task != "lstm":
        return ["--data", o.data]
    names = sorted(os.listdir(o.data))
    pick = lambda *parts: next(os.path.join(o.data, n) for p in parts for n in names if p in n)
    return ["--train-file", pick("train", "valid"), "--eval-file", pick("test")]


def epochs_of(lines):
    return [e for e in map(json.loads, lines) if e.get("event") == "epoch"]


def one_run(o, side, command, seed, epochs):
    """The epochs' figures of a run, made now or kept."""
    path = os.path.join(o.out, f"{o.task}-{side}-{seed}.jsonl") if o.out else ""
    made_by = json.dumps({"event": "command", "arguments": command[1:]}) + "\n"  # with other settings it is another run
    if path and os.path.exists(path):
        with open(path) as f:
            lines = f.read().splitlines(keepends=True)
        if lines[:1] == [made_by] and len(epochs_of(lines)) == epochs:
            return epochs_of(lines)
    print(f"{side}, seed {seed} …", file=sys.stderr, flush=True)
    p = subprocess.Popen([*command, "--seed", str(seed)], stdout=subprocess.PIPE, text=True)
    lines = []
    for line in p.stdout:
        if line.startswith("{"):
            lines.append(line)
            tell(line)
    if p.wait() != 0:
        raise SystemExit(f"{' '.join(command)}: exit {p.returncode}")
    if path:
        os.makedirs(o.out, exist_ok=True)
        with open(path, "w") as f:
            f.writelines([made_by, *lines])
    return epochs_of(lines)


def tell(line):
    e = json.loads(line)
    if e.get("event") == "epoch":
        shown = {k: round(v, 4) for k, v in e.items() if k.startswith(("train_", "eval_"))}
        print(f"  epoch {e['epoch']}: {shown}", file=sys.stderr, flush=True)


def compare(task, runs):
    """By figure and epoch: both means, both spreads, and how many standard errors lie between."""
    out = []
    for figure in task.figures:
        for i in range(len(runs["ringo"][0])):
            a, b = ([r[i][figure] for r in runs[side]] for side in ("pytorch", "ringo"))
            error = math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))
            apart = abs(statistics.mean(a) - statistics.mean(b))
            out.append({"figure": figure, "epoch": i + 1, "pytorch": statistics.mean(a), "pytorch_sd": statistics.stdev(a),
                        "ringo": statistics.mean(b), "ringo_sd": statistics.stdev(b), "errors_apart": apart / error if error else math.inf if apart else 0.0})
    return out


def print_table(rows, epochs):
    print(f"{'figure':<16} {'epoch':>5}   {'PyTorch':>9} {'sd':>8}   {'ringo':>9} {'sd':>8}   standard errors apart")
    for r in rows:
        mark = "" if r["errors_apart"] <= 2 else "  more than 2"
        print(f"{r['figure']:<16} {r['epoch']:>5}   {r['pytorch']:>9.4f} {r['pytorch_sd']:>8.4f}   {r['ringo']:>9.4f} {r['ringo_sd']:>8.4f}   {r['errors_apart']:>6.2f}{mark}")
    last = [r for r in rows if r["epoch"] == epochs]
    near = [r for r in rows if r["errors_apart"] <= 2]
    print(f"\n{len(near)} of {len(rows)} figures are within 2 standard errors; after the last epoch {sum(r in near for r in last)} of {len(last)}")


def main():
    o = options()
    task = TASKS[o.task]
    with tempfile.TemporaryDirectory() as build_dir:
        sides, epochs = commands(o, task, build_dir)
        runs = {side: [] for side in sides}
        for seed in o.seeds:
            for side, command in sides.items():
                runs[side].append(one_run(o, side, command, seed, epochs))
    if o.side != "both":
        return
    if len(o.seeds) < 2:
        raise SystemExit("one seed has no spread: nothing to compare")
    rows = compare(task, runs)
    print_table(rows, epochs)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"task": o.task, "seeds": o.seeds, "settings": task.settings, "figures": rows}, f, indent=1)


if __name__ == "__main__":
    main()
