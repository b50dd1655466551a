#!/usr/bin/env python3
"""How well `ringo plan --heter` knows samples per second beforehand: costs of a model's stages are measured in three small jobs, and then
jobs of other mixes run, each process in a cgroup with a quota of processor time of its own.

usage: bench/heter/mixes.py --ringo FILE --model ctr-dnn --calibrate COSTS
       bench/heter/mixes.py --ringo FILE --model ctr-dnn --profile COSTS [--mixes '2x0.25/1x0.25/1x0.5 1x0.3/1x0.3/1x0.6,1x0.3']

A mix is TRAINERS/SERVERS/HETER-TRAINERS, each COUNTxPROCESSORS, more after commas. It needs Linux, root and python3.

Machines that others use, too, change their speed from minute to minute. So before each job of a mix one of the mix that costs were measured in
runs, and what the mix reached is divided by how fast the machine was then: what that job's processes took of processors when costs were measured,
over what they took now.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

from experiment import Group, place, read

MIXES = """1x0.5/1x0.5/1x0.9 1x0.25/1x0.25/1x0.9 1x0.25/1x0.25/1x0.5 2x0.25/1x0.25/1x0.5 2x0.2/1x0.3/1x0.9 1x0.2/1x0.2/2x0.5
1x0.3/1x0.3/1x0.6,1x0.3 3x0.15/1x0.3/1x0.8 3x0.2/1x0.2/2x0.3 2x0.3/2x0.2/1x0.5 1x0.1/1x0.5/1x0.9 2x0.4/1x0.1/1x0.5 4x0.1/1x0.2/1x0.8 2x0.2/2x0.2/2x0.3"""
ROLES = ("train", "server", "heter")
EVALUATED = 64  # samples after each epoch
PERIOD = 100_000  # us: what containers have


def parse(mix):
    """Processors of each process, by role."""
    out = {}
    for role, text in zip(ROLES, mix.split("/"), strict=True):
        cores = []
        for part in text.split(","):
            count, _, each = part.partition("x")
            cores += [float(each)] * int(count)
        out[role] = cores
    return out


def run(o, mix, batch, split=True):
    """One job: samples per second, and by role the processor time of a step of one trainer."""
    cores = parse(mix)
    if not split:
        cores["heter"] = []
    groups = {r: [Group(f"ringo-mix-{r}-{i}", c, PERIOD) for i, c in enumerate(of)] for r, of in cores.items()}
    k, steps = len(cores["train"]), o.steps
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "json")
        command = [o.ringo, "train", o.model, "--data", "synthetic", "--train-limit", str(k * steps * batch), "--eval-limit", str(EVALUATED),
                   "--epochs", str(o.epochs), "--batch", str(batch), "--threads", "1", "--set", "job.bind=none", "--progress", "none", "--sync", "bsp",
                   "--np", str(k), "--servers", str(len(cores["server"])), "--json", out]
        if split:
            command += ["--heter", str(len(cores["heter"]))]
        launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            place(launcher, command, groups)
            marks, deadline = [], time.monotonic() + o.deadline
            while launcher.poll() is None:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{mix}: not done after {o.deadline} s")
                if len(read(out)) > len(marks):
                    marks.append({r: sum(g.seconds() for g in of) for r, of in groups.items()})
                time.sleep(0.005)
            errors = launcher.communicate()[1]
            if launcher.returncode:
                raise SystemExit(f"{mix}: {errors}")
            epochs = read(out)
        finally:
            launcher.kill()
            launcher.wait()
            for of in groups.values():
                for g in of:
                    g.close()
    # An evaluation has no backward; its samples are few.
    share = k * steps * batch / (k * steps * batch + EVALUATED / 3)
    n = len(marks) - 1
    spent = {r: share * (marks[-1][r] - marks[0][r]) / (n * steps * k) for r in ROLES}
    stages = {}
    for e in epochs[1:]:
        for stage, times in (e.get("stages") or {}).items():
            stages[stage] = stages.get(stage, 0) + times["busy_s"] / (steps * (len(epochs) - 1))
    return {"rate": statistics.median(e["samples_per_s"] for e in epochs[1:]), "spent": spent, "stages": stages}


def line(small, large, few, many):
    """Cost of a step and of a sample by two batches."""
    each = max(0.0, (large - small) / (many - few))
    return {"step": max(0.0, large - each * many), "sample": each}


def median(runs, value):
    return statistics.median(value(r) for r in runs)


def cut(o):
    """What crosses where the model is split, as costs have it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "costs")
        subprocess.run([o.ringo, "plan", o.model, "--heter", "1", "--measure", "--threads", "1", "--batch", "16", "--save", path], capture_output=True, check=True)
        with open(path) as f:
            of = json.load(f)["heter"]
    return {key: of[key] for key in ("micro_batches", "there_bytes", "back_bytes", "part_bytes")}


def agree(o, pairs, of):
    """Processor time of one of two heter-trainers in a step to sum its gradients with the other's, of jobs with two."""
    all_of = median(pairs, lambda r: r["spent"]["heter"]) - o.batch * of["part_s"]["sample"]
    return max(0, all_of / 2 - of["part_s"]["step"])


def costs(o, split, whole, batches):
    """The costs that ringo plan takes, of runs by batch; waits are 0."""
    few, many = batches

    def both(runs, value):
        return line(median(runs[few], value), median(runs[many], value), few, many)

    pool = both(split, lambda r: r["stages"]["pool"] + r["stages"]["send"])
    back = both(split, lambda r: r["stages"]["back"])
    rest = both(split, lambda r: max(0, r["spent"]["train"] - sum(r["stages"].values())))
    rows = {k: v * (1 - o.ahead) for k, v in rest.items()}
    reads = {k: v * o.ahead for k, v in rest.items()}
    all_of = both(whole, lambda r: r["spent"]["train"])
    side = {"bytes": {"step": 0, "sample": 0}, "wait_s": 0}
    return {
        "model": o.model, "batch": many, "read_s": reads, "pool_s": pool, "back_s": back,
        "part_s": both(split, lambda r: r["spent"]["heter"]), "pass_s": {k: max(0, all_of[k] - rest[k]) for k in rest},
        "split": side | {"serve_s": both(split, lambda r: r["spent"]["server"]), "rows_s": rows},
        "whole": side | {"serve_s": both(whole, lambda r: r["spent"]["server"]), "rows_s": rows},
    } | cut(o)


def save(path, of):
    with open(path, "w") as f:
        json.dump({"format": "ringo-profile", "version": 6, "heter": of}, f, indent=1)


def predict(o, path, mix, batch, *more):
    """What ringo plan says of a mix."""
    t, s, h = mix.split("/")
    out = subprocess.run([o.ringo, "plan", o.model, "--cost-profile", path, "--np", t, "--servers", s, "--heter", h, "--batch", str(batch), *more, "--json", "-"],
                         capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"ringo plan: {out.stderr}")
    return json.loads(out.stdout)


def speed(profile, now, batch):
    """How fast the machine is now, of what it was when costs were measured, by the processor time of a job of that mix."""
    of, then = profile["heter"], 0.0
    for cost in (of["read_s"], of["pool_s"], of["back_s"], of["part_s"], of["split"]["serve_s"], of["split"]["rows_s"]):
        then += cost["step"] + batch * cost["sample"]
    return then / sum(now["spent"].values())


def calibrate(o):
    mix, batches = o.calibration, (o.batch // 4, o.batch)
    split = {b: [] for b in batches}
    whole = {b: [] for b in batches}
    for _ in range(o.rounds):
        for b in batches:
            split[b].append(run(o, mix, b))
            whole[b].append(run(o, mix, b, split=False))
            print(json.dumps({"batch": b, "split": split[b][-1], "whole": whole[b][-1]}), file=sys.stderr, flush=True)
    of = costs(o, split, whole, batches)
    of["agree_s"] = agree(o, [run(o, o.pair, o.batch) for _ in range(o.rounds)], of)
    save(o.calibrate, of)
    p = predict(o, o.calibrate, mix, o.batch)
    of["split"]["wait_s"] = max(0, o.batch / median(split[o.batch], lambda r: r["rate"]) - p["step_ms"] / 1e3)
    save(o.calibrate, of)
    print(json.dumps(of, indent=1))


def compare(o):
    far, speeds = [], []
    with open(o.profile) as f:
        profile = json.load(f)

    def reached(mix):
        speeds.append(speed(profile, run(o, o.calibration, o.batch), o.batch))
        return run(o, mix, o.batch)["rate"] / speeds[-1]

    print("| mix | measured | predicted | error | bound by |\n|---|---:|---:|---:|---|")
    for mix in o.mixes.split():
        rate = statistics.median(reached(mix) for _ in range(o.rounds))
        p = predict(o, o.profile, mix, o.batch)
        far.append(p["samples_per_s"] / rate - 1)
        print(f"| {mix} | {rate:,.0f} | {p['samples_per_s']:,.0f} | {100 * far[-1]:+.0f} % | {p['bound_by']} |", flush=True)
    mean = statistics.mean(abs(e) for e in far)
    print(f"{len(far)} mixes of {o.model}: mean error {100 * mean:.0f} %, worst {100 * max(abs(e) for e in far):.0f} %; "
          f"the machine's speed {min(speeds):.2f} to {max(speeds):.2f} of what it was; load {os.getloadavg()[1]:.1f} of 5 minutes")


def options():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ringo", required=True, help="the binary")
    ap.add_argument("--model", default="ctr-dnn")
    ap.add_argument("--calibrate", default="", help="write costs to this file, which is a profile of ringo plan")
    ap.add_argument("--calibration", default="1x0.5/1x0.5/1x0.9", help="the mix that costs are measured in")
    ap.add_argument("--pair", default="1x0.5/1x0.5/2x0.45", help="a mix with two heter-trainers, for what their agreeing costs")
    ap.add_argument("--profile", default="", help="costs to predict by")
    ap.add_argument("--mixes", default=MIXES)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--steps", type=int, default=24, help="of a trainer in an epoch")
    ap.add_argument("--epochs", type=int, default=4, help="the first of which does not count")
    ap.add_argument("--rounds", type=int, default=1)
    ap.add_argument("--ahead", type=float, default=0.5, help="share of what a trainer does besides its stages that it does while it waits")
    ap.add_argument("--deadline", type=float, default=170, help="seconds that a job may take")
    return ap.parse_args()


def main():
    o = options()
    if bool(o.calibrate) == bool(o.profile):
        raise SystemExit("want one of --calibrate FILE and --profile FILE")
    calibrate(o) if o.calibrate else compare(o)


if __name__ == "__main__":
    main()
