"""The heterogeneous parameter servers' text: its four architectures, each process with a quota of processor time and a link of its own,
and the quotas and links with which heter-trainers are faster than trainers on their machines, by measurement and by `ringo plan`."""
import itertools, json, math, os, statistics, subprocess, sys, tempfile, time, types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "heter"), os.path.join(HERE, "..", "dlgs")]
import links, mixes, netns, papers, svg
from experiment import Group, read

TRAINERS, SERVERS, BATCH, ROUNDS = 4, 2, 512, 3
HETERS = {"ctr-dnn": 1, "ctr-dnn-4096": 4}  # the text's: the simple model and the complex one
# Processors of a CPU trainer; of a large trainer, a rank or a heter-trainer; of a server.
SMALL, LARGE, SERVER = 0.05, 0.3, 0.1
RATE = 200e6  # bits a second, of each link and direction
CLAIM = 1.65  # times as fast as CPU trainers
RANKS, CPU, FAT, HETER = "collective", "servers, CPU trainers", "servers, large trainers", "heterogeneous"
RATES = {"ctr-dnn": (50e6, 100e6, 400e6, 800e6), "ctr-dnn-4096": (400e6, 1000e6)}
QUOTAS = {"ctr-dnn": (0.01, 0.02, 0.1), "ctr-dnn-4096": (0.02,)}
# Where costs are measured: trainers, servers, links and steps of an epoch. An unsplit step of the
# complex model takes seconds on such links.
COSTS = {"ctr-dnn": (TRAINERS, SERVERS, RATE, 12), "ctr-dnn-4096": (1, 1, None, 6)}
PATIENCE = 300  # seconds, for one job


def mix(model, architecture, small=SMALL):
    """A job's processors, as mixes.py has them."""
    train = {CPU: small, HETER: small}.get(architecture, LARGE)
    heters = f"{HETERS[model]}x{LARGE}" if architecture == HETER else "0x1"
    return f"{TRAINERS}x{train}/{0 if architecture == RANKS else SERVERS}x{SERVER}/{heters}"


def points(model):
    """What is measured: architecture, a CPU trainer's quota, and the links' rate."""
    yield from ((a, SMALL, RATE) for a in (RANKS, CPU, FAT, HETER))
    yield from itertools.product((FAT, HETER), (SMALL,), RATES[model])
    yield from ((HETER, quota, RATE) for quota in QUOTAS[model])


def name(model, architecture, small=SMALL, rate=RATE):
    return f"{model}, {architecture}, " + (f"{small:g} of a core, " if architecture in (CPU, HETER) else "") + f"{rate / 1e6:.0f} Mbit/s"


def commands(o, net, folder, model, cores, batch, steps, epochs):
    """What each host runs, and its role: trainers, servers, heter-trainers."""
    hosts, at = {}, 0
    for role in mixes.ROLES:
        hosts[role], at = range(at, at + len(cores[role])), at + len(cores[role])
    addresses = {role: ",".join(f"{net.address(i)}:7071" for i in hosts[role]) for role in hosts}
    common = ["--np", str(len(hosts["train"])), "--ticket-file", os.path.join(folder, "ticket")]
    heters = ["--set", f"heter.addresses={addresses['heter']}"] if hosts["heter"] else []
    servers = ["--sync", "bsp", "--ps-addresses", addresses["server"]] if hosts["server"] else []
    lines = {
        "train": ["train", model, *common, *servers, *heters, "--rendezvous", f"{net.address(0)}:7070", "--data", "synthetic", "--epochs", str(epochs),
                  "--train-limit", str(len(hosts["train"]) * steps * batch), "--eval-limit", str(mixes.EVALUATED), "--batch", str(batch), "--threads", "1",
                  "--set", "job.bind=none", "--progress", "none", "--log-every", "1", *(["--servers", str(len(hosts["server"]))] if servers else [])],
        "server": ["server", *common, *servers],
        "heter": ["heter", *common, *heters, "--set", f"model={model}", "--threads", "1"],
    }
    for role, of in hosts.items():
        for i, host in enumerate(of):
            json = ["--json", os.path.join(folder, "json")] if role == "train" and i == 0 else []
            yield host, role, [o.ringo, *lines[role], "--rank" if role == "train" else "--index", str(i), *json]


# A process's part of a core until its job runs: less than one, so that it knows of a quota.
START = 0.99


class Job:
    """The processes of a job, each in a group of its own."""

    def __init__(self, o, net, folder, model, cores, *size):
        self.net, self.cores, self.errors, self.all, self.groups = net, cores, os.path.join(folder, "errors"), [], []
        self.server = len(cores["train"])  # the host of the first one
        try:
            with open(self.errors, "w") as errors:
                for host, role, line in commands(o, net, folder, model, cores, *size):
                    self.groups.append((role, Group(f"ringo-papers-{host}", START, mixes.PERIOD)))
                    self.all.append(netns.start(["nsenter", f"--net=/run/netns/{net.hosts[host]}", "bash", "-c", 'read && exec "$@"', "bash", *line], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors))
                    self.groups[-1][1].add(self.all[-1].pid)
                    self.all[-1].stdin.write(b"\n")  # in its group, and with the groups' files, which `ip netns exec` hides
                    self.all[-1].stdin.close()
        except BaseException:
            self.close()
            raise

    def limit(self):
        """Gives each process its quota."""
        for host, cores in enumerate(sum(self.cores.values(), [])):
            Group(f"ringo-papers-{host}", cores, mixes.PERIOD)

    def mark(self):
        """Processor time by role, and bytes of the first server's link, so far."""
        spent = {r: sum(g.seconds() for role, g in self.groups if role == r) for r in mixes.ROLES}
        return spent | {way: self.net.sent(self.server, way) for way in ("rx", "tx")}

    def check(self):
        if any(p.poll() for p in self.all):
            with open(self.errors) as f:
                raise SystemExit(f"{self.cores}: a process failed: {f.read()[-2000:]}")

    def close(self):
        netns.end(self.all)
        for _, group in self.groups:
            group.close()


def run(o, net, folder, model, text, batch, steps, limited=True):
    """One job: samples per second, and a trainer's step in processor time by role and in the first server's bytes. Limited, these are
    steps behind the first three: one has no quotas, and in the next, processes wait until they have used no more than their quotas.
    Without, they are the second epoch's, which has the stages' times, too."""
    out, marks, deadline = os.path.join(folder, "json"), [], time.monotonic() + PATIENCE
    if os.path.exists(out):
        os.remove(out)
    first, last = (3, 3 + steps) if limited else (steps + 1, 2 * steps)
    job = Job(o, net, folder, model, mixes.parse(text), batch, *((last, 1) if limited else (steps, 2)))
    limits = limited
    try:
        while len(marks) < 2 or not limited and len(read(out)) < 2:
            job.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"{model}, {text}: not done after {PATIENCE} s")
            done = len(of := read(out, "step"))
            if done and limits:
                job.limit()
                limits = False
            if len(marks) < 2 and done >= (first, last)[len(marks)]:
                marks.append((done, job.mark()))
            time.sleep(0.003)
        k, (first, before), (last, after), epochs = len(job.cores["train"]), *marks, read(out)
    finally:
        job.close()
    stages = {stage: times["busy_s"] / steps for stage, times in (epochs[1].get("stages", {}) if not limited else {}).items()}
    n = k * (last - first)
    return {"rate": n * batch / (of[last - 1]["wall_s"] - of[first - 1]["wall_s"]), "spent": {what: (after[what] - before[what]) / n for what in after}, "stages": stages}


def calibrate(o, net, folder, model):
    """A profile of ringo plan, of jobs without quotas."""
    trainers, servers, rate, steps = COSTS[model]
    net.shape(rate, burst=links.burst(rate or 0))
    of = types.SimpleNamespace(ringo=o.ringo, model=model, batch=BATCH, ahead=0.5)
    job = lambda text, batch: run(o, net, folder, model, text, batch, steps, limited=False)
    few, many = batches = (BATCH // 4, BATCH)
    split, whole = ({b: [job(f"{trainers}x1/{servers}x1/{heters}x1", b) for _ in range(1 if o.quick else 2)] for b in batches} for heters in (1, 0))
    costs = mixes.costs(of, split, whole, batches)
    costs["agree_s"] = mixes.agree(of, [job("1x1/1x1/2x1", BATCH)], costs)
    for side, runs in (("split", split), ("whole", whole)):
        size = lambda b: servers * mixes.median(runs[b], lambda r: r["spent"]["rx"] + r["spent"]["tx"])
        costs[side]["bytes"] = mixes.line(size(few), size(many), few, many)
    return costs


def forecast(o, folder, values, model, architecture, small, rate):
    """The samples per second of `ringo plan`, with trainers of one kind where there are no heter-trainers."""
    path = os.path.join(folder, f"profile {model}")
    mixes.save(path, values[f"costs {model}"])
    text = mix(model, architecture, small)
    apart = ["--hosts", str(TRAINERS + SERVERS + TRAINERS), "--inter", f"{rate * links.PAYLOAD_SHARE / 8:.0f}B/s"]
    of = types.SimpleNamespace(ringo=o.ringo, model=model)
    if architecture == HETER:
        return mixes.predict(of, path, text, BATCH, *apart)["samples_per_s"]
    train, servers, _ = text.split("/")
    # The plan has the best use of machines without heter-trainers: of all four, or of fewer where
    # more are no faster.
    return mixes.predict(of, path, f"1x0.0001/{servers}/{train}", BATCH, *apart)["whole"]["samples_per_s"]


def crossing(ratio, low, high):
    """Where a ratio passes 1 between two values, by halving their logarithms' distance; None if it does not."""
    if (ratio(low) > 1) == (ratio(high) > 1):
        return None
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if (ratio(middle) > 1) == (ratio(low) > 1) else (low, middle)
    return math.sqrt(low * high)


def between(points):
    """Where measured ratios (x, ratio), sorted by x, pass 1: on lines between their logarithms; None if they do not."""
    for (x, a), (y, b) in itertools.pairwise(points):
        if (a > 1) != (b > 1):
            return x * (y / x) ** (math.log(a) / (math.log(a) - math.log(b)))


def measure(o, kept):
    netns.need_root()
    netns.raise_on_signals()
    with netns.Net("heter", TRAINERS + SERVERS + max(HETERS.values())) as net, tempfile.TemporaryDirectory() as folder:
        subprocess.run([o.ringo, "ticket", os.path.join(folder, "ticket")], check=True, stdout=subprocess.DEVNULL)
        for model in HETERS:
            kept.measure(f"costs {model}", lambda: calibrate(o, net, folder, model))
        all = [(model, *point) for model in HETERS for point in points(model)]
        plan = lambda *point: forecast(o, folder, kept.values, *point)
        for point in all:
            if point[1] != RANKS:
                kept.measure(f"plan {name(*point)}", lambda: plan(*point))
        for model in HETERS:
            kept.measure(f"plan rate {model}", lambda: crossing(lambda rate: plan(model, HETER, SMALL, rate) / plan(model, FAT, SMALL, rate), 1e6, 1e12))
            kept.measure(f"plan quota {model}", lambda: crossing(lambda small: plan(model, HETER, small, RATE) / plan(model, FAT, small, RATE), 1e-5, 1))
        for k in range(1 if o.quick else ROUNDS):
            for model, architecture, small, rate in all:
                by = kept.values[f"plan {name(model, FAT if architecture == RANKS else architecture, small, rate)}"]
                kept.measure(f"{name(model, architecture, small, rate)}, round {k + 1}", lambda: limited(o, net, folder, by, model, architecture, small, rate))


def limited(o, net, folder, plan, model, architecture, small, rate):
    """The samples per second of a job, measured for some seconds by its plan."""
    net.shape(rate, burst=links.burst(rate))
    steps = max(2 if o.quick else 5, min(200, round((2 if o.quick else 6) * plan / (TRAINERS * BATCH))))
    return run(o, net, folder, model, mix(model, architecture, small), BATCH, steps)


def median(values, *point):
    """Of a point's rounds."""
    return statistics.median(v["rate"] for k, v in values.items() if k.startswith(name(*point) + ", round "))


def figures(values, model):
    """The four architectures of a model, measured."""
    return {a: median(values, model, a) for a in (RANKS, CPU, FAT, HETER)}


def pictures(values):
    """The text's bar charts, by file."""
    return {f"heter-{model}.svg": svg.bars(f"{model}: samples per second", "samples / s", [a.replace(", ", ",\n") for a in of], [svg.Series("measured", of.values())],
                                           rules=[("65 % more than CPU trainers", CLAIM * of[CPU])])
            for model in HETERS for of in [figures(values, model)]}


def tables(values):
    return "\n".join([*(four(values, model) for model in HETERS), *(sweep(values, model) for model in HETERS),
                      f"Medians of {ROUNDS} alternating rounds, of steps after a job's start. Machine: {values['machine']}.\n"])


def four(values, model):
    """The table and the picture of a model's four architectures."""
    of, rows = figures(values, model), []
    for architecture, rate in of.items():
        plan = values.get(f"plan {name(model, architecture)}")
        shown = "/".join("0" if part.startswith("0x") else part for part in mix(model, architecture).split("/"))
        rows.append([architecture, shown, f"{rate:,.0f}", f"{rate / of[CPU]:.2f}", *([f"{plan:,.0f}", f"{plan / rate:.2f}"] if plan else ["", ""])])
    head = ["architecture", "trainers / servers / heter-trainers", "samples / s", "of CPU trainers", "`ringo plan`", "ratio"]
    alt = ", ".join(f"{architecture} {rate:,.0f}" for architecture, rate in of.items())
    return f"`{model}` on links of {RATE / 1e6:.0f} Mbit/s:\n\n![samples per second of {model}: {alt}](pictures/heter-{model}.svg)\n\n{papers.table(head, rows)}"


def along(values, model, axis):
    """Large trainers and the heterogeneous mode, by rates or by quotas: (x, quota, rate, (measured, planned) of each)."""
    for x in sorted({RATE, *RATES[model]} if axis == "rate" else {SMALL, *QUOTAS[model]}):
        small, rate = (SMALL, x) if axis == "rate" else (x, RATE)
        yield x, small, rate, *((median(values, *of), values[f"plan {name(*of)}"]) for of in ((model, FAT, SMALL, rate), (model, HETER, small, rate)))


def sweep(values, model):
    rows, ends = [], []
    for axis, unit in (("rate", "Mbit/s"), ("quota", "of a core")):
        ratios = []
        for x, small, rate, fat, heter in along(values, model, axis):
            ratios.append((x, heter[0] / fat[0]))
            cells = [f"{small:g}", f"{rate / 1e6:.0f}", *(f"{v:,.0f}" for v in (*fat, *heter)), *(f"{heter[i] / fat[i]:.2f}" for i in (0, 1))]
            row = [*cells, f"{heter[1] / fat[1] * fat[0] / heter[0]:.2f}"]
            rows += [row] if row not in rows else []
        scale = 1e6 if axis == "rate" else 1
        point = lambda x: f"{x / scale:.3g} {unit}" if x else "no value"
        ends.append(f"Ratio 1, by the {axis}: measured at {point(between(ratios))}, by the plan at {point(values[f'plan {axis} {model}'])}.\n")
    head = ["CPU trainer", "link, Mbit/s", "large trainers, samples / s", "plan", "heterogeneous", "plan", "ratio", "plan", "of measured"]
    return f"`{model}`, the heterogeneous mode against large trainers:\n\n{papers.table(head, rows)}\n{''.join(ends)}"
