"""A heter-trainer that is a program of PyTorch: it computes the last layers of a model for the ranks of a job."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._job import placed
from .._library import MicroBatch, Part, PartMemory, check, library
from . import _device
from ._stage import Cut

READ_GRADIENTS, WRITE_GRADIENTS, READ_STATE, WRITE_STATE, RESET_GRADIENTS = range(5)
START_TRAINER, START_OWN = 1, 2
Loss = Callable[..., Tensor]


def _array(address: int | None, n: int, kind: Any = np.float32) -> Tensor:
    """Memory of the library as a tensor."""
    if not address or n == 0:
        return torch.empty(0, dtype=torch.int32 if kind is np.int32 else torch.float32)
    item = ctypes.c_int32 if kind is np.int32 else ctypes.c_float
    return torch.from_numpy(np.frombuffer((item * n).from_address(address), kind))


def _kind(t: Any) -> str:
    return f"{list(t.shape)} {str(t.dtype).rpartition('.')[2]}" if isinstance(t, Tensor) else type(t).__name__


class State:
    """The state of an optimizer as a list of floats: whether there is one, then each parameter's entries. An entry of another
    type than float32, or a number, is the sum of two floats.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._optimizer, self._parameters = optimizer, list(parameters)
        values = [p.detach().clone() for p in parameters]
        before = {p: self._copy(optimizer.state.get(p, {})) for p in parameters}
        try:
            optimizer.step()  # with gradients of zeros, to see what a state has
        except TypeError as fault:
            raise ValueError(f"{type(optimizer).__name__} needs more than gradients: {fault}") from fault
        self._entries: list[tuple[nn.Parameter, str, Any]] = []
        for p, value in zip(parameters, values):
            for key, example in sorted(optimizer.state.get(p, {}).items()):
                if isinstance(example, (Tensor, int, float)):
                    self._entries.append((p, key, example.clone() if isinstance(example, Tensor) else example))
                elif example is not None:
                    raise ValueError(f"{type(optimizer).__name__} has a state {key} of type {type(example).__name__}: want tensors and numbers")
            p.data.copy_(value)
            if before[p]:
                optimizer.state[p] = before[p]
            else:
                optimizer.state.pop(p, None)
        self.length = 1 + sum(self._floats(e) for _, _, e in self._entries) if self._entries else 0

    @staticmethod
    def _copy(state: dict[str, Any]) -> dict[str, Any]:
        return {k: v.clone() if isinstance(v, Tensor) else v for k, v in state.items()}

    @staticmethod
    def _floats(example: Any) -> int:
        if not isinstance(example, Tensor):
            return 2
        return example.numel() * (1 if example.dtype == torch.float32 else 2)

    def read(self, to: Tensor) -> None:
        """Writes the state to memory of the host."""
        to.zero_()
        if not self._entries or not self._optimizer.state.get(self._entries[0][0]):
            return
        to[0], at = 1, 1
        for p, key, example in self._entries:
            n, value = self._floats(example), self._optimizer.state[p].get(key)
            if isinstance(value, Tensor) and value.dtype == torch.float32:
                to[at : at + n].copy_(value.detach().reshape(-1))
            elif value is not None:
                exact = torch.as_tensor(value, dtype=torch.float64).detach().cpu().reshape(-1)
                high = exact.to(torch.float32)
                to[at : at + n] = torch.cat([high, (exact - high).to(torch.float32)])
            at += n

    def write(self, values: Tensor) -> None:
        """Sets the state from memory of the host."""
        at = 1
        if not self._entries:
            return
        if values[0] == 0:
            for p in self._parameters:
                self._optimizer.state.pop(p, None)
            return
        for p, key, example in self._entries:
            n, state = self._floats(example), self._optimizer.state[p]
            part = values[at : at + n]
            at += n
            if isinstance(example, Tensor) and example.dtype == torch.float32:
                if not isinstance(state.get(key), Tensor):
                    state[key] = torch.empty_like(example)
                state[key].copy_(part.reshape(example.shape))
                continue
            exact = part[: n // 2].double() + part[n // 2 :].double()
            if isinstance(example, Tensor):
                state[key] = exact.reshape(example.shape).to(example)
            else:
                state[key] = type(example)(exact.item())


class Module:
    """A module with its optimizer and loss, as the functions of a ringo_part: for one cut, on one device."""

    def __init__(
        self, cut: Cut, module: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss | None, device: torch.device, stateless: bool
    ) -> None:
        self.cut, self.module, self.optimizer, self.device = cut, module.to(device), optimizer, device
        self.loss = loss or cut.loss()
        self._refuse()
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._ranges(named)
        self.values, self.gradients = torch.zeros(self.n, device=device), torch.zeros(self.n, device=device)
        self._lane = _device.device_of("heter-trainer", 0, [self.values])  # None: memory of the host
        for p, lo in self.ranges.values():
            view = self.values[lo : lo + p.numel()].view(p.shape)
            view.copy_(p.detach())
            p.data, p.grad = view, self.gradients[lo : lo + p.numel()].view(p.shape)
            for key, state in optimizer.state.get(p, {}).items():
                if isinstance(state, Tensor) and state.shape == p.shape:
                    optimizer.state[p][key] = state.to(device)
        self.state = None if stateless else State(optimizer, [p for p, _ in self.ranges.values()])
        groups = [g for g in optimizer.param_groups if "lr" in g]
        first = float(groups[0]["lr"]) if groups else 0.0
        if groups and not first > 0:
            raise ValueError(f"the learning rate of the optimizer's first group is {first}: want one above 0, to which those of others relate")
        self._rates = [(g, float(g["lr"]) / first) for g in groups]
        shared = self._lane is None
        self.host_values = self.values if shared else self._pinned(self.n)
        self.host_gradients = self.gradients if shared else self._pinned(self.n)
        self.host_state = self._pinned(self.state.length if self.state else 0)
        self._try()

    def _refuse(self) -> None:
        for name, m in self.module.named_modules():
            if isinstance(m, nn.modules.batchnorm._BatchNorm):
                raise ValueError(f"layer {name} normalises over the batch, and a heter-trainer sees micro-batches: normalise over layers or groups")
        named = {p: name for name, p in self.module.named_parameters()}
        moved = {p for g in self.optimizer.param_groups for p in g["params"]}
        for p, name in named.items():
            if p.requires_grad and p.dtype != torch.float32:
                raise ValueError(f"parameter {name} is {_kind(p)}, the stage has float32: use module.float(), with autocast within forward")
            if p.requires_grad and p not in moved:
                raise ValueError(f"parameter {name} {list(p.shape)} is not in the optimizer: add it, or freeze it by requires_grad_(False)")
        if len(moved - set(named)) > 0:
            raise ValueError("the optimizer has parameters that the module has not: make it of module.parameters()")
        if not any(p.requires_grad for p in named):
            raise ValueError("the module has no parameters to train")

    def _ranges(self, named: dict[str, nn.Parameter]) -> None:
        """Places parameters in the arena: as the cut's, by name or else in order, if their shapes are those of the cut."""
        slots = self.cut.ordered()
        order = [s["Name"] for s in slots] if set(named) == {s["Name"] for s in slots} else list(named)
        same = len(order) == len(slots) and all(list(named[name].shape) == s["Shape"] for name, s in zip(order, slots))
        self.start = START_TRAINER if same else START_OWN
        self.ranges: dict[str, tuple[nn.Parameter, int]] = {}
        self.n = 0
        for i, name in enumerate(order):
            p, slot = named[name], slots[i] if same else {"Name": name, "Offset": self.n, "Padded": -(-named[name].numel() // 16) * 16}
            self.ranges[slot["Name"]] = (p, slot["Offset"])
            self.n = max(self.n, slot["Offset"] + slot["Padded"])

    def _pinned(self, n: int) -> Tensor:
        if self._lane is None or n == 0:
            return torch.zeros(n)
        memory: Tensor = self._lane.pinned(4 * n).view(torch.float32)
        return memory.zero_()

    def _up(self, host: Tensor, *shape: int) -> Tensor:
        return host.view(shape).to(self.device, copy=True)

    def _forward(self, x: list[Tensor], labels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The module's result and the loss. Errors: a module that does not fit, with both shapes."""
        cut, n = self.cut, x[0].shape[0]
        given = ", ".join(f"{c['Name']} {_kind(t)}" for c, t in zip(cut.inputs, x))
        try:
            y = self.module(*x)
        except (TypeError, RuntimeError, ValueError, IndexError) as fault:
            text = f"the module does not take the {len(x)} inputs of the cut of {cut.model}, {given}"
            raise ValueError(f"{text}: {type(fault).__name__}: {fault}") from fault
        want = f"{[n, *cut.out]} float32"
        if _kind(y) != want:
            raise ValueError(f"the module's result is {_kind(y)}, the cut of {cut.model} has {want}, for inputs {given}")
        wanted = ([labels] if cut.labels else []) + ([targets] if cut.targets else [])
        try:
            loss = self.loss(y, *wanted)
        except (TypeError, RuntimeError, ValueError, IndexError) as fault:
            text = f"the loss does not take the module's result and the labels or targets, {', '.join(map(_kind, (y, *wanted)))}"
            raise ValueError(f"{text}: {type(fault).__name__}: {fault}") from fault
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            raise ValueError(f"the loss is {_kind(loss)}: want a tensor with one value, the mean over the samples")
        return y, loss.reshape(())

    def _try(self) -> None:
        """Refuses a module that does not fit, by a pass over two samples of zeros."""
        cut = self.cut
        x = [torch.zeros(2, *c["Shape"], device=self.device, requires_grad=c["Grad"]) for c in cut.inputs]
        labels = self._labels(torch.zeros(2 * cut.labels, dtype=torch.int32), 2)
        _, loss = self._forward(x, labels, torch.zeros(2, cut.targets, device=self.device))
        try:
            loss.backward()
        except RuntimeError as fault:
            raise ValueError(f"the loss of the module's result and the labels or targets ({_kind(labels)}) has no backward pass: {fault}") from fault
        for c, t in zip(cut.inputs, x):
            if c["Grad"] and t.grad is None:
                text = f"input {c['Name']} {c['Shape']} of the module gets no gradient, which layers before the stage need"
                raise ValueError(f"{text}: is it used, and not detached?")
        self.gradients.zero_()

    def _labels(self, host: Tensor, n: int) -> Tensor:
        shape = (n,) if self.cut.labels == 1 else (n, self.cut.labels)
        return self._up(host, *shape).long()

    def run(self, m: MicroBatch) -> None:
        cut, n, training = self.cut, m.n, not m.eval
        self.module.train(training)
        x = []
        for i, c in enumerate(cut.inputs):
            size = n * int(np.prod(c["Shape"], dtype=np.int64))
            x.append(self._up(_array(m.inputs[i], size), n, *c["Shape"]).requires_grad_(training and c["Grad"]))
        labels = self._labels(_array(m.labels, n * cut.labels, np.int32), n)
        targets = self._up(_array(m.targets, n * cut.targets), n, cut.targets)
        with torch.set_grad_enabled(training):
            y, loss = self._forward(x, labels, targets)
            if training:
                loss.backward(torch.full_like(loss, m.seed))
        for i, (c, t) in enumerate(zip(cut.inputs, x)):
            if training and c["Grad"]:
                to = _array(m.gradients[i], t.numel())
                to.zero_() if t.grad is None else to.view(t.shape).copy_(t.grad)
        _array(m.out, y.numel()).view(y.shape).copy_(y.detach())
        m.loss, m.terms, m.correct = loss.item(), n * max(1, cut.labels), 0
        if cut.labels == 1 and y.dim() == 2:
            right = y.argmax(1) == labels if y.shape[1] > 1 else (y[:, 0] > 0) == (labels == 1)
            m.correct = int(right.sum())

    def update(self, rate: float, scale: float) -> None:
        self.gradients.mul_(scale)
        for group, factor in self._rates:
            group["lr"] = rate * factor
        self.optimizer.step()

    def sync(self, action: int) -> None:
        if action == RESET_GRADIENTS:
            self.gradients.zero_()
        elif action in (READ_GRADIENTS, WRITE_GRADIENTS):
            self._between(self.host_gradients, self.gradients, action == WRITE_GRADIENTS)
        else:
            self._between(self.host_values, self.values, action == WRITE_STATE)
            if self.state and self.state.length:
                (self.state.write if action == WRITE_STATE else self.state.read)(self.host_state)

    def _between(self, host: Tensor, there: Tensor, up: bool) -> None:
        (there if up else host).copy_(host if up else there)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes the parameters as safetensors, with the names of the cut if they are its parameters."""
        header, data, at = {}, [], 0
        for name, (p, _) in sorted(self.ranges.items()):
            raw = p.detach().cpu().contiguous().numpy().tobytes()
            header[name] = {"dtype": "F32", "shape": list(p.shape), "data_offsets": [at, at + len(raw)]}
            data.append(raw)
            at += len(raw)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        part = Path(path).with_name(Path(path).name + ".part")
        part.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
        part.replace(path)


class Server:
    """The callbacks of a ringo_part, until all ranks have left."""

    def __init__(self, build: Callable[[Cut], Module], report: Callable[[str], None]) -> None:
        self.module: Module | None = None
        self._build, self._report = build, report
        kinds = dict(Part._fields_)
        self.part = Part(
            struct_size=ctypes.sizeof(Part),
            open=kinds["open"](lambda _, about, memory, text, room: self._guard(text, room, self._open, about, memory)),
            run=kinds["run"](lambda _, m, text, room: self._guard(text, room, lambda: self._opened().run(m.contents))),
            update=kinds["update"](lambda _, rate, scale, text, room: self._guard(text, room, lambda: self._opened().update(rate, scale))),
            sync=kinds["sync"](lambda _, action, text, room: self._guard(text, room, lambda: self._opened().sync(action))),
            report=kinds["report"](lambda _, line: self._report(line.decode("utf-8", "replace"))),
        )

    def _opened(self) -> Module:
        assert self.module is not None
        return self.module

    def _open(self, about: bytes, memory: Any) -> None:
        m = self.module = self._build(Cut(about.decode()))
        to = memory.contents
        to.gradients, to.values, to.n = m.host_gradients.data_ptr(), m.host_values.data_ptr(), m.n
        to.state, to.n_state, to.start = m.host_state.data_ptr() or None, m.host_state.numel(), m.start

    @staticmethod
    def _guard(text: int, room: int, do: Callable[..., None], *arguments: Any) -> int:
        """Runs do, and writes its exception to the library's memory."""
        try:
            do(*arguments)
            return 0
        except BaseException as fault:
            said = str(fault) if isinstance(fault, ValueError) else f"{type(fault).__name__}: {fault}"
            ctypes.memmove(text, (raw := said.encode()[: room - 1] + b"\0"), len(raw))
            return 1

    def serve(self, options: Any, settings: dict[str, Any]) -> None:
        """Serves on a thread: this one takes signals, such as that of Ctrl-C."""
        faults: list[BaseException] = []

        def work() -> None:
            try:
                check(library().ringo_serve_part(options, json.dumps(settings).encode(), ctypes.byref(self.part)), "serve_part")
            except BaseException as fault:
                faults.append(fault)

        thread = threading.Thread(target=work, name="ringo part", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
        if faults:
            raise faults[0]


def serve_part(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss | None = None,
    *,
    device: torch.device | str | None = None,
    sync: str = "bsp",
    index: int = 0,
    size: int = 0,
    addresses: Sequence[str] = (),
    ticket: str | None = None,
    ticket_file: str | None = None,
    trainer_threads: int = 1,
    join_timeout: float = 0,
    export: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] | None = None,
) -> None:
    """Makes this process a heter-trainer: module is the stage of the ranks' model, its last layers. It returns when all ranks have left.

    module takes the inputs of the cut and returns the model's output. loss takes the output, and labels or targets, and returns the mean
    over the samples; None: the loss of the ranks' model. The ranks' learning rate replaces that of the optimizer's first group, and
    others keep their ratio to it. If the module's parameters have the names or else the order, and the shapes, of the stage's, rank 0
    sends their first values, and checkpoints have them. Others begin as the first heter-trainer's, need sync bsp, and ranks cannot save them.

    By hand: size is the number of ranks, addresses those of all heter-trainers, index the place of this one among them, and ticket or
    ticket_file the job's secret. Otherwise the variables of `ringo train --set heter.device=FILE.py` place it and have the ranks'
    settings, or RINGO_HETER_INDEX, RINGO_HETER_ADDRS and RINGO_WORLD_SIZE place it. sync and trainer_threads are the ranks' --sync and
    ps.trainer-threads. device is a GPU, by index, or the CPU where there is none. export is a file for the parameters at the end, as
    safetensors.
    """
    settings = {"addresses": list(addresses), "stateless": sync != "bsp", "trainer_threads": trainer_threads}
    options = placed(size, index, 0, join_timeout, {"ticket": ticket, "ticket_file": ticket_file})
    serve(lambda cut: (module, optimizer, loss), options, settings, device, export, report)


def serve(
    build: Callable[[Cut], tuple[nn.Module, torch.optim.Optimizer, Loss | None]],
    options: Any,
    settings: dict[str, Any],
    device: torch.device | str | None = None,
    export: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] | None = None,
) -> None:
    """Serves what build makes of the ranks' cut. The settings of `ringo heter`, which has become this program, replace settings."""
    settings = json.loads(os.environ.get("RINGO_PART_SETTINGS", "null")) or settings
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = options.rank if options.size else int(os.environ.get("RINGO_HETER_INDEX", 0))
    place = torch.device(device or (f"cuda:{index % count}" if count else "cpu"))
    server = Server(
        lambda cut: Module(cut, *build(cut), place, settings.get("stateless", False)),
        report or (lambda line: print(f"ringo: {line}", file=sys.stderr, flush=True)),
    )
    server.serve(ctypes.byref(options), settings)
    if export is not None and server.module is not None:
        server.module.export(export)
