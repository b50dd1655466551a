"""The heter-trainer that `ringo train MODEL --heter N --set heter.device=torch-cuda` starts: python3 -m ringo.torch.part.

It makes the module of what ranks say of the stage of a built-in model, with ringo's optimizer of the same name.
"""

from __future__ import annotations

import argparse
import json
import sys

import torch

from .. import version
from .._errors import RingoError
from .._job import placed
from ._part import serve
from ._stage import Stage, optimizer_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m ringo.torch.part", description="`ringo heter` starts this program.")
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--optimizer", type=json.loads, default={})
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--check", action="store_true", help="only check that the device is there")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} finds no GPU", file=sys.stderr)
        return 1
    if given.check:
        print(version())
        return 0
    torch.set_num_threads(given.threads)

    def build(cut):  # type: ignore[no-untyped-def]
        stage = Stage(cut)
        return stage, optimizer_of(cut, dict(stage.named_parameters()), given.optimizer), None

    try:
        serve(build, placed(0, 0, 0, 0, {}), {}, None if given.device == "cuda" else "cpu", None, (lambda line: None) if given.quiet else None)
    except RingoError as fault:
        print(f"ringo: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
