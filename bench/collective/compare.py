#!/usr/bin/env python3
"""Compares ringo's allreduce with OpenMPI's, MPICH's and gloo's: interleaved rounds, medians, tables of ratios.

usage: bench/collective/compare.py [--tables LIST] [--np LIST] [--floats LIST] [--rounds N] [--time SECONDS] [--json FILE]

A ratio is the peer's time over ringo's: above 1, ringo is faster. A round runs every side once,
the order rotating from round to round; a side's time is the median of its samples, a ratio the
median over rounds of the ratio within a round. The tables of TCP are measured in a network
namespace of their own, whose congestion control is that of all sides. See bench/collective/README.md
for what is timed and how to install the peers.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FLOATS = [1, 256, 4096, 65536, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 24]
TABLES = ("shm", "tcp", "tcp-default")
SIDES = {"shm": ("openmpi-shm", "mpich-shm", "ringo-arena", "ringo-private", "ringo-run-shm", "ringo-c-shm", "limit"),
         "tcp": ("openmpi-tcp", "mpich-tcp", "gloo-tcp", "ringo-tcp", "ringo-run-tcp")}  # peers first
SIDES["tcp-default"] = SIDES["tcp"]
SYSTEM = "/proc/sys/net/ipv4/tcp_congestion_control"


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    numbers = lambda text: [int(n) for n in text.split(",")]
    ap.add_argument("--tables", default=",".join(TABLES), help="some of %(default)s: shared memory; TCP with reno; TCP with the system's congestion control")
    ap.add_argument("--np", type=numbers, default=[2, 4], help="numbers of ranks (default 2,4)")
    ap.add_argument("--floats", type=numbers, default=FLOATS, help="sizes (default " + ",".join(map(str, FLOATS)) + ")")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--time", type=float, default=0.3, help="seconds to measure each size in each round")
    ap.add_argument("--gap", type=float, default=None, help="compute for so many microseconds before each call, and time it from the last arrival to the last end")
    ap.add_argument("--skew", type=float, default=None, help="and for up to so many more, drawn for each rank and call")
    ap.add_argument("--sides", default="", help="measure only these sides, such as openmpi-shm,ringo-arena")
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    ap.add_argument("--peers", default="", help="the folder of the peers' programs (default: built from this tree)")
    ap.add_argument("--json", default="", help="write all figures to this file")
    ap.add_argument("--inside", default="", help=argparse.SUPPRESS)  # the congestion control of the namespace that this process is in
    o = ap.parse_args()
    o.tables = o.tables.split(",")
    o.apart = o.gap is not None or o.skew is not None
    o.gap, o.skew = o.gap or 0, o.skew or 0
    for t in o.tables:
        if t not in TABLES:
            ap.error(f"unknown table {t!r}: know {', '.join(TABLES)}")
    if min(o.rounds, *o.np) < 1 or min(o.floats) < 0 or o.time <= 0 or min(o.gap, o.skew) < 0:
        ap.error("--rounds, --np and --time must be positive, --floats, --gap and --skew not negative")
    for s in o.sides.split(",") if o.sides else ():
        if not any(s in SIDES[t] for t in o.tables):
            ap.error(f"--sides {s}: want some of {', '.join(dict.fromkeys(s for t in o.tables for s in SIDES[t]))}")
    o.tables = [t for t in o.tables if picked(o, t)]
    return o


def picked(o, table):
    """The sides of a table that --sides names; MPICH, which few have beside OpenMPI, only where it is installed."""
    wanted = o.sides.split(",") if o.sides else [s for s in SIDES[table] if not s.startswith("mpich") or shutil.which("mpicc.mpich")]
    return [s for s in SIDES[table] if s in wanted and not (o.apart and (s == "limit" or s.startswith(("ringo-run", "ringo-c"))))]


def seconds(o):
    """What a peer's program is told of how long to measure, and how far calls are apart."""
    return f"{o.time}:{o.gap:g}:{o.skew:g}" if o.apart else str(o.time)


def note(text):
    print(text, file=sys.stderr, flush=True)


# --- the sides: each returns the median microseconds by number of floats ---------------------


def objects(command, **more):
    """The JSON lines that a command, which must succeed, writes."""
    p = subprocess.run(command, capture_output=True, text=True, **more)
    if p.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {p.returncode}\n{p.stdout}{p.stderr}")
    return [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]


def medians(lines):
    return {r.get("floats", r.get("count")): r["median_us"] for r in lines}


def openmpi(o, np, label, *mca):
    return medians(objects([tool("mpirun", "openmpi"), "--allow-run-as-root", "--oversubscribe", "-np", str(np), "--mca", "pml", "ob1", *mca,
                            os.path.join(o.peers, "mpi_allreduce"), label, seconds(o), *map(str, o.floats)]))


def tool(name, build):
    """Debian names the tools of one MPI among several by its build; elsewhere there is one."""
    return shutil.which(f"{name}.{build}") or name


def mpich(o, np, label, **env):
    """MPICH never yields a core: where ranks have one each they are bound, as by the others' launchers."""
    bind = ["-bind-to", "core"] if np <= len(os.sched_getaffinity(0)) else []
    return medians(objects([tool("mpirun", "mpich"), *bind, "-np", str(np), os.path.join(o.peers, "mpich_allreduce"), label, seconds(o), *map(str, o.floats)],
                           env=dict(os.environ, **env)))


def gloo(o, np):
    program = os.path.join(o.peers, "gloo_allreduce")
    with tempfile.TemporaryDirectory() as store:
        command = lambda rank: [program, str(rank), str(np), store, "127.0.0.1", seconds(o), *map(str, o.floats)]
        others = [subprocess.Popen(command(rank)) for rank in range(1, np)]
        try:
            lines = objects(command(0))
        finally:
            ends = [p.wait() for p in others]
        if any(ends):
            raise SystemExit(f"gloo: ranks 1 to {np - 1} ended with {ends}")
        return medians(lines)


def ringo(o, np, transport, *more):
    if o.apart:
        more += ("--gap", f"{o.gap:g}us", "--skew", f"{o.skew:g}us")
    return medians(objects([o.ringo, "bench", "collective", "--np", str(np), "--transport", transport, "--time", f"{o.time}s",
                            "--floats", ",".join(map(str, o.floats)), "--progress", "none", "--json", "-", *more]))


def program(o, np, transport, name="program"):
    """A program of one's own, which `ringo run` starts."""
    return medians(objects([o.ringo, "run", "--np", str(np), "--transport", transport, "--", os.path.join(o.peers, name), str(o.time), *map(str, o.floats)]))


def sides(o, table, np):
    """What a table compares, by name."""
    all_sides = {
        "openmpi-shm": lambda: openmpi(o, np, "openmpi-shm", "--mca", "btl", "self,vader"),
        "ringo-arena": lambda: ringo(o, np, "shm", "--buffer", "arena"),
        "ringo-private": lambda: ringo(o, np, "shm", "--buffer", "private"),
        "ringo-run-shm": lambda: program(o, np, "shm"),
        "ringo-c-shm": lambda: program(o, np, "shm", "cprogram"),
        "limit": lambda: ringo(o, np, "shm", "--buffer", "arena", "--limit"),
        "openmpi-tcp": lambda: openmpi(o, np, "openmpi-tcp", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"),
        "mpich-shm": lambda: mpich(o, np, "mpich-shm"),
        # MPICH of Debian is ch4:ucx, which takes shared memory on one host unless it is told to take TCP.
        "mpich-tcp": lambda: mpich(o, np, "mpich-tcp", UCX_TLS="tcp,self", UCX_NET_DEVICES="lo"),
        "gloo-tcp": lambda: gloo(o, np),
        "ringo-tcp": lambda: ringo(o, np, "tcp"),
        "ringo-run-tcp": lambda: program(o, np, "tcp"),
    }
    return {name: all_sides[name] for name in picked(o, table)}


# --- rounds and tables ----------------------------------------------------------------------


def measure(o, table, np):
    """By side and number of floats, the medians of all rounds."""
    all_sides = sides(o, table, np)
    names = list(all_sides)
    found = {name: {n: [] for n in o.floats} for name in names}
    for i in range(o.rounds):
        turn = i % len(names)
        for name in names[turn:] + names[:turn]:
            times = all_sides[name]()
            for n in o.floats:
                found[name][n].append(times[n])
            note(f"{table} np {np} round {i + 1}  {name:<14} " + " ".join(f"{times[n]:>11.2f}" for n in o.floats))
    return found


def ratio(theirs, ours):
    """The median, lowest and highest of theirs/ours within a round."""
    r = sorted(a / b for a, b in zip(theirs, ours))
    return statistics.median(r), r[0], r[-1]


def show(o, title, np, found):
    apart = f"; after the last arrival, computing for {o.gap:g} to {o.gap + o.skew:g} us before each call" if o.apart else ""
    print(f"\n{title}, {np} ranks; medians of {o.rounds} round(s), microseconds{apart}")
    row = lambda name, cells: print(f"{name:<28}" + "".join(f"{c:>20}" for c in cells))
    row("floats", [f"{n:,}" for n in o.floats])
    for name, by_size in found.items():
        row(name, [f"{statistics.median(by_size[n]):,.2f}" for n in o.floats])
    out = {"us": found, "ratios": {}}
    for ours in (n for n in found if n.startswith("ringo")):
        for theirs in (n for n in found if not n.startswith("ringo")):
            ratios = {n: ratio(found[theirs][n], found[ours][n]) for n in o.floats}
            out["ratios"][f"{theirs} / {ours}"] = ratios
            row(f"{theirs} / {ours}", ["%.2f (%.2f-%.2f)" % ratios[n] for n in o.floats])
    sys.stdout.flush()
    return out


def run_table(o, table, title):
    return {np: show(o, title, np, measure(o, table, np)) for np in o.np}


def run_namespaced(o, table):
    """Runs this script again for one table in a fresh network namespace."""
    congestion = "reno" if table == "tcp" else open(SYSTEM).read().strip()
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        numbers = lambda l: ",".join(map(str, l))
        command = [*alone, sys.executable, os.path.abspath(__file__), "--tables", table, "--inside", congestion, "--json", out.name,
                   "--ringo", o.ringo, "--peers", o.peers, "--np", numbers(o.np), "--floats", numbers(o.floats),
                   "--rounds", str(o.rounds), "--time", str(o.time), "--sides", ",".join(picked(o, table))]
        command += ["--gap", str(o.gap), "--skew", str(o.skew)] if o.apart else []
        if subprocess.run(command).returncode != 0:
            raise SystemExit(f"the table {table} failed")
        return json.load(out)[table]


def enter_namespace(congestion):
    """Prepares the namespace that this process was started in."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with open(SYSTEM, "w") as f:
        f.write(congestion)
    with open(SYSTEM) as f:
        if f.read().strip() != congestion:
            raise SystemExit(f"the namespace did not take congestion control {congestion}")


def prepare(o, folder):
    """Builds what was not given, and says what is compared."""
    if not o.ringo:
        o.ringo = os.path.join(folder, "ringo")
        subprocess.run(["go", "build", "-o", o.ringo, "./cmd/ringo"], cwd=ROOT, check=True)
    if not o.peers:
        for program, package in (("mpicc", "libopenmpi-dev"), ("mpirun", "openmpi-bin"), ("g++", "g++")):
            if not shutil.which(program):
                raise SystemExit(f"no {program}: install {package} (Debian); see bench/collective/README.md")
        o.peers = folder
        subprocess.run([os.path.join(ROOT, "bench", "peers", "build.sh"), folder], check=True)
    version = lambda *command: subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]
    note(f"ringo: {version(o.ringo, '--version')}\npeers: {version(tool('mpirun', 'openmpi'), '--version')}; gloo of the system's package\n"
         f"cores: {sorted(os.sched_getaffinity(0))}")


def main():
    o = options()
    result = {}
    if o.inside:
        enter_namespace(o.inside)
        result[o.tables[0]] = run_table(o, o.tables[0], f"TCP over loopback, {o.inside}")
    else:
        with tempfile.TemporaryDirectory() as folder:
            prepare(o, folder)
            for table in o.tables:
                result[table] = run_table(o, "shm", "shared memory") if table == "shm" else run_namespaced(o, table)
    if o.json:
        with open(o.json, "w") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
