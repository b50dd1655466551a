#!/usr/bin/env python3
"""CIFAR-10 with ResNet-20 in PyTorch, as ringo trains it with several workers.

usage: torch_cifar.py --data DIR [--workers 2] [--batch 32] [--epochs 10] [--seed N] …

DIR holds CIFAR-10's binary form (see cifar_pixels.py). The workers are emulated exactly in one
process: each has a model of its own for its running statistics, all share the parameters; a step
adds up the gradients of the workers' mean losses and divides by their number; the running
statistics are averaged before evaluation. SGD with momentum and weight decay on all parameters.
"""
import copy, os, sys

import run

o = run.options("CIFAR-10 with ResNet-20 in PyTorch", epochs=10, workers=2, batch=32, lr=0.05, momentum=0.9, weight_decay=1e-4)

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from torch_models import ResNet20

MEAN = torch.tensor([0.4914, 0.4822, 0.4465])
DEVIATION = torch.tensor([0.2470, 0.2435, 0.2616])
PAD = 4


def read(names):
    """Images [n, 32, 32, 3] of bytes, and labels."""
    raw = np.concatenate([np.fromfile(os.path.join(o.data, n), np.uint8).reshape(-1, 3073) for n in names])
    return raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy(), torch.from_numpy(raw[:, 0].astype(np.int64))


def normalise(pixels):
    return ((torch.from_numpy(pixels).float() / 255 - MEAN) / DEVIATION).permute(0, 3, 1, 2).contiguous()


def augment(pixels, rng):
    """Black borders of 4, a random window of 32x32, mirrored half of the time."""
    n = len(pixels)
    wide = np.zeros((n, 32 + 2 * PAD, 32 + 2 * PAD, 3), np.uint8)
    wide[:, PAD:-PAD, PAD:-PAD] = pixels
    rows = rng.integers(0, 2 * PAD + 1, n)[:, None] + np.arange(32)
    cols = rng.integers(0, 2 * PAD + 1, n)[:, None] + np.arange(32)
    mirrored = rng.integers(0, 2, n) == 1
    cols[mirrored] = cols[mirrored, ::-1]
    return wide[np.arange(n)[:, None, None], rows[:, :, None], cols[:, None, :]]


def make_workers(n):
    """Models with the same Parameters and running statistics of their own."""
    first = ResNet20()
    models = [first] + [copy.deepcopy(first) for _ in range(n - 1)]
    for model in models[1:]:
        for ours, theirs in zip(model.modules(), first.modules()):
            ours._parameters.update(theirs._parameters)
    return models


def average_statistics(models):
    with torch.no_grad():
        for same in zip(*(m.buffers() for m in models)):
            if same[0].is_floating_point():
                mean = torch.stack(same).mean(0)
                for b in same:
                    b.copy_(mean)


def evaluate(model, pixels, labels):
    model.eval()
    loss = correct = 0
    with torch.no_grad():
        for lo in range(0, len(labels), 100):
            y, label = model(normalise(pixels[lo : lo + 100])), labels[lo : lo + 100]
            loss += F.cross_entropy(y, label, reduction="sum").item()
            correct += (y.argmax(1) == label).sum().item()
    model.train()
    return {"eval_loss": loss / len(labels), "eval_accuracy": correct / len(labels)}


def main():
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    rng = np.random.default_rng(o.seed)
    train, labels = read([f"data_batch_{i}.bin" for i in range(1, 6)])
    test = read(["test_batch.bin"])
    models = make_workers(o.workers)
    optimizer = torch.optim.SGD(models[0].parameters(), o.lr, o.momentum, weight_decay=o.weight_decay)
    share = len(labels) // o.workers  # of each worker; what is left over is dropped, and so are batches that are not full
    epochs = run.Epochs(o)
    for epoch in epochs:
        optimizer.param_groups[0]["lr"] = run.rate(o, epoch)
        order = rng.permutation(len(labels))
        loss = correct = seen = 0
        for at in range(0, share - o.batch + 1, o.batch):
            optimizer.zero_grad(set_to_none=True)
            for w, model in enumerate(models):
                idx = order[w * share + at : w * share + at + o.batch]
                y, label = model(normalise(augment(train[idx], rng))), labels[idx]
                l = F.cross_entropy(y, label)
                (l / o.workers).backward()
                loss += l.item() * o.batch
                correct += (y.argmax(1) == label).sum().item()
                seen += o.batch
            optimizer.step()
            if epochs.step():
                break
        average_statistics(models)
        epochs.report(train_loss=loss / seen, train_accuracy=correct / seen, **evaluate(models[0], *test))


if __name__ == "__main__":
    main()
