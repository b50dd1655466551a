#!/usr/bin/env python3
"""Compares ringo's training step with PyTorch's: alternating runs, medians, a table of ratios.

usage: bench/compare.py [--rounds N] [--models LIST] [--threads N] [--np N] [--precision LIST] [--chroot DIR] [--memory | --scaling] [--json FILE]

A ratio above 1 says that ringo is better. Each round runs both sides once for each model,
in turns, the order changing from round to round; a side's time is the median of its steps,
a ratio the median over rounds of the ratio within a round. Both sides are bound to the same
cores, as many as np x threads. See bench/README.md for how to install the peer.
"""
import argparse, dataclasses, json, math, os, re, shutil, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

OLD_CORES = ("Prescott", "Core2", "Nehalem", "Generic")  # what OpenBLAS falls back to on a processor newer than itself


@dataclasses.dataclass(frozen=True)
class Case:
    name: str  # the peer's
    ringo: str  # ringo's
    batch: int  # per rank
    steps: int  # a round's, about two seconds


CASES = (
    Case("mnist", "mnist", 64, 60),
    Case("resnet20", "cifar-resnet20", 32, 20),
    Case("vgg16", "cifar-vgg16", 32, 6),
    Case("resnet50", "resnet50", 4, 4),
    Case("lstm", "lstm", 20, 5),
    Case("ctr400", "ctr-dnn", 512, 60),
    Case("ctr4096", "ctr-dnn-4096", 512, 8),
    Case("gpt-mini", "gpt-mini", 12, 60),
)


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--models", default="", help="some of " + ",".join(c.name for c in CASES))
    ap.add_argument("--threads", type=int, default=1, help="threads per rank, of both")
    ap.add_argument("--np", type=int, default=1, help="ranks, of both: DDP over gloo against ringo's own")
    ap.add_argument("--memory", action="store_true", help="compare the resident growth over an empty process instead")
    ap.add_argument("--scaling", action="store_true", help="compare the throughput of two ranks with that of one instead, on each side")
    ap.add_argument("--cpus", default="", help="cores to use, such as 1 or 0,1 (default: the first that are allowed)")
    ap.add_argument("--channels-last", action="store_true", help="let PyTorch keep images channels-last")
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    ap.add_argument("--python", default="", help="a python3 that has torch (default: found)")
    ap.add_argument("--chroot", default="", help="a folder with a system that has PyTorch, such as Debian 13: see bench/README.md")
    ap.add_argument("--precision", default="fp32", help="fp32, bf16 (PyTorch: autocast) or fp32,bf16")
    ap.add_argument("--json", default="", help="write all figures to this file")
    o = ap.parse_args()
    known = {c.name: c for c in CASES}
    names = o.models.split(",") if o.models else (["vgg16", "resnet50"] if o.memory else list(known))
    for n in names:
        if n not in known:
            ap.error(f"unknown model {n!r}: know {', '.join(known)}")
    if min(o.rounds, o.np, o.threads) < 1:
        ap.error("--rounds, --np and --threads must be at least 1")
    if o.memory and o.np > 1 or o.memory and o.scaling or o.scaling and o.np > 1:
        ap.error("--memory is of one rank, --scaling of one and two: leave the others out")
    o.cases, o.precision = [known[n] for n in names], o.precision.split(",")
    if set(o.precision) - {"fp32", "bf16"} or o.precision != ["fp32"] and (o.memory or o.scaling):
        ap.error("--precision is fp32, bf16 or both, and fp32 alone with --memory and --scaling")
    return o


def note(text):
    print(text, file=sys.stderr, flush=True)


# --- the two sides -------------------------------------------------------------------------


def output(command, cpus=None, env=None):
    """The standard output of a command that must succeed."""
    pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
    p = subprocess.run(command, capture_output=True, text=True, preexec_fn=pin, env=env)
    if p.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout


def find_python(named):
    tried = [named] if named else [sys.executable, "/usr/bin/python3", "python3"]
    for python in tried:
        try:
            if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
                return python
        except OSError:
            pass
    raise SystemExit(f"no PyTorch: `import torch` fails in {', '.join(tried)}; see bench/README.md for how to install it")


class Torch:
    def __init__(self, o):
        self.channels_last, self.seen, peers = o.channels_last, None, os.path.join(HERE, "peers")
        if o.chroot:
            if not os.path.exists(os.path.join(o.chroot, "proc", "self")):
                raise SystemExit(f"{o.chroot} has no /proc: mount --bind /proc {o.chroot}/proc")
            shutil.copytree(peers, os.path.join(o.chroot, "tmp", "peers"), dirs_exist_ok=True)
            self.command = ["chroot", o.chroot, "/usr/bin/python3", "/tmp/peers/torch_step.py"]
        else:
            self.command = [find_python(o.python), os.path.join(peers, "torch_step.py")]

    def step(self, case, np, threads, cpus, steps=None, precision="fp32"):
        command = self.command + [case.name, "--batch", str(case.batch),
                   "--np", str(np), "--threads", str(threads), "--steps", str(steps or case.steps)]
        command += ["--channels-last"] if self.channels_last else []
        command += ["--autocast"] if precision == "bf16" else []
        env = dict(os.environ, **{k: str(threads) for k in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")})
        r = json.loads(output(command, cpus, env).splitlines()[-1])
        self.check(r)
        if precision == "bf16" and not r["mkldnn_bf16"]:
            raise SystemExit("\nREFUSED: this PyTorch has no bf16 kernels on this processor, so that its autocast says nothing: leave bf16 out of --precision")
        return r

    def check(self, r):
        """Tells once what the peer is, and refuses a peer that is not itself."""
        if self.seen:
            return
        self.seen = {k: r[k] for k in ("version", "build", "blas", "blas_core", "mkldnn", "mkldnn_bf16")}
        note(f"peer: PyTorch {r['version']} ({r['build']})\n      BLAS {r['blas']} {r['blas_core']}\n      oneDNN {'on' if r['mkldnn'] else 'OFF'}, bf16 {'on' if r['mkldnn_bf16'] else 'OFF'}")
        if not r["blas_is_fast"]:
            raise SystemExit(
                f"\nREFUSED: PyTorch computes with {r['blas']}, not with a BLAS that anyone would train with.\n"
                "A comparison with it says nothing. Install one (Debian: apt-get install libopenblas0-pthread),\n"
                "and see `update-alternatives --display libblas.so.3-x86_64-linux-gnu`.")
        if r["blas_core"] in OLD_CORES and "avx2" in self.flags():
            raise SystemExit(
                f"\nREFUSED: OpenBLAS takes this processor for a {r['blas_core']} and runs kernels without AVX, some five times slower.\n"
                "Set OPENBLAS_CORETYPE=SKYLAKEX (with AVX-512) or HASWELL, or install an OpenBLAS that knows the processor.")
        if not r["mkldnn"]:
            raise SystemExit("\nREFUSED: this PyTorch has no oneDNN, so its convolutions are not those that anyone would train with.")


    @staticmethod
    def flags():
        """The processor's features, as Linux names them."""
        with open("/proc/cpuinfo") as f:
            return set(re.findall(r"\w+", next((line for line in f if line.startswith("flags")), "")))


def listed_models(text):
    """The names in `ringo help train models`, whose models' lines begin with all names of one, indented by two."""
    return set(re.findall(r"[\w-]+", " ".join(re.findall(r"^  (\w[\w-]*(?:, [\w-]+)*) \(", text, re.M))))


class Ringo:
    def __init__(self, o, build_dir):
        self.binary = o.ringo
        if not self.binary:
            self.binary = os.path.join(build_dir, "ringo")
            subprocess.run(["go", "build", "-o", self.binary, "./cmd/ringo"], cwd=ROOT, check=True)
        self.models = listed_models(output([self.binary, "help", "train", "models"]))
        self.version = output([self.binary, "--version"]).strip()
        note(f"ringo: {self.version}")

    def command(self, case, np, threads, steps=None, precision="fp32"):
        return [self.binary, "bench", "step", case.ringo, "--batch", str(case.batch), "--np", str(np), "--precision", precision,
                "--threads", str(threads), "--steps", str(steps or case.steps), "--progress", "none", "--json", "-"]

    def step(self, case, np, threads, cpus, steps=None, precision="fp32"):
        return json.loads(output(self.command(case, np, threads, steps, precision), cpus).splitlines()[-1])


# --- what is compared ----------------------------------------------------------------------


def choose_cpus(o, need):
    allowed = sorted(os.sched_getaffinity(0))
    if o.cpus:
        allowed = [int(c) for c in o.cpus.split(",")]
    if len(allowed) < need:
        raise SystemExit(f"{need} cores are needed, {len(allowed)} may be used ({allowed}): figures of crowded cores compare nothing")
    return set(allowed[:need])


def median_ratio(pairs):
    """Of (theirs, ours) by round: the median, lowest and highest of theirs/ours."""
    r = sorted(a / b for a, b in pairs)
    return statistics.median(r), r[0], r[-1]


def alternate(round_number, first, second):
    """Runs both and returns (first(), second()), the second one first in odd rounds."""
    if round_number % 2:
        b = second()
        return first(), b
    a = first()
    return a, second()


def same_model(case, theirs, ours):
    """The same number of parameters and the same optimizer."""
    if theirs["optimizer"] != ours["optimizer"]:
        raise SystemExit(f"REFUSED: {case.name} is trained by {theirs['optimizer']} in PyTorch and by {ours['optimizer']} in ringo")
    if theirs["params"] != ours["params"]:
        raise SystemExit(f"REFUSED: {case.name} has {theirs['params']} parameters in PyTorch and {ours['params']} in ringo: not one model")


def compare_steps(o, torch, ringo):
    cpus = choose_cpus(o, o.np * o.threads)
    runs = [(c, p) for c in o.cases for p in o.precision]
    rounds = {run: [] for run in runs}
    for i in range(o.rounds):
        for c, p in runs:
            a, b = alternate(i, lambda: torch.step(c, o.np, o.threads, cpus, precision=p), lambda: ringo.step(c, o.np, o.threads, cpus, precision=p))
            same_model(c, a, b)
            rounds[c, p].append((a["step_ms"], b["step_ms"]))
            note(f"round {i + 1}  {c.name:<9} {p} {a['step_ms']:>10.2f} {b['step_ms']:>10.2f} ms")
    out = {}
    for p in o.precision:
        out[p] = table(o, {c.name: rounds[c, p] for c in o.cases}, "ms per step", f"{p}, {o.np} rank(s) x {o.threads} thread(s), cores {sorted(cpus)}")
    return out


def compare_memory(o, torch, ringo):
    cpus = choose_cpus(o, o.threads)
    rounds, empty = {c.name: [] for c in o.cases}, empty_mib(ringo.binary)
    note(f"an empty ringo process: {empty:.1f} MiB")
    for i in range(o.rounds):
        for c in o.cases:
            a, b = alternate(i, lambda: torch.step(c, 1, o.threads, cpus, 3)["growth_mib"],
                             lambda: peak_mib(ringo.command(c, 1, o.threads, 3), cpus) - empty)
            rounds[c.name].append((a, b))
            note(f"round {i + 1}  {c.name:<9} {a:>10.1f} {b:>10.1f} MiB")
    return table(o, rounds, "MiB of growth", "peak resident size less that of an empty process")


def compare_scaling(o, torch, ringo):
    """The throughput of two ranks over that of one, of each side."""
    cpus = sorted(choose_cpus(o, 2 * o.threads))
    one, both = set(cpus[: o.threads]), set(cpus)
    out = {}
    for side_name, side in (("pytorch", torch), ("ringo", ringo)):
        for c in o.cases:
            pairs = []
            for i in range(o.rounds):
                a, b = alternate(i, lambda: side.step(c, 2, o.threads, both), lambda: side.step(c, 1, o.threads, one))
                pairs.append((a["samples_per_s"], b["samples_per_s"]))
            ratio, lo, hi = median_ratio(pairs)
            out[f"{c.name} {side_name}"] = {"rounds": pairs, "ratio": ratio}
            print(f"{c.name:<9} {side_name:<8} two ranks are {ratio:.3f} x one  ({lo:.3f} to {hi:.3f})", flush=True)
    return out


def table(o, rounds, unit, setting):
    print(f"\n{unit}, {setting}; medians of {o.rounds} round(s)")
    print(f"{'model':<10} {'batch':>5} {'PyTorch':>10} {'ringo':>10} {'ratio':>7}   lowest to highest")
    out = {}
    for c in o.cases:
        pairs = rounds[c.name]
        ratio, lo, hi = median_ratio(pairs)
        theirs, ours = (statistics.median(p[k] for p in pairs) for k in (0, 1))
        out[c.name] = {"batch": c.batch, "pytorch": theirs, "ringo": ours, "ratio": ratio, "rounds": pairs}
        print(f"{c.name:<10} {c.batch:>5} {theirs:>10.2f} {ours:>10.2f} {ratio:>7.3f}   {lo:.3f} to {hi:.3f}")
    if out:
        mean = math.exp(statistics.mean(math.log(v["ratio"]) for v in out.values()))
        worst = min(out, key=lambda k: out[k]["ratio"])
        print(f"geometric mean of {len(out)} ratio(s): {mean:.3f}; the lowest is {worst}'s, {out[worst]['ratio']:.3f}")
        out["geometric_mean"] = mean
    return out


# --- memory of a process that does not tell ------------------------------------------------


def hwm_mib(pid):
    """VmHWM of a process, None once it has no memory any more."""
    try:
        with open(f"/proc/{pid}/status") as f:
            found = re.search(r"VmHWM:\s+(\d+) kB", f.read())
        return int(found.group(1)) / 1024 if found else None
    except OSError:
        return None


def peak_mib(command, cpus):
    """The largest resident size of a command: VmHWM only grows, so the last look is enough."""
    with tempfile.TemporaryFile("w+") as err:
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        peak = 0.0
        while p.poll() is None:
            if is_program(p.pid, command[0]):
                peak = hwm_mib(p.pid) or peak
            time.sleep(0.002)
        if p.returncode != 0:
            err.seek(0)
            raise SystemExit(f"{' '.join(command)}: exit {p.returncode}\n{err.read()}")
        return peak


def is_program(pid, path):
    """Whether a child runs the program already, and not still a copy of this one."""
    try:
        return os.path.samefile(f"/proc/{pid}/exe", path)
    except OSError:
        return False


def empty_mib(binary):
    """The peak of `ringo --version`, held at its first write by a pipe that is full."""
    r, w = os.pipe()
    os.set_blocking(w, False)
    try:
        while True:
            os.write(w, b" " * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(w, True)
    p = subprocess.Popen([binary, "--version"], stdout=w)
    time.sleep(0.5)
    peak = hwm_mib(p.pid) if is_program(p.pid, binary) else None
    p.kill()
    p.wait()
    os.close(r)
    os.close(w)
    if not peak:
        raise SystemExit("cannot see the memory of an empty process: /proc/PID/status says nothing")
    return peak


def main():
    o = options()
    with tempfile.TemporaryDirectory() as build_dir:
        ringo = Ringo(o, build_dir)
        for c in o.cases:
            if c.ringo not in ringo.models:
                note(f"skipped: ringo has no model {c.ringo}")
        o.cases = [c for c in o.cases if c.ringo in ringo.models]
        if not o.cases:
            raise SystemExit("nothing to compare")
        torch = Torch(o)
        kind = "memory" if o.memory else "scaling" if o.scaling else "step"
        compare = {"memory": compare_memory, "scaling": compare_scaling, "step": compare_steps}[kind]
        result = compare(o, torch, ringo)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"compare": kind, "np": o.np, "threads": o.threads, "peer": torch.seen, "ringo": ringo.version, "result": result}, f, indent=1)


if __name__ == "__main__":
    main()
