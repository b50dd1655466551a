#!/usr/bin/env python3
"""Click models of keys in PyTorch, as ringo trains them with one worker.

usage: torch_clicks.py --model wide-deep|deepfm|dcn-v2|dlrm|din --data DIR [--epochs 2] [--batch 128] [--lr 0.01] [--seed N] …

DIR holds tab-separated files: the one with `train` in its name and the one with `test`. A line is the label, 13 numbers and 26 categories;
empty is missing. A number v becomes log(1 + v), 0 where it is missing or not positive; a category is a key, as ringo's layout criteo has
it, and the row of a table of --rows by ringo's hash of the key; one that is missing is an empty bag, of zeros. Adagrad, by gradients of the
rows that a batch names alone.

For din they are comma-separated, as `ringo data clicks --layout movielens --generate` writes them, without numbers: values are rows by a
hash of their column and text, a history's movies those of the movies.
"""
import csv, glob, hashlib, os

import run

o = run.options("click models in PyTorch", epochs=2, batch=128, lr=0.01, rows=10000, model="wide-deep")

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SLOTS, NUMBERS = 26, 13
GENRES, HISTORY = 20, 50  # the most of a sample
MLPERF = [40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976, 14,
          40000000, 40000000, 40000000, 590152, 12973, 108, 36]


def row_of(key, rows):
    """nn.RowOf: SplitMix64's finalizer."""
    mask = (1 << 64) - 1
    z = (key + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
    return (z ^ z >> 31) * rows >> 64


def rows_of(slot):
    return min(o.rows, MLPERF[slot]) if o.model == "dlrm" else o.rows


def file_of(part):
    found = sorted(glob.glob(os.path.join(o.data, f"*{part}*")))
    if not found:
        run.fail(f"no file with {part} in its name in {o.data}")
    return open(found[0], encoding="utf-8", newline="")


def criteo(part):
    """Rows [n, 26] of the tables, numbers [n, 13], labels [n]."""
    labels, numbers, ids = [], [], []
    with file_of(part) as f:
        for line in f:
            field = line.rstrip("\n").split("\t")
            if len(field) != 40:
                run.fail(f"{f.name}: a line has {len(field)} fields, want 40")
            labels.append(float(field[0]))
            numbers.append([max(0.0, float(v)) if v else 0.0 for v in field[1:14]])
            ids.append([row_of((slot + 1) << 56 | int(v, 16), rows_of(slot)) if v else -1 for slot, v in enumerate(field[14:])])
    return torch.tensor(ids), torch.tensor(numbers).log1p(), torch.tensor(labels)


def movielens(part):
    """Rows [n, USER + MOVIE + GENRES + HISTORY] of the table, -1 behind the last of a bag; no numbers, [n, 0]; labels [n]."""

    def keys(column, text, most):
        values = [v for v in text.split("|") if v][-most:]
        rows = [row_of(int.from_bytes(hashlib.blake2b(f"{column}={v}".encode(), digest_size=8).digest(), "little"), o.rows) for v in values]
        return rows + [-1] * (most - len(rows))

    labels, ids = [], []
    with file_of(part) as f:
        for r in csv.DictReader(f):
            labels.append(float(float(r["rating"]) >= 4))
            ids.append(keys("user", r["userId"], 1) + keys("movie", r["movieId"], 1) + keys("genre", r["genres"], GENRES) + keys("movie", r["history"], HISTORY))
    return torch.tensor(ids), torch.zeros(len(ids), 0), torch.tensor(labels)


class Table(nn.Embedding):
    """Rows as ringo begins them; -1 is an empty bag."""

    def __init__(self, rows, dim):
        super().__init__(rows, dim, sparse=True)
        nn.init.uniform_(self.weight, -0.05, 0.05)

    def forward(self, ids):
        return super().forward(ids.clamp(min=0)) * (ids >= 0).unsqueeze(-1)


class Tower(nn.Module):
    def __init__(self, width, *widths, last=None):
        super().__init__()
        self.layers, self.last = nn.ModuleList(), last
        for w in widths:
            self.layers.append(nn.Linear(width, w))
            width = w

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        x = self.layers[-1](x)
        return self.last(x) if self.last else x


class Cross(nn.Module):
    def __init__(self, width, layers, rank):
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(layers) if rank)
        self.up = nn.ModuleList(nn.Linear(rank or width, width) for _ in range(layers))

    def forward(self, x0):
        x = x0
        for i, up in enumerate(self.up):
            x = x0 * up(self.down[i](x) if len(self.down) else x) + x
        return x


class Net(nn.Module):
    """Embeddings of 10 and the numbers through dense layers, beside what each model adds."""

    def __init__(self):
        super().__init__()
        width = SLOTS * 10 + NUMBERS
        self.embedding, self.fc = Table(o.rows, 10), Tower(width, 400, 400, 400, 1)
        if o.model == "dcn-v2":
            self.cross = Cross(width, 3, 0)
        else:
            self.wide, self.numbers = Table(o.rows, 1), nn.Linear(NUMBERS, 1)

    def forward(self, ids, numbers):
        v = self.embedding(ids)
        x = torch.cat([v.flatten(1), numbers], 1)
        if o.model == "dcn-v2":
            return self.fc(self.cross(x))
        y = self.fc(x) + self.wide(ids).sum(1) + self.numbers(numbers)
        if o.model == "deepfm":
            y = y + ((v.sum(1) ** 2 - (v**2).sum(1)) / 2).sum(1, keepdim=True)
        return y


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        width = (SLOTS + 1) * 128
        self.tables = nn.ModuleList(Table(rows_of(s), 128) for s in range(SLOTS))
        self.bottom, self.cross = Tower(NUMBERS, 512, 256, 128, last=torch.relu), Cross(width, 3, 512)
        self.top = Tower(width, 1024, 1024, 512, 256, 1)

    def forward(self, ids, numbers):
        x = [self.bottom(numbers)] + [t(ids[:, s]) for s, t in enumerate(self.tables)]
        return self.top(self.cross(torch.cat(x, 1)))


class DIN(nn.Module):
    """Each movie of the history by a score of it beside the movie that is offered."""

    def __init__(self):
        super().__init__()
        self.table, self.attention, self.fc = Table(o.rows, 16), Tower(64, 36, 1), Tower(64, 200, 80, 1)

    def forward(self, ids, numbers):
        v = self.table(ids)
        user, movie, genres, seen = v[:, 0], v[:, 1], v[:, 2 : 2 + GENRES].sum(1), v[:, 2 + GENRES :]
        now = movie.unsqueeze(1).expand_as(seen)
        seen = seen * self.attention(torch.cat([seen, now, seen - now, seen * now], 2))
        return self.fc(torch.cat([user, genres, movie, seen.sum(1)], 1))


def evaluate(model, ids, numbers, labels):
    with torch.no_grad():
        y = torch.cat([model(ids[lo : lo + 512], numbers[lo : lo + 512]) for lo in range(0, len(labels), 512)])[:, 0]
        loss = F.binary_cross_entropy_with_logits(y, labels).item()
    return {"eval_loss": loss, "eval_logloss": loss, "eval_auc": run.auc(y.numpy(), labels.numpy())}


def main():
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    rng = np.random.default_rng(o.seed)
    read = movielens if o.model == "din" else criteo
    ids, numbers, labels = read("train")
    test = read("test")
    model = {"dlrm": DLRM, "din": DIN}.get(o.model, Net)()
    optimizer = torch.optim.Adagrad(model.parameters(), o.lr)
    run.fit(o, optimizer, rng, len(labels), lambda idx: F.binary_cross_entropy_with_logits(model(ids[idx], numbers[idx])[:, 0], labels[idx]), lambda: evaluate(model, *test))


if __name__ == "__main__":
    main()
