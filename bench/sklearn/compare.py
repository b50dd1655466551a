#!/usr/bin/env python3
"""Compares the metrics of `ringo eval --json` with scikit-learn's on the rows of `ringo predict`.

Usage: bench/sklearn/compare.py [--ringo RINGO] [--keep DIR]

Three data sets: six classes, a number, clicks; each trained once, and evaluated with 1, 2 and 3 ranks. The largest
difference of each data set is printed; one above 1e-6, or above 1e-6 of a value above 1, is an error. Debian: apt-get install python3-sklearn.
"""
import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn import metrics
from sklearn.calibration import calibration_curve

LIMIT = 1e-6


def run(ringo, *args):
    done = subprocess.run([ringo, *args], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ringo {' '.join(args)}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def evaluation(ringo, saved, ranks, *data):
    lines = run(ringo, "eval", saved, *data, "--np", str(ranks), "--progress", "none", "--json", "-").splitlines()
    return next(r for r in map(json.loads, lines) if r["event"] == "evaluation")


def write(path, header, rows):
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(header)
        w.writerows(rows)


def class_rows(rnd, n):
    for _ in range(n):
        x, y, colour = rnd.gauss(0, 1), rnd.gauss(0, 1), rnd.choice(["red", "green", "blue"])
        score = x + y * y / 2 + (colour == "red") + rnd.gauss(0, 0.7)
        kind = next((k for k, most in [("a", -0.7), ("b", 0.2), ("c", 0.9), ("d", 2), ("e", 4)] if score < most), "rare")
        yield f"{x:.4f}", f"{y:.4f}", colour, kind


def fare_rows(rnd, n):
    for _ in range(n):
        km, hour, zone = rnd.expovariate(1 / 5), rnd.randrange(24), rnd.choice("abcd")
        fare = 3 + 1.8 * km + (4 if hour < 6 else 0) + "abcd".index(zone) + rnd.gauss(0, 1.5)
        yield f"{km:.3f}", hour, zone, f"{fare:.2f}"


def compare(name, pairs):
    worst = max(pairs, key=lambda p: abs(p[1] - p[2]) / max(1, abs(p[2])))
    print(f"  {name:22} {len(pairs):3} metrics, largest difference {abs(worst[1] - worst[2]):.1e} ({worst[0]}: {worst[1]:.9g}, scikit-learn {worst[2]:.9g})")
    if not abs(worst[1] - worst[2]) <= LIMIT * max(1, abs(worst[2])):
        sys.exit(f"{name}: {worst[0]}: ringo {worst[1]}, scikit-learn {worst[2]}")


def classes(got, truth, found):
    names = [c["class"] for c in got["per_class"]]
    predicted = [f["prediction"] for f in found]
    scores = np.array([[f["top"][k] for k in names] for f in found])
    p, r, f1, support = metrics.precision_recall_fscore_support(truth, predicted, labels=names, zero_division=0)
    pairs = [("accuracy", got["accuracy"], metrics.accuracy_score(truth, predicted))]
    order = np.argsort(names)
    pairs.append(("top-5", got["top5_accuracy"], metrics.top_k_accuracy_score(truth, scores[:, order], k=5, labels=sorted(names))))
    most = max(support)
    pairs.append(("majority", got["majority_accuracy"], most / len(truth)))
    areas = []
    for i, c in enumerate(got["per_class"]):
        pairs += [(f"precision of {c['class']}", c["precision"] or 0, p[i]), (f"recall of {c['class']}", c["recall"], r[i])]
        pairs += [(f"F1 of {c['class']}", c["f1"], f1[i]), (f"support of {c['class']}", c["support"], support[i])]
        areas.append(metrics.roc_auc_score([t == c["class"] for t in truth], scores[:, i]))
        pairs.append((f"AUC of {c['class']}", c["auc"], areas[-1]))
    pairs.append(("macro AUC", got["macro_auc"], np.mean(areas)))
    for average in ("macro", "weighted"):
        values = metrics.precision_recall_fscore_support(truth, predicted, average=average, zero_division=0)
        for key, v in zip(("precision", "recall", "f1"), values):
            pairs.append((f"{average} {key}", got[average][key], v))
    matrix = metrics.confusion_matrix(truth, predicted, labels=names)
    mine = np.zeros_like(matrix)
    for label, prediction, n in got["confusion"]:
        mine[label, prediction] = n
    pairs += [("confusion", a, b) for a, b in zip(mine.flat, matrix.flat)]
    return pairs


def numbers(got, truth, found):
    truth, predicted = np.array(truth, float), np.array([f["prediction"] for f in found])
    errors = np.abs(truth - predicted)
    pairs = [
        ("RMSE", got["rmse"], metrics.mean_squared_error(truth, predicted, squared=False)),
        ("MAE", got["mae"], metrics.mean_absolute_error(truth, predicted)),
        ("R2", got["r2"], metrics.r2_score(truth, predicted)),
        ("RMSE of the mean", got["baseline_rmse"], truth.std()),
    ]
    for key, v in got["abs_error_quantiles"].items():
        pairs.append((f"quantile {key}", v, np.quantile(errors, int(key[1:]) / 100)))
    return pairs


def clicks(got, truth, found):
    truth, p = np.array(truth, int), np.array([f["probability"] for f in found])
    pairs = [
        ("AUC", got["auc"], metrics.roc_auc_score(truth, p)),
        ("log-loss", got["logloss"], metrics.log_loss(truth, p)),
        ("calibration", got["calibration"], p.mean() / truth.mean()),
    ]
    observed, predicted = calibration_curve(truth, p, n_bins=10, strategy="quantile")
    if len(observed) != len(got["reliability"]):
        sys.exit(f"{len(got['reliability'])} deciles, scikit-learn has {len(observed)}")
    for i, d in enumerate(got["reliability"]):
        pairs += [(f"decile {i}, predicted", d["predicted"], predicted[i]), (f"decile {i}, observed", d["observed"], observed[i])]
    return pairs


def check(ringo, folder):
    rnd = random.Random(7)
    for name in ("train", "test"):
        write(folder / f"classes-{name}.csv", ["x", "y", "colour", "kind"], class_rows(rnd, 5000))
        write(folder / f"fare-{name}.csv", ["km", "hour", "zone", "fare"], fare_rows(rnd, 5000))
    run(ringo, "data", "clicks", "--layout", "criteo", "--generate", "20000", "--out", str(folder / "clicks"), "--progress", "none")
    train, test = folder / "clicks" / "train.tsv", folder / "clicks" / "test.tsv"
    for model, data, rows, more, judge, key in (
        ("mlp", ["--data", folder / "classes-train.csv", "--set", "data.target=kind"], folder / "classes-test.csv", ["--top", "6"], classes, "classes"),
        ("mlp", ["--data", folder / "fare-train.csv", "--set", "data.target=fare"], folder / "fare-test.csv", [], numbers, "numbers"),
        ("ctr-dnn", ["--train-file", train, "--eval-file", test], test, [], clicks, "clicks"),
    ):
        saved = str(folder / f"run-{key}")
        run(ringo, "train", model, *map(str, data), "--epochs", "2", "--checkpoint", saved, "--progress", "none")
        found = [json.loads(line) for line in run(ringo, "predict", saved, "--data", str(rows), *more, "--progress", "none").splitlines()]
        with open(rows, newline="") as f:
            table = list(csv.reader(f, delimiter="\t" if rows.suffix == ".tsv" else ","))
        truth = [r[0] for r in table] if key == "clicks" else [r[-1] for r in table[1:]]
        print(f"{key}: {len(truth)} rows")
        first = None
        for ranks in (1, 2, 3):
            named = [] if key == "clicks" else ["--data", str(rows)]  # clicks: the run's own file
            got = evaluation(ringo, saved, ranks, *named)[key]
            if first is not None and got != first:
                sys.exit(f"{key}: {ranks} ranks have other metrics than 1")
            first = got
            compare(f"{ranks} rank{'s' if ranks > 1 else ''}", judge(got, truth, found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ringo", default="ringo")
    parser.add_argument("--keep", help="folder for the files; default: a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        check(args.ringo, folder)


if __name__ == "__main__":
    main()
