#!/usr/bin/env python3
"""What heter-trainers are worth: collective training, servers with CPU trainers, servers with fat trainers, and heter-trainers, side by side.

usage: bench/heter/experiment.py [--models ctr-dnn,ctr-dnn-4096,dlrm] [--rounds 3] [--ringo FILE] [--json FILE]

Roles are processes in cgroups with a quota of processor time (version 1 or 2; needs root), which stands for machines:

more   CPU trainers and servers share --cheap of a core in both, and the heter-trainer has --dear of one that CPU trainers cannot have
same   all of a job share --cheap + --dear of a core, whatever it consists of

Figures are medians over alternating rounds, of the epochs after the first. The bound is what a job could do were nothing ever waited for:
the least, over its groups, of the quota divided by the processor time that the group spent for a sample, and over its trainers and
heter-trainers, whose layers one thread computes, of one core divided by what the process spent.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "ps"))
from processes import descendants

SAMPLES = {"ctr-dnn": 32768, "ctr-dnn-4096": 3072, "dlrm": 1024}  # of an epoch
PS = ["--sync", "bsp", "--servers", "1"]
# By name: flags, and which group each role is in.
ARCHITECTURES = {
    "collective": ([], {"train": "dear"}),
    "servers, CPU trainers": (PS, {"train": "cheap", "server": "cheap"}),
    "servers, fat trainers": (PS, {"train": "dear", "server": "cheap"}),
    "heter-trainers": (PS + ["--heter", "1"], {"train": "cheap", "server": "cheap", "heter": "dear"}),
}


class Group:
    """A cgroup with a quota, in cores."""

    def __init__(self, name, cores, period=20_000):
        self.old = os.path.isdir("/sys/fs/cgroup/cpu")
        roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"] if self.old else ["/sys/fs/cgroup"]
        self.paths, self.cores = [os.path.join(r, name) for r in roots], cores
        for path in self.paths:
            os.makedirs(path, exist_ok=True)
        # A period in us is short, so that a role that waits for another's next slice loses less.
        if self.old:
            self.write(0, "cpu.cfs_period_us", period)
            self.write(0, "cpu.cfs_quota_us", int(period * cores))
        else:
            self.write(0, "cpu.max", f"{int(period * cores)} {period}")

    def write(self, path, key, value):
        with open(os.path.join(self.paths[path], key), "w") as f:
            f.write(str(value))

    def add(self, pid):
        for i in range(len(self.paths)):
            self.write(i, "cgroup.procs", pid)

    def seconds(self):
        """Processor time so far."""
        if self.old:
            with open(os.path.join(self.paths[1], "cpuacct.usage")) as f:
                return int(f.read()) / 1e9
        with open(os.path.join(self.paths[0], "cpu.stat")) as f:
            return int(dict(line.split() for line in f)["usage_usec"]) / 1e6

    def close(self):
        for path in self.paths:
            for _ in range(100):
                try:
                    os.rmdir(path)
                    break
                except OSError:
                    time.sleep(0.05)  # its processes are ending


def bound(quotas, spent, samples):
    """Samples per second of who never waits; quotas in cores and processor time in seconds, by group or role."""
    return min(quotas[g] * samples / s for g, s in spent.items() if s > 0)


def used(pid):
    """Processor time of a process so far, in seconds; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def place(launcher, command, groups):
    """Puts each process of a job in a group of its role, of which there is one for each process, and returns their roles by pid. command is how
    the launcher was started: its children have that until they are other programs."""
    left, placed, deadline = {role: list(of) for role, of in groups.items()}, {}, time.monotonic() + 20
    while any(left.values()):
        if launcher.poll() is not None or time.monotonic() > deadline:
            said = launcher.stderr.read() if launcher.poll() is not None and launcher.stderr else ""
            raise SystemExit(f"processes of a job did not come: {({role: len(of) for role, of in left.items() if of})} are missing; {said}")
        for pid, args in descendants(launcher.pid):
            if args[:-1] == command or pid in placed or len(args) < 2 or not left.get(args[1]):
                continue
            try:
                left[args[1]][0].add(pid)
            except OSError:
                continue
            left[args[1]].pop(0)
            placed[pid] = args[1]
        time.sleep(0.005)
    return placed


def read(path, event="epoch"):
    """The epochs that a job has told of, or its steps."""
    try:
        with open(path) as f:
            events = [json.loads(line) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []
    return [e for e in events if e["event"] == event]


def run(o, model, name, same):
    """One job: its samples per second, its bound, and what rank 0 waited for."""
    flags, roles = ARCHITECTURES[name]
    groups = {"cheap": Group("ringo-heter-cheap", o.cheap), "dear": Group("ringo-heter-dear", o.dear)}
    if same:
        roles = {r: "dear" for r in roles}
        groups["dear"].close()
        groups["dear"] = Group("ringo-heter-all", o.cheap + o.dear)
    samples = o.samples or SAMPLES[model]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "json")
        command = [o.ringo, "train", model, "--data", "synthetic", "--train-limit", str(samples), "--eval-limit", "512", "--epochs", str(o.epochs),
                   "--batch", str(o.batch), "--threads", "1", "--set", "job.bind=none", "--progress", "none", "--np", "1", "--json", out, *flags]
        if "--heter" in flags:
            command += ["--set", f"heter.micro-batches={o.micros}"]
        launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            if "--servers" not in flags:  # one rank needs no launcher: the job is this process
                groups[roles["train"]].add(launcher.pid)
                placed = {launcher.pid: "train"}
            else:
                placed = place(launcher, command, {role: [groups[group]] for role, group in roles.items()})
            marks, deadline = [], time.monotonic() + o.deadline
            while launcher.poll() is None:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{model}, {name}: not done after {o.deadline} s")
                if len(read(out)) > len(marks):
                    threads = {role: used(pid) for pid, role in placed.items() if role != "server"}
                    marks.append({g: groups[g].seconds() for g in set(roles.values())} | threads)
                time.sleep(0.01)
            errors = launcher.communicate()[1]
            if launcher.returncode:
                raise SystemExit(f"{model}, {name}: {errors}")
            epochs = read(out)
        finally:
            launcher.kill()
            launcher.wait()
            for g in groups.values():
                g.close()
    rate = statistics.median(e["samples_per_s"] for e in epochs[1:])
    spent = {g: marks[-1][g] - marks[0][g] for g in marks[0]}
    evaluated = 512 / 3  # an evaluation has no backward
    best = bound({g: groups[g].cores if g in groups else 1 for g in spent}, spent, (samples + evaluated) * (len(marks) - 1)) if len(marks) > 1 else float("nan")
    return {"model": model, "architecture": name, "same": same, "samples_per_s": rate, "bound": best, "auc": epochs[-1].get("eval_auc"), "stages": epochs[-1].get("stages")}


def waits(stages):
    """Where rank 0's time went, in words."""
    if not stages:
        return ""
    parts = [(f"{stage} {what[:-2]}", seconds) for stage, times in stages.items() for what, seconds in times.items()
             if stage != "send" or what == "blocked_s"]
    total = sum(s for _, s in parts) or 1
    return ", ".join(f"{what} {100 * s / total:.0f} %" for what, s in sorted(parts, key=lambda p: -p[1])[:3] if s > 0)


def table(runs):
    """Rows of Markdown, a line for each model and architecture."""
    base = {}
    for key, of in runs.items():
        if key[1] == "servers, CPU trainers":
            base[key[0], key[2]] = statistics.median(r["samples_per_s"] for r in of)
    lines = []
    for (model, name, same), of in runs.items():
        rate, best = (statistics.median(r[k] for r in of) for k in ("samples_per_s", "bound"))
        ratio = rate / base[model, same] if (model, same) in base else float("nan")
        lines.append(f"| {'same' if same else 'more'} | {model} | {name} | {rate:,.0f} | {ratio:.2f} x | {rate / best:.2f} | {waits(of[-1]['stages'])} |")
    return lines


def options():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--models", default=",".join(SAMPLES))
    ap.add_argument("--tables", default="more,same")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--samples", type=int, default=0, help="of an epoch; 0: as is usual for the model")
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--micros", type=int, default=4)
    ap.add_argument("--cheap", type=float, default=0.5, help="cores of CPU trainers and servers together")
    ap.add_argument("--dear", type=float, default=1.0, help="cores of a heter-trainer, or of a fat trainer")
    ap.add_argument("--deadline", type=float, default=300, help="seconds that a run may take")
    ap.add_argument("--ringo", required=True, help="the binary")
    ap.add_argument("--json", default="", help="a file for every figure")
    return ap.parse_args()


def main():
    o = options()
    runs = {}
    for _ in range(o.rounds):
        for model in o.models.split(","):
            for which in o.tables.split(","):
                for name in ARCHITECTURES:
                    if which == "same" and name == "servers, fat trainers":
                        continue  # with one group there is no other trainer
                    r = run(o, model, name, which == "same")
                    runs.setdefault((model, name, which == "same"), []).append(r)
                    print(json.dumps(r), file=sys.stderr, flush=True)
    print("| cores | model | architecture | samples/s | against CPU trainers | of its bound | where rank 0 was, most |\n|---|---|---|---:|---:|---:|---|")
    print("\n".join(table(runs)))
    if o.json:
        with open(o.json, "w") as f:
            json.dump([r for of in runs.values() for r in of], f, indent=1)


if __name__ == "__main__":
    main()
