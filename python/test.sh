#!/usr/bin/env bash
# Builds the wheel of package ringo, installs it in a fresh environment, and tests it there: NumPy always, PyTorch where it is installed.
# Usage: python/test.sh [PYTHON]: the interpreter, which has NumPy
set -euo pipefail
cd "$(dirname "$0")"
python=${1:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work

(cd .. && CGO_ENABLED=0 go build -ldflags=-w -o "$work/ringo" ./cmd/ringo) &
wheel=$("$python" build_wheel.py "$work/dist")
wait $!
"$python" -m venv --system-site-packages "$work/venv" # for NumPy and PyTorch as the system has them
"$work/venv/bin/pip" install -q --no-index --no-deps "$wheel"
unset RINGO_LIBRARY PYTHONPATH
export PATH=$work/venv/bin:$work:$PATH
cd tests # not where the sources are: the installed package is meant
python3 -c 'import ringo; print("ringo", ringo.version(), "is in", ringo.__file__)'

python3 -m unittest discover -q
if python3 -c 'import torch' 2>/dev/null; then
  python3 -m unittest discover -q -s torch
  ringo run --np 2 -- python3 ../../examples/python/mnist.py --synthetic --epochs 1 | grep 'test accuracy'
  ringo run --np 2 --servers 2 --sync bsp -- python3 ../../examples/python/dlrm.py --steps 200 2>/dev/null | grep 'accuracy 0.[89]'
else
  echo "no PyTorch: its backend is not tested"
fi
