#!/usr/bin/env bash
# Times our matrix products against OpenBLAS's (libopenblas-dev), in turns on
# one core. Arguments are passed on: run.sh -only square -rounds 21
set -euo pipefail
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
gcc -O2 openblas/openblas.c -lopenblas -o "$bin/openblas"
go build -o "$bin/gemm" .
taskset -c "${CORE:-1}" "$bin/gemm" -openblas "$bin/openblas" "$@"
