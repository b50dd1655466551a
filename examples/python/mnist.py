"""PyTorch's MNIST example (pytorch/examples, mnist/main.py) with three lines for ringo, marked with # 1, # 2 and # 3. With these it is trained by
all ranks that a launcher starts:

    ringo run --np 2 -- python3 mnist.py --data FOLDER

torchrun, mpirun and srun start it, too. FOLDER has the four files of MNIST (`ringo data mnist --out FOLDER` fetches them); --synthetic
draws digits of dots in their place.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import ringo.torch  # 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def images_and_labels(folder, part):
    """The images of a part of MNIST as torchvision would give them, and their labels."""

    def content(name):
        found = next(p for p in sorted(Path(folder).glob(name + "*")))
        return (gzip.open if found.suffix == ".gz" else open)(found, "rb").read()

    x = np.frombuffer(content(f"{part}-images"), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    y = np.frombuffer(content(f"{part}-labels"), np.uint8, offset=8)
    return (torch.from_numpy(x.copy()).float() / 255 - 0.1307) / 0.3081, torch.from_numpy(y.astype(np.int64))


def synthetic(n, seed):
    """Ten patterns of dots with noise."""
    patterns = torch.randn(10, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(10, (n,), generator=g)
    return patterns[y] + torch.randn(n, 1, 28, 28, generator=g), y


def train(args, model, loader, optimizer, epoch):
    model.train()
    for batch, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if batch % args.log_interval == 0 and dist.get_rank() == 0:
            print(f"epoch {epoch}, batch {batch} of {len(loader)}: loss {loss.item():.4f}", flush=True)


def test(model, loader):
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    print(f"test accuracy {right / len(loader.dataset):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--log-interval", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    dist.init_process_group("ringo")  # 2
    torch.manual_seed(args.seed)
    if args.synthetic:
        training, evaluation = synthetic(2000, 1), synthetic(500, 2)
    else:
        training, evaluation = images_and_labels(args.data, "train"), images_and_labels(args.data, "t10k")
    training, evaluation = (torch.utils.data.TensorDataset(*part) for part in (training, evaluation))
    sampler = torch.utils.data.distributed.DistributedSampler(training)
    loader = torch.utils.data.DataLoader(training, args.batch_size, sampler=sampler)

    model = nn.parallel.DistributedDataParallel(Net())  # 3
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        train(args, model, loader, optimizer, epoch)
        scheduler.step()
    if dist.get_rank() == 0:
        test(model.module, torch.utils.data.DataLoader(evaluation, 500))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
