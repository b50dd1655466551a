"""What EmbeddingBag of PyTorch takes on one thread, for bags of 20 keys of a table that no cache holds.

    python3 bench/torch/bags.py [--seconds 2]

It prints what `go test ./nn -bench EmbeddingBag -cpu 1` prints of ringo's: nanoseconds a key and the bytes of rows in that time. Gradients are
row-sparse; coalesced ones have each row once, as ringo's have, and optimizers that keep state want them so.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

SAMPLES, EACH, VALUES = 4096, 20, 64 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, help="of each figure")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for dim in (16, 64, 128):
        rows = VALUES // dim
        bag = nn.EmbeddingBag(rows, dim, mode="sum", sparse=True)
        batches = [torch.randint(rows, (SAMPLES * EACH,)) for _ in range(20)]
        offsets = torch.arange(0, SAMPLES * EACH, EACH)
        gradient = torch.zeros(SAMPLES, dim)
        for what in ("forward", "backward", "coalesced"):
            took, steps, end = 0.0, 0, time.perf_counter() + args.seconds
            while time.perf_counter() < end:
                bag.weight.grad = None
                start = time.perf_counter()
                if what == "forward":
                    with torch.no_grad():
                        bag(batches[steps % 20], offsets)
                else:
                    y = bag(batches[steps % 20], offsets)
                    start = time.perf_counter()
                    y.backward(gradient)
                    if what == "coalesced":
                        assert bag.weight.grad is not None
                        bag.weight.grad.coalesce()
                took += time.perf_counter() - start
                steps += 1
            key = took / steps / SAMPLES / EACH * 1e9
            print(f"dim={dim} {what}: {key:.2f} ns/key, {4 * dim / key:.2f} GB/s", flush=True)


if __name__ == "__main__":
    main()
