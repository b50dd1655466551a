"""What the PyTorch training programs share: threads, the rate's schedule, lines of JSON."""
import argparse, json, os, sys, time


def options(about, **defaults):
    """The settings, with ringo's names, and --steps for a trial."""
    ap = argparse.ArgumentParser(description=about)
    ap.add_argument("--data", required=True)
    ap.add_argument("--epochs", type=int, default=defaults.pop("epochs"))
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--lr-steps", default="", help="EPOCHS:RATE,…: the rate from when so many epochs are done")
    ap.add_argument("--steps", type=int, default=0, help="stop each epoch after so many steps, for a trial; 0: none")
    for name, value in defaults.items():
        ap.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    o = ap.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before torch is imported
        os.environ[name] = str(o.threads)
    return o


def rate(o, epoch):
    """The learning rate in an epoch, counted from 0."""
    lr = o.lr
    for step in filter(None, o.lr_steps.split(",")):
        at, value = step.split(":")
        if epoch >= int(at):
            lr = float(value)
    return lr


class Epochs:
    """Prints one JSON object per epoch, with ringo's field names."""

    def __init__(self, o):
        self.epochs, self.limit = o.epochs, o.steps

    def __iter__(self):
        for epoch in range(self.epochs):
            self.epoch, self.start, self.steps = epoch, time.perf_counter(), 0
            yield epoch

    def step(self):
        """Counts a step; true when the epoch must end here."""
        self.steps += 1
        self.step_ms = 1e3 * (time.perf_counter() - self.start) / self.steps
        return self.steps == self.limit

    def report(self, **figures):
        line = {"event": "epoch", "peer": "pytorch", "epoch": self.epoch + 1, **figures, "step_ms": self.step_ms, "steps": self.steps}
        line["wall_s"] = time.perf_counter() - self.start
        print(json.dumps(line), flush=True)


def fit(o, optimizer, rng, rows, loss_of, evaluate):
    """Trains on rows in an order of its own each epoch. loss_of is the loss of the rows of an index, evaluate what an epoch ends with."""
    import torch

    epochs = Epochs(o)
    for epoch in epochs:
        optimizer.param_groups[0]["lr"] = rate(o, epoch)
        order = torch.from_numpy(rng.permutation(rows))
        loss, count = 0.0, 0
        for at in range(0, rows - o.batch + 1, o.batch):
            optimizer.zero_grad(set_to_none=True)
            l = loss_of(order[at : at + o.batch])
            l.backward()
            optimizer.step()
            loss, count = loss + l.item(), count + 1
            if epochs.step():
                break
        epochs.report(train_loss=loss / count, **evaluate())


def fail(text):
    print(text, file=sys.stderr)
    raise SystemExit(1)


def auc(scores, labels):
    """The share of pairs of a click and none that are in the right order; ties count half."""
    import numpy as np  # once the number of threads is told

    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    ranks = (ends - (counts - 1) / 2)[inverse]
    clicks = labels == 1
    pos, neg = clicks.sum(), (~clicks).sum()
    return (ranks[clicks].sum() - pos * (pos + 1) / 2) / (pos * neg)
