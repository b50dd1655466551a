#!/usr/bin/env bash
# Builds libringo and tests it as programs in C use it: every operation, faults, forks, signals, the symbols that it exports, AddressSanitizer,
# pkg-config, CMake where it is installed, the examples, with MPI where mpicc is. Usage: capi/test.sh [--asan | --valgrind] [--starts N]
#
# --asan has AddressSanitizer check the library's own reads and writes, too, which compiles all of Go anew. --valgrind runs the programs under
# valgrind's memcheck, and nothing else. --starts is how often two ranks start and stop.
set -euo pipefail
cd "$(dirname "$0")/.."
asan="" starts=10 valgrind=""
while [ $# -gt 0 ]; do
  case $1 in
  --asan) asan=--asan ;;
  --valgrind) valgrind=yes asan=--symbols ;; # by their names Go's functions are told from C's
  --starts) shift && starts=$1 ;;
  *) echo "usage: capi/test.sh [--asan | --valgrind] [--starts N]" && exit 2 ;;
  esac
  shift
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work # for what failed jobs leave behind

CGO_ENABLED=0 go build -ldflags=-w -o "$work/ringo" ./cmd/ringo &
capi/build.sh $asan "$work/prefix"
wait $!
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig LD_LIBRARY_PATH=$work/prefix/lib PATH=$work:$PATH
if command -v pkg-config >/dev/null; then
  read -ra flags <<<"$(pkg-config --cflags --libs ringo)"
else
  flags=("-I$work/prefix/include" "-L$work/prefix/lib" -lringo)
fi
cc=${CC:-gcc}
warn=(-Wall -Wextra -Werror -O1 -g -D_GNU_SOURCE)

say() { printf '== %s\n' "$*"; }

if [ -n "$valgrind" ]; then
  say "programs under valgrind" # which has no AVX-512: the library takes AVX2; and which gives signals to any thread: not host
  for program in operations faults tables; do
    "$cc" -std=c11 "${warn[@]}" capi/testdata/$program.c -o "$work/$program" "${flags[@]}" -pthread
  done
  check=(valgrind --quiet --error-exitcode=99 --suppressions=capi/valgrind.supp --leak-check=full --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite)
  for transport in shm tcp; do
    ringo run --np 2 --join-timeout 2m -- "${check[@]}" "$work/operations" $transport
  done
  "${check[@]}" "$work/operations"
  ringo run --np 2 --join-timeout 2m --servers 2 --sync bsp -- "${check[@]}" "$work/tables"
  for fault in gives-up differs leaves; do
    if ringo run --np 2 --transport tcp --join-timeout 2m -- "${check[@]}" "$work/faults" $fault >"$work/log" 2>&1; then
      echo "a job that has failed succeeds" && exit 1
    fi
    if grep -q '==[0-9]*== ' "$work/log" || ! grep -q 'rank [0-9] passed' "$work/log"; then cat "$work/log" && exit 1; fi
  done
  exit 0
fi

say "ringo.h is C99 and C++, and has what the library exports"
echo '#include <ringo.h>' >"$work/header.c"
"$cc" -std=c99 -pedantic "${warn[@]}" -I"$work/prefix/include" -c "$work/header.c" -o "$work/header.o"
if command -v g++ >/dev/null; then
  g++ -pedantic "${warn[@]}" -I"$work/prefix/include" -x c++ -c "$work/header.c" -o "$work/header.o"
fi
sed -n 's/^ *\(ringo_[a-z0-9_]*\);/\1/p' capi/ringo.map | sort >"$work/wanted"
nm -D --defined-only "$work/prefix/lib/libringo.so" | awk '$2 == "T" {sub(/@@.*/, "", $3); print $3}' | sort >"$work/exported"
diff "$work/wanted" "$work/exported"
if nm -D --defined-only "$work/prefix/lib/libringo.so" | grep -v ' RINGO_1\(_[123]\)\?$\|@@RINGO_1\(_[123]\)\?$'; then
  echo "these are exported, too" && exit 1
fi

say "programs with the shared library and AddressSanitizer"
for program in operations faults host; do
  "$cc" -std=c11 "${warn[@]}" -fsanitize=address,undefined -fno-sanitize-recover=undefined capi/testdata/$program.c -o "$work/$program" "${flags[@]}" -pthread
done
# Go's heap holds pointers that a search for leaks does not see. The host faults on purpose.
export ASAN_OPTIONS=detect_leaks=0:allow_user_segv_handler=1
for np in 2 4; do
  for transport in shm tcp; do
    ringo run --np $np -- "$work/operations" $transport
  done
done
ringo run --np 3 --collective-algorithm ring -- "$work/operations" tcp ring
ringo run --np 3 -- "$work/operations" shm naive naive
"$work/operations"

say "tables on servers"
"$cc" -std=c11 "${warn[@]}" -fsanitize=address,undefined -fno-sanitize-recover=undefined capi/testdata/tables.c -o "$work/tables" "${flags[@]}" -pthread
ringo run --np 2 --servers 2 --sync bsp -- "$work/tables"

say "faults"
for np in 2 4; do
  for fault in dies gives-up differs silent leaves; do
    want=$np transport=()
    [ $fault = dies ] && want=$((np - 1))
    [ $fault = leaves ] && transport=(--transport tcp) # its memory is C's, which AddressSanitizer watches
    if ringo run --np $np "${transport[@]}" -- "$work/faults" $fault >"$work/log" 2>&1; then
      echo "a job that has failed succeeds" && exit 1
    fi
    passed=$(grep -cE '^(\[rank [0-9]\] )?rank [0-9] passed$' "$work/log" || true)
    [ "$passed" = $want ] || { cat "$work/log" && echo "$fault of $np ranks: $passed passed, want $want" && exit 1; }
  done
  ringo run --np $np -- "$work/faults" late
done

say "forks, signals, starts and stops"
"$work/host" 3
"$cc" -std=c11 "${warn[@]}" capi/testdata/host.c -o "$work/host" "${flags[@]}" -pthread
[ -n "$asan" ] || "$work/host" "$starts"

if [ -z "$asan" ]; then
  say "the static library"
  "$cc" -std=c11 "${warn[@]}" capi/testdata/operations.c -I"$work/prefix/include" -o "$work/static" "$work/prefix/lib/libringo.a" -pthread
  env -u LD_LIBRARY_PATH "$work/ringo" run --np 2 -- "$work/static"
  "$cc" -std=c11 "${warn[@]}" capi/testdata/host.c -I"$work/prefix/include" -o "$work/static" "$work/prefix/lib/libringo.a" -pthread
  env -u LD_LIBRARY_PATH "$work/static" 3
fi

if [ -z "$asan" ]; then
  say "a second library in Go"
  mkdir "$work/second"
  printf '%s\n' 'package main' '' 'import "C"' '' '//export second_sum' 'func second_sum(n C.int) C.int {' \
    '	c := make(chan C.int)' '	go func() { c <- n + 1 }()' '	return <-c' '}' '' 'func main() {}' >"$work/second/second.go"
  (cd "$work/second" && CGO_ENABLED=1 GO111MODULE=off go build -buildmode=c-shared -o libsecond.so second.go)
  "$cc" -std=c11 "${warn[@]}" capi/testdata/guests.c -o "$work/guests" "${flags[@]}" -L"$work/second" -lsecond
  LD_LIBRARY_PATH=$work/second:$LD_LIBRARY_PATH "$work/guests"
fi

say "examples"
sed -n '/^```c$/,/^```$/{/^```/!p}' docs/c.md >"$work/average.c"
"$cc" "${warn[@]}" "$work/average.c" -o "$work/average" "${flags[@]}"
ringo run --np 2 -- "$work/average" | grep '^2 ranks, mean 0.5 1$'
"$work/average" | grep '^1 ranks, mean 0 1$'
"$cc" "${warn[@]}" examples/c/mean.c -o "$work/mean" "${flags[@]}"
ringo run --np 2 -- "$work/mean" | grep '^2 ranks, the greatest mean is 99.5$'
if command -v mpicc >/dev/null; then
  mpicc "${warn[@]}" examples/c/mpi.c -o "$work/mpi" "${flags[@]}"
  OMPI_MCA_btl_vader_single_copy_mechanism=none timeout 120 mpirun --allow-run-as-root --oversubscribe -np 2 "$work/mpi" |
    grep 'ranks over shm: 0 of .* sums differ'
else
  echo "no mpicc: the example with MPI is left out"
fi
if command -v cmake >/dev/null; then
  cmake -S capi/testdata/cmake -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
  cmake --build "$work/cmake" >/dev/null
  for program in mean mean_static; do
    ringo run --np 2 -- "$work/cmake/$program" | grep '^2 ranks, the greatest mean is 99.5$'
  done
else
  echo "no cmake: left out"
fi
