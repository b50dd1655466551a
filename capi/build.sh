#!/usr/bin/env bash
# Builds libringo for C, and installs it in a folder: include/ringo.h, lib/libringo.so, lib/libringo.a, and what pkg-config and CMake
# read. It needs Go, gcc or clang, and binutils. Usage: capi/build.sh [--asan | --symbols] PREFIX
#
# --asan builds the shared library alone, whose own reads and writes AddressSanitizer checks, too. --symbols likewise, with the names of
# Go's functions, for valgrind and perf.
set -euo pipefail
asan="" strip="-s -w" static=yes
case ${1:-} in
--asan) asan=-asan static="" && shift ;;
--symbols) strip=-w static="" && shift ;;
esac
prefix=$(mkdir -p "${1:?usage: capi/build.sh [--asan] PREFIX}" && cd "$1" && pwd)
cd "$(dirname "$0")"

version=$(sed -n 's/^#define RINGO_VERSION "\(.*\)"/\1/p' ringo.h)
abi=$(sed -n 's/^#define RINGO_ABI //p' ringo.h)
mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/ringo"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Go's own resolver and users: C's would add threads that the host has not asked for.
export CGO_ENABLED=1 CGO_CFLAGS="${CGO_CFLAGS:--O2 -g}"
build() { go build $asan -tags netgo,osusergo -trimpath "$@" .; }

build -buildmode=c-shared -o "$work/libringo.so" \
  -ldflags "$strip -extldflags '-Wl,-soname,libringo.so.$abi -Wl,--version-script=$PWD/ringo.map'"
install -m 644 "$work/libringo.so" "$prefix/lib/libringo.so.$abi"
ln -sf "libringo.so.$abi" "$prefix/lib/libringo.so"
install -m 644 ringo.h "$prefix/include/ringo.h"

if [ -n "$static" ]; then
  # One object in which only the functions of ringo.h can be seen: two libraries that are written in Go may be in one program. Go's
  # constructor comes first: see border.c.
  build -buildmode=c-archive -ldflags "$strip" -o "$work/parts.a"
  mkdir "$work/parts"
  (cd "$work/parts" && ar x ../parts.a && ld -r -o ../ringo.o go.o 0*.o)
  sed -n 's/^ *\(ringo_[a-z0-9_]*\);/\1/p' ringo.map >"$work/names"
  objcopy --keep-global-symbols="$work/names" "$work/ringo.o"
  rm -f "$prefix/lib/libringo.a"
  ar rcs "$prefix/lib/libringo.a" "$work/ringo.o"
fi

filled() { sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" -e "s|@ABI@|$abi|g" "$1"; }
filled ringo.pc.in >"$prefix/lib/pkgconfig/ringo.pc"
cp cmake/ringo-config.cmake "$prefix/lib/cmake/ringo/"
filled cmake/ringo-config-version.cmake.in >"$prefix/lib/cmake/ringo/ringo-config-version.cmake"
echo "libringo $version is in $prefix"
