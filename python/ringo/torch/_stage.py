"""The stage of a model as ranks describe it: its cut, and modules, losses and optimizers made of the description."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Cut:
    """The place where a model is split: inputs, result and parameters of its stage."""

    def __init__(self, about: str) -> None:
        cut = json.loads(about)["cut"]
        self.model: str = cut["Model"]
        self.inputs: list[dict[str, Any]] = cut["In"]  # Name, Shape, Grad
        self.out: list[int] = cut["Out"] or []
        self.labels: int = cut["Labels"]
        self.targets: int = cut["Targets"]
        self.slots: list[dict[str, Any]] = cut["Slots"]  # Name, Offset, Len, Padded, Rate, Shape
        self.stage: list[dict[str, Any]] = cut["Stage"] or []
        self._loss: list[dict[str, Any]] = cut["Loss"] or []

    def ordered(self) -> list[dict[str, Any]]:
        """The slots in the order in which the forward pass first uses them."""
        names = [name for o in self.stage for name in o.get("Params") or []]
        return sorted(self.slots, key=lambda s: names.index(s["Name"]) if s["Name"] in names else len(names))

    def loss(self) -> Callable[..., Tensor]:
        """The model's own loss of its output and the labels or targets."""
        op = self._loss[0] if len(self._loss) == 1 else {"Op": " and ".join(o["Op"] for o in self._loss)}
        if op["Op"] not in LOSSES or op["In"][0] != len(self.inputs) + len(self.stage) - 1:
            raise ValueError(f"model {self.model}: PyTorch has no loss for {op['Op']}: pass loss to serve_part, or use heter.device=cpu")
        return LOSSES[op["Op"]]


LOSSES: dict[str, Callable[..., Tensor]] = {
    "softmaxcrossentropy": lambda y, labels: F.cross_entropy(y, labels),
    "binarycrossentropy": lambda y, labels: F.binary_cross_entropy_with_logits(y.reshape(-1), labels.reshape(-1).to(y.dtype)),
    "meansquarederror": lambda y, targets: F.mse_loss(y.reshape(-1), targets.reshape(-1)),
}

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda y: y,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": lambda y: 0.5 * y * (1 + torch.tanh(0.7978845608028654 * (y + 0.044715 * y**3))),
}

# By the name of an operation: its result, of inputs, parameters and the description.
OPERATIONS: dict[str, Callable[[list[Tensor], list[Any], dict[str, Any]], Tensor]] = {
    "dense": lambda x, p, o: F.linear(x[0].reshape(-1, p[0].shape[1]), p[0], p[1]).reshape(-1, *o["Shape"]),
    "activate": lambda x, p, o: x[0],
    "add": lambda x, p, o: x[0] + x[1],
    "subtract": lambda x, p, o: x[0] - x[1],
    "multiply": lambda x, p, o: x[0] * x[1],
    "divide": lambda x, p, o: x[0] / x[1],
    "scale": lambda x, p, o: x[0] * o["Attrs"]["s"],
    "concat": lambda x, p, o: torch.cat(x, o["Axes"][0]),
    "reshape": lambda x, p, o: x[0].reshape(-1, *o["Shape"]),
    "layernorm": lambda x, p, o: F.layer_norm(x[0], p[0].shape, p[0], p[1]),
}


class Stage(nn.Module):
    """The stage of a cut, with the parameters' names of the cut."""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        for o in cut.stage:
            if o["Op"] not in OPERATIONS:
                missing = f"PyTorch has no operation {o['Op']} of the stage"
                raise ValueError(f"model {cut.model}: {missing}: serve an own module by serve_part, or use heter.device=cpu")
        self._operations = cut.stage
        self._named: dict[str, nn.Parameter] = {}
        for s in cut.slots:
            self._named[s["Name"]] = nn.Parameter(torch.zeros(s["Shape"]))
            holder: nn.Module = self
            *path, last = s["Name"].split(".")
            for name in path:
                if not hasattr(holder, name):
                    holder.add_module(name, nn.Module())
                holder = getattr(holder, name)
            holder.register_parameter(last, self._named[s["Name"]])

    def forward(self, *x: Tensor) -> Tensor:
        known = list(x)
        for o in self._operations:
            parameters = [self._named[name] if name else None for name in o.get("Params") or []]
            y = OPERATIONS[o["Op"]]([known[i] for i in o["In"]], parameters, o)
            known.append(ACTIVATIONS[o.get("Activation", "")](y))
        return known[-1]


def optimizer_of(cut: Cut, named: dict[str, nn.Parameter], rule: dict[str, Any]) -> torch.optim.Optimizer:
    """The optimizer of ringo's name and settings, with the rates of the cut's parameters."""
    decay = rule.get("weight_decay", 0.0)
    groups: list[dict[str, Any]] = [{"params": [], "lr": rule["lr"]}]  # the group to which the rates of others relate
    for s in cut.slots:
        p = named[s["Name"]]
        exempt = rule["name"] == "adamw" and p.dim() == 1
        groups.append({"params": [p], "lr": rule["lr"] * s["Rate"], "weight_decay": 0.0 if exempt else decay})
    eps = {"eps": rule["eps"]} if rule.get("eps") else {}
    if rule["name"] == "sgd":
        return torch.optim.SGD(groups, lr=rule["lr"], momentum=rule.get("momentum", 0.0))
    return {"adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[rule["name"]](groups, lr=rule["lr"], **eps)
