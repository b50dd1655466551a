"""Runs PyTorch's own tests of a backend with gloo and with ringo, and reports each that passes with gloo and not with ringo.

Usage: python3 compare.py [--np 2 4] [--out FOLDER] [--staged] [TEST...]; RINGO_LIBRARY says where libringo is, unless a wheel has it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from skips import SKIPS

HERE = Path(__file__).parent


def run(backend: str, ranks: int, tests: list[str], folder: Path) -> dict[str, dict[str, str]]:
    """The outcome of each test by its name. What tests print lies in the folder."""
    env = dict(os.environ, BACKEND=backend, WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
    env["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), env.get("PYTHONPATH", "")])
    name = folder / f"{backend}-{ranks}"
    with open(f"{name}.jsonl", "w+", encoding="utf-8") as out, open(f"{name}.log", "w", encoding="utf-8") as log:
        subprocess.run([sys.executable, str(HERE / "suite.py"), *tests], env=env, stdout=out, stderr=log, check=True)
        out.seek(0)
        records = [json.loads(line) for line in out if line.startswith('{"test"')]
    return {r["test"]: r for r in records}


def worse(gloo: dict[str, dict[str, str]], ringo: dict[str, dict[str, str]]) -> list[str]:
    """The tests that pass with gloo and neither pass with ringo nor are among SKIPS."""
    out = []
    for test, record in gloo.items():
        if record["outcome"] != "passed" or test in SKIPS:
            continue
        ours = ringo.get(test, {"outcome": "missing", "reason": ""})
        if ours["outcome"] != "passed":
            out.append(f"{test} {ours['outcome']}: {ours['reason'].strip()[-500:]}")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--np", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--out", type=Path, default=Path("conformance-results"))
    parser.add_argument("--staged", action="store_true", help="ringo with a simulated device")
    parser.add_argument("tests", nargs="*")
    args = parser.parse_args()
    tests = ["--staged"] * args.staged + args.tests
    args.out.mkdir(parents=True, exist_ok=True)
    faults = []
    for ranks in args.np:
        outcomes = {backend: run(backend, ranks, tests, args.out) for backend in ("gloo", "ringo")}
        for backend, records in outcomes.items():
            print(f"np {ranks}: {backend}", dict(Counter(r["outcome"] for r in records.values())), flush=True)
        faults += [f"np {ranks}: {text}" for text in worse(outcomes["gloo"], outcomes["ringo"])]
        if all(r["outcome"] != "passed" for r in outcomes["gloo"].values()):
            faults.append(f"np {ranks}: none passes with gloo; where there are GPUs, hide them with CUDA_VISIBLE_DEVICES=")
    print("\n".join(faults) or "every test that passes with gloo passes with ringo, but for those of skips.py")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
