#!/usr/bin/env python3
"""The word language model in PyTorch, as ringo trains it with one worker.

usage: torch_lstm.py --data DIR [--epochs 4] [--lr 20] [--clip-norm 0.25] [--dropout 0.5] [--seed N] …

DIR holds the training and the evaluation text: the files with `train` (or else `valid`) and with
`test` in their names. Words are separated by spaces, each line ends in <eos>, and the vocabulary is
the most frequent words of the training text; others are <unk>. The text is cut into sequences of
35 words, these into as many streams as the batch has places; the state is carried from one
sequence of a stream to the next, gradients are not. Training drops what does not fill a step,
evaluation counts every word.
"""
import collections, glob, math, os, sys

import run

o = run.options("The LSTM language model in PyTorch", epochs=4, batch=20, seq=35, lr=20.0, momentum=0.0,
                weight_decay=0.0, clip_norm=0.25, vocabulary=10000, dropout=0.5)

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from torch_models import LSTMModel


def find(*parts):
    for part in parts:
        found = sorted(glob.glob(os.path.join(o.data, f"*{part}*")))
        if found:
            return found[0]
    run.fail(f"no file with {' or '.join(parts)} in its name in {o.data}")


def words(path):
    with open(path, encoding="utf-8", newline="\n") as f:
        return [w for line in f for w in line.split() + ["<eos>"]]


def encode(text, known):
    return torch.tensor([known.get(w, known["<unk>"]) for w in text])


def sequences(tokens):
    """Inputs and labels of the whole sequences, [sequences, seq]."""
    n = (len(tokens) - 1) // o.seq
    return tokens[: n * o.seq].view(n, o.seq), tokens[1 : n * o.seq + 1].view(n, o.seq)


def steps(n, whole):
    """The sequences of each step; those of a stream follow one another.

    The first n mod batch streams are one longer; with whole, what is beyond the shorter ones
    is dropped.
    """
    length, more = divmod(n, o.batch)
    if whole:
        starts, more = [i * length for i in range(o.batch)], 0
    else:
        starts = [i * length + min(i, more) for i in range(o.batch)]
    for s in range(length):
        yield [start + s for start in starts]
    if more:
        yield [start + length for start in starts[:more]]


def evaluate(model, tokens):
    model.eval()
    x, y = sequences(tokens)
    loss, count, state = 0.0, 0, None
    with torch.no_grad():
        for idx in steps(len(x), whole=False):
            if state is not None and len(idx) < state[0].shape[1]:
                state = tuple(s[:, : len(idx)].contiguous() for s in state)
            logits, state = model(x[idx].t(), state)
            loss += F.cross_entropy(logits, y[idx].t().flatten(), reduction="sum").item()
            count += len(idx) * o.seq
            if count == o.steps * o.batch * o.seq:
                break
    model.train()
    return {"eval_loss": loss / count, "eval_perplexity": math.exp(loss / count), "eval_words": count}


def main():
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    text = words(find("train", "valid"))
    counts = collections.Counter(w for w in text if w not in ("<unk>", "<eos>"))
    kept = sorted(counts, key=lambda w: -counts[w])[: o.vocabulary - 2]  # of equally frequent words those that came first
    known = {w: i for i, w in enumerate(["<unk>", "<eos>"] + kept)}
    train, test = encode(text, known), encode(words(find("test")), known)
    model = LSTMModel(len(known), dropout=o.dropout)
    for p in model.parameters():  # as ringo's, and Zaremba et al.'s
        torch.nn.init.uniform_(p, -0.05, 0.05)
    torch.nn.init.zeros_(model.out.bias)
    optimizer = torch.optim.SGD(model.parameters(), o.lr, o.momentum, weight_decay=o.weight_decay)
    x, y = sequences(train)
    epochs = run.Epochs(o)
    for epoch in epochs:
        optimizer.param_groups[0]["lr"] = run.rate(o, epoch)
        loss, count, state = 0.0, 0, None
        for idx in steps(len(x), whole=True):
            optimizer.zero_grad(set_to_none=True)
            logits, state = model(x[idx].t(), state)
            state = tuple(s.detach() for s in state)
            l = F.cross_entropy(logits, y[idx].t().flatten())
            l.backward()
            if o.clip_norm > 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), o.clip_norm)
            optimizer.step()
            loss, count = loss + l.item(), count + 1
            if epochs.step():
                break
        epochs.report(train_loss=loss / count, train_perplexity=math.exp(loss / count), vocabulary=len(known), **evaluate(model, test))


if __name__ == "__main__":
    main()
