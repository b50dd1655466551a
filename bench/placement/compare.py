#!/usr/bin/env python3
"""Compares the steps of mnist in a program under `ringo run`, in `ringo train`, and in ranks that are started by hand.

usage: bench/placement/compare.py [--np N] [--rounds N] [--out DIR]

Placement has one rule for all of them, so that they should take the same time. A figure is the median step of the second
epoch; a round runs all ways once, in an order that rotates; a ratio is that of medians within a round. Needs Linux and Go.
"""
import argparse, json, os, socket, statistics, subprocess, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TRAIN = ["train", "mnist", "--data", "synthetic", "--epochs", "2", "--train-limit", "10000", "--eval-limit", "1000", "--json", "-", "--progress", "none"]


def last_epoch(lines):
    """The median step in ms of the last epoch that JSON lines tell of."""
    epochs = [e for e in (json.loads(line) for line in lines if line.startswith("{")) if "step_median_ms" in e]
    if not epochs:
        raise SystemExit("no epoch was told of")
    return epochs[-1]["step_median_ms"]


def output(command, **more):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if p.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {p.returncode}\n{p.stderr}")
    return p.stdout.splitlines()


def by_hand(ringo, np):
    """Every rank is a process that nobody but this script starts."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        meet = "127.0.0.1:%d" % s.getsockname()[1]
    env = dict(os.environ, RINGO_TICKET=os.urandom(32).hex())
    start = lambda rank, out: subprocess.Popen([ringo, *TRAIN, "--np", str(np), "--rank", str(rank), "--rendezvous", meet], env=env, stdout=out, stderr=subprocess.DEVNULL, text=True)
    others = [start(rank, subprocess.DEVNULL) for rank in range(1, np)]
    first = start(0, subprocess.PIPE)
    out, _ = first.communicate()
    if any([p.wait() for p in others]) or first.returncode:
        raise SystemExit("ranks that were started by hand failed")
    return out.splitlines()


def ways(out, np):
    ringo, program = os.path.join(out, "ringo"), os.path.join(out, "placement")
    return {
        "ringo run": lambda: output([ringo, "run", "--np", str(np), "--", program]),
        "ringo train": lambda: output([ringo, *TRAIN, "--np", str(np)]),
        "by hand": lambda: by_hand(ringo, np),
    }


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--np", type=int, default=2)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--out", default="", help="the folder of the binaries (default: built from this tree)")
    o = ap.parse_args()
    with tempfile.TemporaryDirectory() as built:
        if not o.out:
            o.out = built
            for package in ("cmd/ringo", "bench/placement"):
                subprocess.run(["go", "build", "-o", built + "/", "./" + package], cwd=ROOT, check=True, env=dict(os.environ, CGO_ENABLED="0"))
        run = ways(o.out, o.np)
        names, found = list(run), {name: [] for name in run}
        for i in range(o.rounds):
            for name in names[i % len(names):] + names[:i % len(names)]:
                found[name].append(last_epoch(run[name]()))
            print(f"round {i + 1}: " + ", ".join(f"{name} {found[name][-1]:.2f} ms" for name in names), flush=True)
        for name in names:
            ratio = statistics.median(a / b for a, b in zip(found[name], found["ringo train"]))
            print(f"{name:<12} {statistics.median(found[name]):8.2f} ms   {ratio:.3f} of ringo train")


if __name__ == "__main__":
    main()
