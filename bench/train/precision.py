#!/usr/bin/env python3
"""Trains models in fp32 and in bf16 with the same seeds, and compares the last accuracy, loss or AUC of each pair.

usage: bench/train/precision.py --data DIR --pixels DIR [--ringo FILE] [--seeds 1,2,3] [--only MODEL,…] [--out FILE]

DIR of --data has the folders mnist, criteo and text; that of --pixels is of cifar_pixels.py. Two runs of a thread each run at a time.
--out keeps the runs: those in the file are not made again.
"""
import argparse, concurrent.futures, json, math, os, statistics, subprocess, sys

PRECISIONS = ("fp32", "bf16")


def tasks(o):
    """By model: the flags, the figure, and the limit of the mean difference, of which a share is of the fp32 figure."""
    text = ["--train-file", f"{o.data}/text/wikitext2-valid.txt", "--eval-file", f"{o.data}/text/wikitext2-test.txt"]
    clicks = ["--train-file", f"{o.data}/criteo/criteo_8000_train.tsv", "--eval-file", f"{o.data}/criteo/criteo_8000_dev.tsv"]
    return {
        "mnist": (["--data", f"{o.data}/mnist", "--epochs", "2"], "eval_accuracy", 0.003, False),
        "cifar-resnet20": (["--data", o.pixels, "--train-limit", "10000", "--epochs", "12", "--batch", "32", "--lr", "0.05", "--momentum", "0.9",
            "--weight-decay", "1e-4", "--lr-schedule", "8:0.005,11:0.0005"], "eval_accuracy", 0.003, False),
        "ctr-dnn": ([*clicks, "--epochs", "2", "--batch", "64", "--optimizer", "adagrad", "--lr", "0.01"], "eval_auc", 0.001, False),
        "gpt-mini": ([*text, "--epochs", "1"], "eval_loss", 0.003, True),
        "lstm": ([*text, "--epochs", "1", "--batch", "20", "--optimizer", "sgd", "--lr", "20", "--clip-norm", "0.25", "--dropout", "0.5"], "eval_loss", 0.003, True),
    }


def final(o, model, flags, figure, precision, seed):
    """The figure after a run's last epoch."""
    line = [o.ringo, "train", model, *flags, "--precision", precision, "--seed", str(seed), "--np", "1", "--threads", "1", "--progress", "none", "--json", "-"]
    p = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False)
    epochs = [e for e in map(json.loads, (s for s in p.stdout.splitlines() if s.startswith("{"))) if e.get("event") == "epoch"]
    if p.returncode != 0 or not epochs:
        raise SystemExit(f"{' '.join(line)}: exit {p.returncode}")
    return epochs[-1][figure]


def row(model, figure, limit, relative, fp32, bf16):
    """Both means, and the mean and standard error of the differences of equal seeds."""
    apart = [b - a for a, b in zip(fp32, bf16)]
    bound = limit * statistics.mean(fp32) if relative else limit
    mean, error = statistics.mean(apart), statistics.stdev(apart) / math.sqrt(len(apart))
    return {"model": model, "figure": figure, "fp32": statistics.mean(fp32), "bf16": statistics.mean(bf16), "difference": mean, "error": error,
        "limit": bound, "within": abs(mean) <= bound}


def table(rows):
    lines = ["| model | figure | fp32 | bf16 | difference | limit |", "|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['model']} | {r['figure'].removeprefix('eval_')} | {r['fp32']:.4f} | {r['bf16']:.4f} | "
            f"{r['difference']:+.4f} ± {r['error']:.4f} | {r['limit']:.4f}{'' if r['within'] else ', exceeded'} |")
    return "\n".join(lines)


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--data", required=True)
    ap.add_argument("--pixels", required=True)
    ap.add_argument("--ringo", default="ringo")
    ap.add_argument("--seeds", default="1,2,3")
    ap.add_argument("--only", default="")
    ap.add_argument("--out", default="")
    o = ap.parse_args()
    o.seeds = [int(s) for s in o.seeds.split(",")]
    if len(o.seeds) < 2:
        ap.error("one seed has no standard error: give two or more")
    return o


def main():
    o = options()
    kept = {}
    if o.out and os.path.exists(o.out):
        with open(o.out) as f:
            kept = json.load(f)
    chosen = {m: t for m, t in tasks(o).items() if not o.only or m in o.only.split(",")}

    def run(job):
        model, seed, precision = job
        name = f"{model} {precision} {seed}"
        if name not in kept:
            kept[name] = final(o, model, *chosen[model][:2], precision, seed)
            print(f"{name}: {kept[name]:.4f}", file=sys.stderr, flush=True)
            if o.out:
                with open(o.out + ".new", "w") as f:
                    json.dump(dict(kept), f, indent=1)
                os.replace(o.out + ".new", o.out)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(run, [(m, s, p) for m in chosen for s in o.seeds for p in PRECISIONS]))
    rows = [row(m, t[1], t[2], t[3], *([kept[f"{m} {p} {s}"] for s in o.seeds] for p in PRECISIONS)) for m, t in chosen.items()]
    print(table(rows))


if __name__ == "__main__":
    main()
