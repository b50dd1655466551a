#!/usr/bin/env bash
# Builds the peers' allreduce programs into a folder: bench/peers/build.sh DIR
# Debian: apt-get install openmpi-bin libopenmpi-dev libgloo-dev g++
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh DIR}
mkdir -p "$out"
# -O3 -march=native lets the sums that gloo's header leaves to us use all vectors.
mpicc -O2 "$here/mpi_allreduce.c" -o "$out/mpi_allreduce"
g++ -O3 -march=native -std=c++17 "$here/gloo_allreduce.cc" -o "$out/gloo_allreduce" -lgloo -lpthread
