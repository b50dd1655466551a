"""A click model like DLRM (Naumov et al. 2019): numbers go through a network, categories through embeddings whose rows lie on servers, and the
products of all pairs through another network. The dense part is DDP's, which all ranks have; the rows are the servers', of any number.

    ringo run --np 2 --servers 2 --sync bsp -- python3 dlrm.py

--sync async and ssp train, too, without waiting for each other; --servers and their folders, SSD and checkpoints are the launcher's business.
On a host with GPUs the network and the embeddings compute there: rows of the next batch travel while this one computes. With --cache ROWS frequent
rows stay on the GPU, as docs/python.md has it; it needs --sync, that of the launcher, and the run prints how often the cache had a row.
Rows of clicks are drawn, with categories of which few are frequent; what they stand for has to be found out.
"""

import argparse

import ringo.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NUMBERS, CATEGORIES, DIM = 4, 6, 8


def network(*widths):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = network(NUMBERS, 32, DIM)
        self.tables = nn.ModuleList(ringo.torch.Embedding(f"category{i}", DIM, lr=0.1, value=0.1) for i in range(CATEGORIES))
        pairs = (CATEGORIES + 1) * CATEGORIES // 2
        self.top = network(DIM + pairs, 32, 1)
        self.register_buffer("pairs", torch.triu_indices(CATEGORIES + 1, CATEGORIES + 1, 1), persistent=False)

    def forward(self, numbers, categories):
        dense = self.bottom(numbers)
        parts = torch.stack([dense] + [table(keys) for table, keys in zip(self.tables, categories)], 1)
        products = torch.bmm(parts, parts.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, products], 1)).squeeze(1)


def clicks(n, generator):
    """Rows of clicks: numbers, keys of categories, which may be any 64-bit numbers, and whether each was clicked."""
    numbers = torch.randn(n, NUMBERS, generator=generator)
    rank = (torch.rand(n, CATEGORIES, generator=generator) * 7).exp().long()  # most are small
    categories = rank * 0x9E3779B97F4A7C1 + torch.arange(CATEGORIES)
    taste = ((rank * 7 + torch.arange(CATEGORIES)) % 5 - 2).float()  # what a category is like, which nobody is told
    score = numbers[:, 0] + taste[:, 0] * taste[:, 1] + taste[:, 2] * taste[:, 3]
    return numbers, categories.unbind(1), (score > 0).float()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--prefetch", type=int, default=1, help="0: ask for rows when they are needed")
    parser.add_argument("--cache", type=int, default=0, help="rows of each table that stay on the device")
    parser.add_argument("--reuse", type=int, default=0, help="steps of training in which a row of the cache is used again")
    parser.add_argument("--sync", default="", help="that of ringo run, for --cache")
    args = parser.parse_args()

    dist.init_process_group("ringo")
    device = ringo.torch.device()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = DistributedDataParallel(DLRM().to(device), broadcast_buffers=False)
    tables = ringo.torch.Tables(model, device=device, cache=args.cache, reuse=args.reuse, sync=args.sync)  # connects its embeddings to the servers
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    batch = clicks(args.batch_size, generator)
    for step in range(1, args.steps + 1):
        numbers, categories, clicked = batch
        loss = nn.functional.binary_cross_entropy_with_logits(model(numbers.to(device), categories), clicked.to(device))
        batch = clicks(args.batch_size, generator)
        if args.prefetch and step < args.steps:
            for table, keys in zip(model.module.tables, batch[1]):
                table.prefetch(keys)
        optimizer.zero_grad()
        loss.backward()  # and the gradients of rows are pushed
        optimizer.step()
        tables.step()
        if dist.get_rank() == 0 and step % 100 == 0:
            print(f"step {step} of {args.steps}: loss {loss.item():.4f}", flush=True)

    model.eval()
    with torch.no_grad():
        numbers, categories, clicked = clicks(4000, torch.Generator().manual_seed(9))
        right = ((model.module(numbers.to(device), categories) > 0).float().cpu() == clicked).float().mean()
    if dist.get_rank() == 0:
        print(f"accuracy {right:.4f}", flush=True)
        if args.cache:
            print("cache", *(f"{purpose} {use['rate']:.3f}" for purpose, use in tables.cache_report().items()), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
