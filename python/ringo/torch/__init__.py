"""A backend of torch.distributed on libringo, for tensors of the CPU and of GPUs:

    import torch.distributed as dist
    import ringo.torch

    dist.init_process_group("ringo")

torchrun, mpirun, srun and `ringo run` start the same script.
"""

from __future__ import annotations

import inspect

import torch.distributed as _dist

from . import _start
from ._embedding import Embedding, Tables
from ._hooks import Hook, hook
from ._optimizer import DistributedOptimizer
from ._part import serve_part
from ._process_group import ProcessGroup
from ._reform import reform
from ._share import BatchShare, batch_share
from ._start import Options, device

__all__ = [
    "BatchShare",
    "DistributedOptimizer",
    "Embedding",
    "Hook",
    "Options",
    "ProcessGroup",
    "Tables",
    "batch_share",
    "device",
    "hook",
    "reform",
    "serve_part",
]


def _register() -> None:
    if hasattr(_dist.Backend, "RINGO"):
        return
    register = _dist.Backend.register_backend
    more = {"devices": ["cpu", "cuda"]} if "devices" in inspect.signature(register).parameters else {}
    register("ringo", _start.create, extended_api=True, **more)
    _start.install()


_register()
