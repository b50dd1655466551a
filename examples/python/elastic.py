"""Trains a model with DistributedDataParallel, and continues when a rank is lost, with the state of the other ranks:

    ringo run --np 3 --min-np 2 -- python3 elastic.py

With two ranks left, a new process replaces the next lost one. --checkpoint FILE is for launchers that start all processes again, such as
torchrun --nproc-per-node 2 --max-restarts 3 elastic.py --backend gloo --checkpoint FILE.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ringo.torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--batch", type=int, default=256, help="samples of a step, over all ranks")
parser.add_argument("--backend", default="ringo")
parser.add_argument("--checkpoint", help="file that rank 0 saves and all ranks load at the start")
parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
args = parser.parse_args()


def shared(model, optimizer, step):
    """The model for DDP with the parameters of rank 0, and rank 0's step; the optimizer gets rank 0's state."""
    ddp = DistributedDataParallel(model)
    state = [optimizer.state_dict(), step]
    dist.broadcast_object_list(state, src=0)
    optimizer.load_state_dict(state[0])
    return ddp, state[1]


def samples(step):
    """This rank's part of a step's batch, which is the same for any number of ranks."""
    x = torch.randn(args.batch, 64, generator=torch.Generator().manual_seed(step))
    mine = slice(dist.get_rank(), args.batch, dist.get_world_size())
    return x[mine], (x[mine] ** 2).sum(1, keepdim=True) / 64


def train_step(ddp, optimizer, step):
    x, y = samples(step)
    loss = torch.nn.functional.mse_loss(ddp(x), y)
    optimizer.zero_grad()
    loss.backward()  # the ranks' mean; a lost rank is an error here, before the parameters change
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step} of {dist.get_world_size()} ranks at {time.time():.3f}: loss {loss.item():.4f}", flush=True)
        if args.checkpoint and (step + 1) % args.every == 0:
            torch.save([ddp.module.state_dict(), optimizer.state_dict(), step + 1], args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)


dist.init_process_group(args.backend)
torch.manual_seed(1)
model, step = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)), 0
optimizer = torch.optim.Adam(model.parameters())
if args.checkpoint and os.path.exists(args.checkpoint):
    parameters, state, step = torch.load(args.checkpoint)
    model.load_state_dict(parameters)
    optimizer.load_state_dict(state)
ddp = None
while step < args.steps:
    try:
        if ddp is None:
            ddp, step = shared(model, optimizer, step)
        train_step(ddp, optimizer, step)
        step += 1
    except RuntimeError:
        if args.backend != "ringo":
            raise
        ringo.torch.reform()
        ddp = None
dist.destroy_process_group()
