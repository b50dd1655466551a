"""PyTorch's own tests of a backend, torch.testing._internal.distributed.distributed_test, with the backend and the number of ranks that
BACKEND and WORLD_SIZE name. It writes a line of JSON for each test: name, outcome, reason, seconds.

What those tests skip for every backend but gloo, by its name, is run with ringo, too. With --staged, tensors of the CPU go through the pinned
memory of a simulated device, in small pieces. Usage: BACKEND=ringo WORLD_SIZE=2 python3 suite.py [--staged] [TEST...]
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path
from typing import Any

MODULE = "torch.testing._internal.distributed.distributed_test"


def mend() -> None:
    """What Debian's PyTorch lacks: package expecttest, and, 1.13 on Python 3.11, dataclasses whose defaults can be hashed."""
    if importlib.util.find_spec("expecttest") is None:
        stub: Any = types.ModuleType("expecttest")
        stub.ACCEPT, stub.TestCase = False, unittest.TestCase
        sys.modules["expecttest"] = stub
    if importlib.metadata.version("torch").split(".")[0] != "1":
        return
    plain = dataclasses.dataclass

    def dataclass(cls: Any = None, **options: Any) -> Any:
        def made(c: Any) -> Any:
            if c.__module__.startswith("torch.distributed._shard") and "__hash__" not in vars(c):
                options.setdefault("unsafe_hash", True)
            return plain(c, **options)

        return made if cls is None else made(cls)

    dataclasses.dataclass = dataclass  # type: ignore[assignment]


def load() -> Any:
    """The module with the tests. Its tables of features, which it reads while it is imported, are filled first."""
    from torch.testing._internal.common_distributed import DistTestCases

    if os.environ["BACKEND"] == "ringo":
        import ringo.torch  # noqa: F401

        for feature in ("gpu", "ddp", "subgroup", "plugin"):
            DistTestCases.backend_feature[feature].add("ringo")
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    text = re.sub(r'BACKEND != "gloo"', 'BACKEND not in ("gloo", "ringo")', text)
    text = text.replace('BACKEND == "mpi" or BACKEND == "gloo"', 'BACKEND in ("mpi", "gloo", "ringo")')
    for name in ("require_backend", "require_backend_is_available"):  # of PyTorch 1 and 2
        text = text.replace(f'@{name}({{"gloo"}})', f'@{name}({{"gloo", "ringo"}})')
    module = types.ModuleType(MODULE)
    module.__file__ = spec.origin
    sys.modules[MODULE] = module
    exec(compile(text, spec.origin, "exec"), module.__dict__)
    return module


class Lines(unittest.TextTestResult):
    """Writes a line for each test that has ended."""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.began = time.monotonic()

    def line(self, test: unittest.TestCase, outcome: str, reason: str = "") -> None:
        seconds = round(time.monotonic() - self.began, 2)
        record = {"test": test.id().rpartition(".")[2], "outcome": outcome, "reason": reason, "seconds": seconds}
        print(json.dumps(record), flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.line(test, "passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.line(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.line(test, "skipped", reason)


def main() -> None:
    os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
    os.environ.setdefault("INIT_METHOD", "env://")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    mend()
    module = load()
    import torch

    torch.set_num_threads(1)

    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc,name-defined]
        def setUp(self) -> None:
            super().setUp()
            # Forks: each rank would take seconds to load PyTorch. No backend was begun here.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    staged = "--staged" in sys.argv
    if staged and os.environ["BACKEND"] == "ringo":
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "torch"))
        from simulated import force

        force(chunk=1000)
    chosen = [name for name in sys.argv[1:] if name != "--staged"]
    names = [n for n in unittest.TestLoader().getTestCaseNames(Suite) if not chosen or n in chosen]
    tests = unittest.TestSuite(Suite(n) for n in names)
    unittest.TextTestRunner(stream=open(os.devnull, "w"), resultclass=Lines, verbosity=0).run(tests)


if __name__ == "__main__":
    main()
