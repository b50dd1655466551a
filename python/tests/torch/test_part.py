"""Heter-trainers that are programs of PyTorch: built of the stage of a model, and with a module of one's own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ringo.torch import _device
from ringo.torch._part import Module, State
from ringo.torch._stage import Cut, Stage, optimizer_of
from simulated import force
from test_start import environment
from torch import nn

CLICKS = "train ctr-dnn --data synthetic --servers 1 --verbose --threads 1 --batch 16 --set data.table-rows=5000 --seed 7 "
OWN = """
import sys, torch, ringo.torch
from torch import nn
sys.path.insert(0, {tests!r})
{before}
torch.manual_seed(1)
module = nn.Sequential({layers})
ringo.torch.serve_part(module, torch.optim.{rule}(module.parameters(), lr=0.01), {loss}, device="cpu", export={export!r})
"""
LAYERS = "nn.Linear(273, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 2)"


def run(line: str, folder: str = ".") -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(["ringo", *line.split()], cwd=folder, env=environment(PATH=path), capture_output=True, text=True, timeout=300)


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def losses(done: subprocess.CompletedProcess[str]) -> list[float]:
    """The losses of the steps that a run has printed."""
    return [float(x) for x in re.findall(r"loss +([0-9.]+)", done.stdout + done.stderr)]


def about(loss: str = "softmaxcrossentropy", **more: Any) -> str:
    """What ranks say of a small model: two layers, the first of which has ReLU."""
    slots, at = [], 0
    for name, shape in {"a.weight": [4, 3], "a.bias": [4], "b.weight": [2, 4], "b.bias": [2]}.items():
        size = int(np.prod(shape))
        slots.insert(0, {"Name": name, "Offset": at, "Len": size, "Padded": 16, "Rate": 1, "Shape": shape})
        at += 16
    dense = [{"Op": "dense", "In": [i], "Params": [f"{x}.weight", f"{x}.bias"], "Activation": a, "Shape": [n]} for i, (x, a, n) in enumerate((("a", "relu", 4), ("b", "", 2)))]
    cut = {"Model": "small", "In": [{"Name": "rows", "Shape": [3], "Grad": True}], "Out": [2], "Labels": 1, "Targets": 0, "Slots": slots, "Stage": dense}
    return json.dumps({"cut": dict(cut, Loss=[{"Op": loss, "In": [2]}], **more)})


def small(*layers: nn.Module, rule: Any = torch.optim.Adam, loss: Any = None, device: str = "cpu") -> Module:
    module = nn.Sequential(*layers) if layers else nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    return Module(Cut(about()), module, rule(module.parameters(), lr=0.1), loss, torch.device(device), False)


class Modules(unittest.TestCase):
    def refused(self, text: str, *layers: nn.Module, **more: Any) -> None:
        with self.assertRaises(ValueError) as got:
            small(*layers, **more)
        self.assertRegex(str(got.exception), text)

    def test_modules_that_do_not_fit(self) -> None:
        self.refused(r"the module's result is \[2, 5\] float32, the cut of small has \[2, 2\] float32, for inputs rows \[2, 3\] float32", nn.Linear(3, 5))
        self.refused(r"does not take the 1 inputs of the cut of small, rows \[2, 3\] float32: RuntimeError: .*2x3 and 7x2", nn.Linear(7, 2))
        self.refused(r"parameter 0.weight is \[2, 3\] float64, the stage has float32", nn.Linear(3, 2).double())
        self.refused("layer 1 normalises over the batch", nn.Linear(3, 2), nn.BatchNorm1d(2))
        self.refused(r"the loss is \[2\] float32: want a tensor with one value", loss=nn.CrossEntropyLoss(reduction="none"))
        self.refused(r"the loss does not take the module's result and the labels or targets, \[2, 2\] float32, \[2\] int64", loss=nn.BCEWithLogitsLoss())
        self.refused(r"the loss .* \(\[2\] int64\) has no backward pass: .*dtype", loss=lambda y, z: nn.functional.mse_loss(y[:, 0], z))
        self.refused("input rows .* gets no gradient", loss=lambda y, z: (y * 0).detach().sum() + sum(p.sum() for p in self.module.parameters()))
        self.refused("closure", rule=torch.optim.LBFGS)
        with self.assertRaisesRegex(ValueError, "no loss for hinge"):
            Cut(about("hinge")).loss()

    module = nn.Linear(1, 1)

    def test_parameters_are_those_of_the_stage(self) -> None:
        fits, own = small(), small(nn.Linear(3, 2))
        self.assertEqual((fits.start, fits.n, list(fits.ranges)), (1, 64, ["a.weight", "a.bias", "b.weight", "b.bias"]))
        self.assertEqual((own.start, own.n), (2, 32))

    def test_rates_of_parameters(self) -> None:
        """The factor of one parameter, the first one, too, leaves the rates of others as they are."""
        told = json.loads(about())
        told["cut"]["Slots"][0]["Rate"] = 10
        cut = Cut(json.dumps(told))
        stage = Stage(cut)
        for rule in ({"name": "sgd", "lr": 0.1}, {"name": "adagrad", "lr": 0.1}, {"name": "adamw", "lr": 0.1}):
            m = Module(cut, stage, optimizer_of(cut, dict(stage.named_parameters()), rule), None, torch.device("cpu"), False)
            m.values.zero_()
            m.gradients.fill_(1)
            m.update(0.5, 1)
            for name, (p, _) in m.ranges.items():
                np.testing.assert_allclose(p.detach(), -5 if name == cut.slots[0]["Name"] else -0.5, rtol=1e-5, err_msg=str(rule))

    def test_states_are_carried_over(self) -> None:
        """A module that gets another's values and state goes on with the same bits, for each optimizer."""
        rules: dict[str, Any] = {
            "momentum": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9), "sgd": torch.optim.SGD, "adam": torch.optim.Adam,
            "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop, "nadam": torch.optim.NAdam,
        }
        for name, rule in rules.items():
            with self.subTest(name):
                torch.manual_seed(3)
                one, other = small(rule=rule), small(rule=rule)

                def steps(m: Module, n: int) -> None:
                    for i in range(n):
                        m.gradients.copy_(torch.linspace(-1, 1, m.n) * (i + 1))
                        m.update(0.01, 0.5)

                for before in (0, 3):
                    steps(one, before)
                    steps(other, 2 if before == 0 else 0)
                    one.sync(2)
                    other.host_values.copy_(one.host_values)
                    other.host_state.copy_(one.host_state)
                    other.sync(3)
                    steps(one, 2)
                    steps(other, 2)
                    self.assertTrue(torch.equal(one.values, other.values), before)

    def test_same_through_a_device(self) -> None:
        torch.manual_seed(5)
        plain = small()
        try:
            force(0.001)
            torch.manual_seed(5)
            staged = small()
        finally:
            _device.simulated = None
        self.assertNotEqual(staged.values.data_ptr(), staged.host_values.data_ptr())
        x, y = torch.rand(6, 3), torch.tensor([0, 1, 1, 0, 1, 0], dtype=torch.int32)
        results = []
        for m in (plain, staged):
            m.sync(4)
            results.append(passes(m, x, y))
        for a, b in zip(*results):
            self.assertTrue(torch.equal(a, b))

    def test_export(self) -> None:
        m = small()
        with tempfile.TemporaryDirectory() as folder:
            m.export(f"{folder}/part.safetensors")
            found = tensors(f"{folder}/part.safetensors")
        self.assertEqual(sorted(found), ["a.bias", "a.weight", "b.bias", "b.weight"])
        for name, (p, _) in m.ranges.items():
            np.testing.assert_array_equal(found[name], p.detach().numpy())


def passes(m: Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """What a micro-batch and an update give."""
    import ctypes

    from ringo._library import MicroBatch

    out, back = torch.zeros(len(x), 2), torch.zeros_like(x)
    b = MicroBatch(n=len(x), seed=0.5, labels=y.data_ptr(), out=out.data_ptr())
    b.inputs, b.gradients = (ctypes.c_void_p * 1)(x.data_ptr()), (ctypes.c_void_p * 1)(back.data_ptr())
    m.run(b)
    m.sync(0)
    gradients = m.host_gradients.clone()
    m.sync(1)
    m.update(0.1, 1)
    m.sync(2)
    return [out, back, gradients, m.host_values.clone(), m.host_state.clone(), torch.tensor([b.loss, b.terms, b.correct])]


def tensors(path: str) -> dict[str, Any]:
    """The tensors of a file of safetensors."""
    raw = Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    body = raw[8 + size :]
    return {k: np.frombuffer(body[slice(*v["data_offsets"])], np.float32).reshape(v["shape"]) for k, v in header.items()}


@unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
class Jobs(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def ends(self, line: str, want: int = 0) -> subprocess.CompletedProcess[str]:
        done = run(line, self.folder)
        self.assertEqual(done.returncode, want, done.stdout + done.stderr)
        return done

    def own(self, layers: str = LAYERS, loss: str = "None", before: str = "", export: str | None = None, rule: str = "Adagrad") -> str:
        Path(self.folder, "own.py").write_text(OWN.format(tests=str(Path(__file__).parent), before=before, layers=layers, loss=loss, export=export, rule=rule))
        return "--heter 1 --set heter.device=own.py "

    def near(self, a: subprocess.CompletedProcess[str], b: subprocess.CompletedProcess[str], digits: float = 1e-4) -> None:
        one, other = losses(a), losses(b)
        self.assertGreaterEqual(len(one), 100)
        np.testing.assert_allclose(one, other, rtol=0, atol=digits)
        self.assertAlmostEqual(summary(a)["eval_auc"], summary(b)["eval_auc"], 3)

    def test_a_job_learns_the_same(self) -> None:
        """100 steps on heter-trainers of PyTorch have the losses of ringo's own, for built-in parts, a module, and a simulated device."""
        steps = CLICKS + "--np 2 --sync bsp --epochs 1 --train-limit 3200 --eval-limit 1000 --log-every 1 --json - --optimizer sgd --lr 0.05 "
        whole = self.ends(steps + "--heter 1")
        self.near(whole, self.ends(steps + "--heter 2 --set heter.device=torch-cpu"))
        self.near(whole, self.ends(steps + self.own(before="import simulated; simulated.force()", loss="nn.CrossEntropyLoss()", rule="SGD")))

    def test_models(self) -> None:
        for model, sync in (("wide-deep", "bsp"), ("deepfm", "async"), ("dcn-v2", "bsp")):
            with self.subTest(model):
                line = CLICKS.replace("ctr-dnn", model).replace("--set data.table-rows=5000", "") + f"--np 1 --sync {sync} --epochs 1 --train-limit 160 --eval-limit 200 --json - --heter 1 "
                a, b = self.ends(line), self.ends(line + "--set heter.device=torch-cpu")
                self.assertAlmostEqual(summary(a)["eval_loss"], summary(b)["eval_loss"], 4)

    def test_killed_ones_are_started_again(self) -> None:
        line = CLICKS + "--np 2 --epochs 30 --train-limit 160 --eval-limit 200 --heter 2 --set heter.device=torch-cpu --set job.max-restarts=1 --heartbeat-timeout 10s"
        with open(f"{self.folder}/log", "w") as log:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            job = subprocess.Popen(["ringo", *line.split()], cwd=self.folder, env=environment(PATH=path), stdout=log, stderr=log)
        text = lambda: Path(self.folder, "log").read_text()  # noqa: E731
        until = time.monotonic() + 120
        while "epoch  3" not in text() and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(self.heter_trainer(job.pid, 1), signal.SIGKILL)
        self.assertEqual(job.wait(200), 0, text())
        for want in ("heter-trainer 1 is lost: killed by signal 9", "it is started again (1 of 1)", "heter-trainer 1: it has the others' parameters, and takes part from step "):
            self.assertIn(want, text())

    def heter_trainer(self, job: int, index: int) -> int:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                stat, variables = (process / "stat").read_text(), (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if stat.rpartition(")")[2].split()[1] == str(job) and b"RINGO_HETER_INDEX=%d" % index in variables:
                return int(process.name)
        self.fail("no heter-trainer was found")

    def test_checkpoints(self) -> None:
        line = CLICKS + "--np 1 --train-limit 160 --eval-limit 200 --json - " + self.own(export="part.safetensors")
        whole = self.ends(line + "--epochs 4")
        self.ends(line + "--epochs 2 --checkpoint RUN")
        rest = self.ends(line + "--epochs 4 --checkpoint RUN --resume")
        self.assertEqual(summary(whole)["eval_loss"], summary(rest)["eval_loss"])
        part = tensors(f"{self.folder}/part.safetensors")
        self.assertEqual(sorted(part), sorted(f"{x}.{kind}" for x in ("fc1", "fc2", "fc3", "out") for kind in ("bias", "weight")))
        saved = max(Path(self.folder, "RUN").glob("step-*.ringo")).read_bytes()
        for name, values in part.items():  # a checkpoint has plain values
            self.assertIn(values.tobytes(), saved, name)

    def test_modules_that_do_not_fit(self) -> None:
        line = CLICKS + "--np 2 --epochs 1 --train-limit 160 --eval-limit 200 "
        done = self.ends(line + self.own("nn.Linear(273, 3)"), 1)
        self.assertIn("the module's result is [2, 3] float32, the cut of ctr-dnn has [2, 2] float32, for inputs embeddingtable embedding [2, 273] float32", done.stderr)
        self.assertNotIn("rank 1 is lost", done.stderr)
        for more, text in (("--sync async", "send"), ("--checkpoint RUN", "save")):
            done = self.ends(line + self.own("nn.Linear(273, 2)") + more, 1)
            self.assertIn("parameters", done.stderr)
        self.ends(line + self.own("nn.Linear(273, 2)"))  # learns with parameters of its own

    def test_numbers_that_are_not(self) -> None:
        layers = "nn.Linear(273, 2), type('Root', (nn.Module,), dict(forward=lambda self, x: (x - 9).sqrt()))()"
        done = self.ends(CLICKS + "--np 1 --epochs 1 --train-limit 160 " + self.own(layers), 1)
        self.assertIn("in step 1 of epoch 1: the loss is NaN", done.stderr)

    def test_missing_ones_are_refused(self) -> None:
        line = CLICKS + "--np 1 --epochs 1 --heter 1 "
        if not torch.cuda.is_available():
            self.assertIn("finds no GPU", self.ends(line + "--set heter.device=torch-cuda", 1).stderr)
        self.assertIn("own2.py", self.ends(line + "--set heter.device=own2.py", 1).stderr)
        Path(self.folder, "torch.py").write_text("raise ImportError('there is no torch')")
        self.assertIn("there is no torch", self.ends(line + "--set heter.device=torch-cpu", 1).stderr)


if __name__ == "__main__":
    unittest.main()
