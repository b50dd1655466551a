#!/usr/bin/env python3
"""What heter-trainers do to the AUC: the same job with and without one, in pairs of one seed, by how ranks keep in step.

usage: bench/heter/auc.py [--modes ssp,async,geo] [--seeds 8] [--model ctr-dnn] [--ringo FILE] [--json FILE] [-- FLAGS of ringo train]

A pair is one seed, which decides data, first values and order; which of the two runs first alternates. Of each mode it prints the mean AUC without
and with a heter-trainer and its spread from seed to seed, and the mean difference of the pairs with its standard error. With --json runs
are kept, and those that are there already are not repeated: one file is of one set of flags.
"""
import argparse, json, os, statistics, subprocess, sys

FLAGS = ("--data synthetic --train-limit 16384 --eval-limit 16384 --batch 256 --epochs 1 --np 2 --servers 1 --threads 1 "
         "--progress none --json -").split()


def auc(o, mode, seed, heter):
    """The AUC of one run."""
    line = [o.ringo, "train", o.model, *FLAGS, *o.flags, "--sync", *mode.split(), "--seed", str(seed), "--heter", str(heter)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=280)
    for text in done.stdout.splitlines():
        if text.startswith("{") and (e := json.loads(text))["event"] == "summary":
            return e["eval_auc"]
    raise SystemExit(f"{' '.join(line)}: status {done.returncode}: {done.stderr[-500:]}")


def standard_error(x):
    return statistics.stdev(x) / len(x) ** 0.5 if len(x) > 1 else float("nan")


def row(mode, pairs):
    """What is said of a mode: pairs are AUC without and with a heter-trainer."""
    whole, split = zip(*pairs)
    diffs = [b - a for a, b in pairs]
    spread = [statistics.stdev(x) if len(x) > 1 else float("nan") for x in (whole, split)]
    return (f"| {mode} | {len(pairs)} | {statistics.mean(whole):.4f} ({spread[0]:.4f}) | {statistics.mean(split):.4f} ({spread[1]:.4f}) "
            f"| {statistics.mean(diffs):+.4f} ± {standard_error(diffs):.4f} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--modes", default="ssp --staleness 2,async,geo")
    p.add_argument("--seeds", type=int, default=8)
    p.add_argument("--model", default="ctr-dnn")
    p.add_argument("--ringo", default="./ringo")
    p.add_argument("--json", default=os.devnull)
    p.add_argument("flags", nargs="*")
    o = p.parse_args()
    had = {}
    if os.path.isfile(o.json):
        with open(o.json) as f:
            had = {(r["mode"], r["seed"], r["heter"]): r["auc"] for r in map(json.loads, f)}
    modes = o.modes.split(",")
    with open(o.json, "a") as keep:
        for seed in range(1, o.seeds + 1):
            for mode in modes:
                for heter in (0, 1) if seed % 2 else (1, 0):
                    if (at := (mode, seed, heter)) in had:
                        continue
                    had[at] = auc(o, *at)
                    print(json.dumps({"mode": mode, "seed": seed, "heter": heter, "auc": had[at]}), file=keep, flush=True)
    print("| mode | pairs | one piece (spread) | heter-trainer (spread) | difference |\n|---|---:|---:|---:|---:|")
    for mode in modes:
        print(row(mode, [(had[mode, s, 0], had[mode, s, 1]) for s in range(1, o.seeds + 1)]))


if __name__ == "__main__":
    main()
