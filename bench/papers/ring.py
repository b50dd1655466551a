"""The ring's text: the straw man, every rank to one root, against the ring on links of one rate, beside formulas; and its language
model of 300 M parameters, measured on such links and computed for its 40 GPUs, with overlap and without."""
import os, subprocess, tempfile

import netns, papers

RATE = 200e6  # bits a second, of each link and direction
FLOATS = 1 << 20
RANKS = range(2, 9)
PATIENCE = 900  # seconds, for one size or model

# The language model: a rank's sentences, and links whose exchange takes about as long as a step's computation, as in the text.
BATCH, MODEL_RATE, MODEL_RANKS = 2, 2e9, (1, 2, 4)
OVERLAP = {"off": "one", "on": "fixed"}  # one bucket after backward, or buckets that leave during backward
CASES = [(n, overlap) for n in MODEL_RANKS for overlap in OVERLAP if n > 1 or overlap == "on"]
GPUS = (1, 2, 4, 8, 16, 24, 32, 40)
TEXT_STEP, TEXT_HIDDEN = (650, 700), (70, 120)  # milliseconds, 40 workers on 5 hosts, against 370 on one


def formula(algorithm, n, goodput):
    """Milliseconds of the text's cost, by bytes and rate alone: the straw man's both ways, over the root's link."""
    share = 2 * (n - 1) if algorithm == "naive" else 2 * (n - 1) / n
    return 1e3 * share * 4 * FLOATS / goodput


def bench(o, net, n, ticket, *what):
    """The record of a benchmark on n hosts with a rank each."""
    line = [o.ringo, "bench", *what, "--np", str(n), "--rendezvous", f"{net.address(0)}:7070", "--ticket-file", ticket, "--timeout", "100s"]
    others = [netns.start([*net.enter(r), *line, "--rank", str(r)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for r in range(1, n)]
    try:
        return papers.records([*net.enter(0), *line, "--rank", "0", "--json", "-"], PATIENCE)[-1]
    finally:
        netns.end(others)


def milliseconds(o, net, n, algorithm, ticket):
    """The median of calls."""
    what = ["allreduce", "--floats", str(FLOATS), "--collective-algorithm", algorithm, "--time", "1s" if o.quick else "8s"]
    return bench(o, net, n, ticket, *what)["median_us"] / 1e3


def model_step(o, net, n, overlap, ticket):
    """The parts of a step of the language model, each rank with one thread."""
    what = ["step", "lstm-300m", "--batch", str(BATCH), "--threads", "1", "--steps", "2" if o.quick else "12", "--plan", OVERLAP[overlap]]
    r = bench(o, net, n, ticket, *what)
    return {k: r[k] for k in ("step_ms", "compute_ms", "exposed_comm_ms", "update_ms", "bytes_sent", "steps")}


def planned(o, n, hosts, inter, plan, *more):
    """What ringo plan computes."""
    apart = ["--hosts", str(hosts), "--inter", inter] if hosts > 1 else []
    return papers.records([o.ringo, "plan", "lstm-300m", "--np", str(n), *apart, "--plan", plan, *more, "--json", "-"], PATIENCE)[-1]


def exposed(o, n, inter, plan):
    """The exposed exchange that ringo plan computes, from times of the layers that it measures here."""
    return planned(o, n, n, inter, plan, "--measure", "--threads", "1", "--batch", str(BATCH))["exposed_comm_ms"]


def forecast(o, n, plan):
    """The step on the text's cluster: 8 GPUs a host, 370 ms of computation, 32 sentences a GPU."""
    return planned(o, n, (n + 7) // 8, "6GB/s", plan, "--compute-ms", "370", "--intra", "10GB/s", "--latency", "10us", "--batch", "32")["step_ms"]


def measure(o, kept):
    netns.need_root()
    netns.raise_on_signals()
    with netns.Net("ring", max(RANKS)) as net, tempfile.TemporaryDirectory() as folder:
        net.shape(RATE)
        kept.measure("goodput", lambda: net.goodput(64 << 20))
        ticket = os.path.join(folder, "ticket")
        subprocess.run([o.ringo, "ticket", ticket], check=True, stdout=subprocess.DEVNULL)
        for n in RANKS:
            for algorithm in ("naive", "ring"):
                kept.measure(f"{algorithm} {n}", lambda: milliseconds(o, net, n, algorithm, ticket))
        net.shape(MODEL_RATE, burst=1 << 20)
        kept.measure("model goodput", lambda: net.goodput(512 << 20))
        inter = f"{kept.values['model goodput'] / 1e6:.1f}MB/s"
        for n, overlap in CASES:
            kept.measure(f"model {n} {overlap}", lambda: model_step(o, net, n, overlap, ticket))
            kept.measure(f"plan {n} {overlap}", lambda: exposed(o, n, inter, OVERLAP[overlap]))
    for n in GPUS:
        for overlap, plan in OVERLAP.items():
            kept.measure(f"forecast {n} {overlap}", lambda: forecast(o, n, plan))


def tables(values):
    parts = {"The straw man and the ring:": straw_man, "A step of the language model:": model, "The text's cluster, by `ringo plan`:": forecasts}
    return "\n".join(f"{title}\n\n{part(values)}" for title, part in parts.items())


def straw_man(values):
    rows = []
    for n in RANKS:
        row = [n]
        for algorithm in ("naive", "ring"):
            ms, by = values[f"{algorithm} {n}"], formula(algorithm, n, values["goodput"])
            row += [f"{ms:.0f}", f"{by:.0f}", f"{ms / by:.2f}"]
        rows.append([*row, f"{values[f'naive {n}'] / values[f'ring {n}']:.1f}", f"{n:.1f}"])
    head = ["ranks", "naive, ms", "formula", "ratio", "ring, ms", "formula", "ratio", "naive / ring", "formula"]
    return papers.table(head, rows) + f"\nA plain TCP stream on such a link moves {values['goodput'] / 1e6:.2f} MB/s. Machine: {values['machine']}.\n"


def model(values):
    rows = []
    for n, overlap in CASES:
        v, by = values[f"model {n} {overlap}"], values[f"plan {n} {overlap}"]
        apart, hidden = v["exposed_comm_ms"], ["", ""]
        if n > 1 and overlap == "on":
            hidden = [f"{values[f'model {n} off']['exposed_comm_ms'] - apart:.0f}", f"{values[f'plan {n} off'] - by:.0f}"]
        rows.append([n, overlap, f"{v['compute_ms']:.0f}", f"{apart:.0f}", f"{by:.0f}", f"{apart / by:.2f}" if by else "", *hidden])
    head = ["ranks", "overlap", "compute, ms", "exposed exchange, ms", "`ringo plan --measure`", "ratio", "hidden, ms", "`ringo plan --measure`"]
    steps = values[f"model {MODEL_RANKS[0]} on"]["steps"]
    return papers.table(head, rows) + f"\nMedians of {steps} steps; a plain stream moves {values['model goodput'] / 1e6:.0f} MB/s. Machine: {values['machine']}.\n"


def forecasts(values):
    rows = []
    for n in GPUS:
        off, on = values[f"forecast {n} off"], values[f"forecast {n} on"]
        text = (f"{TEXT_STEP[0]} to {TEXT_STEP[1]}", f"{TEXT_HIDDEN[0]} to {TEXT_HIDDEN[1]}") if n == 40 else ("370", "") if n == 1 else ("", "")
        rows.append([n, f"{off:.0f}", f"{on:.0f}", text[0], f"{off - on:.0f}", text[1], f"{1e3 * 32 * n / on:,.0f}"])
    return papers.table(["GPUs", "step without overlap, ms", "with overlap", "text", "hidden, ms", "text", "samples / s"], rows)
