#!/usr/bin/env python3
"""CTR-DNN on Criteo's display advertising in PyTorch, as ringo trains it with one worker.

usage: torch_ctr.py --data DIR [--epochs 2] [--batch 64] [--lr 0.01] [--seed N] …

DIR holds tab-separated files: the one with `train` in its name and the one with `test`. A line is
the label, 13 numbers and 26 categories; empty is missing. A number v becomes log(1 + v), 0 where it
is missing or not positive; a category is a row of the embedding table: 1 to rows-1 by ringo's hash of
its column and value, row 0 where it is missing. Adagrad, on the table only for the rows that a step used.
"""
import glob, os, sys

import run

o = run.options("CTR-DNN in PyTorch", epochs=2, batch=64, lr=0.01, rows=1000001)

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from torch_models import CTRDNN


def row(slot, value):
    """The row of a category, as data/criteo.go has it: SplitMix64's finalizer."""
    mask = (1 << 64) - 1
    z = (value + (slot + 1) * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
    return 1 + ((z ^ z >> 31) * (o.rows - 1) >> 64)


def read(part):
    found = sorted(glob.glob(os.path.join(o.data, f"*{part}*")))
    if not found:
        run.fail(f"no file with {part} in its name in {o.data}")
    labels, numbers, ids = [], [], []
    with open(found[0], encoding="utf-8") as f:
        for line in f:
            field = line.rstrip("\n").split("\t")
            if len(field) != 40:
                run.fail(f"{found[0]}: a line has {len(field)} fields, want 40")
            labels.append(int(field[0]))
            numbers.append([max(0.0, float(v)) if v else 0.0 for v in field[1:14]])
            ids.append([row(slot, int(v, 16)) if v else 0 for slot, v in enumerate(field[14:])])
    return torch.tensor(ids), torch.tensor(numbers).log1p(), torch.tensor(labels)


def evaluate(model, ids, numbers, labels):
    model.eval()
    with torch.no_grad():
        y = torch.cat([model(ids[lo : lo + 512], numbers[lo : lo + 512]) for lo in range(0, len(labels), 512)])
        loss = F.cross_entropy(y, labels).item()
        scores = y.softmax(1)[:, 1]
    model.train()
    return {"eval_loss": loss, "eval_logloss": loss, "eval_auc": run.auc(scores.numpy(), labels.numpy())}


def main():
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    rng = np.random.default_rng(o.seed)
    ids, numbers, labels = read("train")
    test = read("test")
    model = CTRDNN(rows=o.rows)
    torch.nn.init.uniform_(model.embedding.weight, -0.05, 0.05)  # as ringo's; dense layers have PyTorch's own on both sides
    optimizer = torch.optim.Adagrad(model.parameters(), o.lr)
    run.fit(o, optimizer, rng, len(labels), lambda idx: F.cross_entropy(model(ids[idx], numbers[idx]), labels[idx]), lambda: evaluate(model, *test))


if __name__ == "__main__":
    main()
