#!/usr/bin/env bash
# Builds the peers' allreduce programs, and those in Go and C that `ringo run` starts beside them, into a folder: bench/peers/build.sh DIR
# Debian: apt-get install openmpi-bin libopenmpi-dev libgloo-dev g++, and mpich libmpich-dev if wanted
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh DIR}
mkdir -p "$out"
out=$(cd "$out" && pwd)
# -O3 -march=native lets the sums that gloo's header leaves to us use all vectors.
if command -v mpicc.openmpi >/dev/null; then openmpi=mpicc.openmpi; else openmpi=mpicc; fi # Debian's names, where there are several
"$openmpi" -O2 "$here/mpi_allreduce.c" -o "$out/mpi_allreduce"
if command -v mpicc.mpich >/dev/null; then mpicc.mpich -O2 "$here/mpi_allreduce.c" -o "$out/mpich_allreduce"; fi
g++ -O3 -march=native -std=c++17 "$here/gloo_allreduce.cc" -o "$out/gloo_allreduce" -lgloo -lpthread
(cd "$here/../.." && CGO_ENABLED=0 go build -o "$out/program" ./bench/collective/program)
"$here/../../capi/build.sh" "$out/libringo"
cc -O2 "$here/../collective/cprogram/main.c" -o "$out/cprogram" -I"$out/libringo/include" -L"$out/libringo/lib" -Wl,-rpath,"$out/libringo/lib" -lringo
