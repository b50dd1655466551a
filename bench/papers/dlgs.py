"""DLGS's step with one server and three workers, as its text has them: ResNet-20 on links whose exchange takes three times as long
as the computation, uncompressed and by each method."""
import os, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "dlgs"))
import links, netns, papers

WORKERS, BATCH, R, ROUNDS = 3, 32, 3, 3
METHODS = {
    "uncompressed, one bucket": ["--plan", "one"],
    "uncompressed, exact plan": ["--plan", "exact", "--tune"],
    "top-k 0.1": ["--strategy", "topk", "--spars", "0.1"],
    "LAGS 0.1": ["--strategy", "lags", "--spars", "0.1"],
    "DLGS 0.1": ["--strategy", "dlgs", "--spars", "0.1", "--plan", "exact", "--tune"],
    "top-k 0.01": ["--strategy", "topk", "--spars", "0.01"],
    "LAGS 0.01": ["--strategy", "lags", "--spars", "0.01"],
    "DLGS 0.01": ["--strategy", "dlgs", "--spars", "0.01", "--plan", "exact", "--tune"],
    "DLGS 0.01, as printed": ["--strategy", "dlgs", "--spars", "0.01", "--plan", "dlgs-scan", "--tune", "--set", "exchange.dlgs-rule=paper"],
}
PATIENCE = 300  # seconds, for one method


def step(o, net, ticket, *method):
    """The record of a benchmark: a worker on each of three hosts, with one thread, and the server on the fourth."""
    meet = ["--rendezvous", f"{net.address(0)}:7070", "--ticket-file", ticket, "--np", str(WORKERS), "--servers", "1", "--sync", "aggregate"]
    line = [o.ringo, "bench", "step", "cifar-resnet20", "--batch", str(BATCH), "--threads", "1", "--steps", "16" if o.quick else "32", *meet, *method]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    others = [netns.start([*net.enter(WORKERS), o.ringo, "server", "--index", "0", *meet], **quiet)]
    others += [netns.start([*net.enter(r), *line, "--rank", str(r)], **quiet) for r in range(1, WORKERS)]
    try:
        return papers.records([*net.enter(0), *line, "--rank", "0", "--json", "-"], PATIENCE)[-1]
    finally:
        netns.end(others)


def goodput(values, compute_ms):
    """Bytes a second at which the server's link takes R times the computation: all workers' gradients in, and the sums out, at once."""
    return WORKERS * 4 * values / (R * compute_ms / 1e3)


def measure(o, kept):
    netns.need_root()
    netns.raise_on_signals()
    with netns.Net("dlgs", WORKERS + 1) as net, tempfile.TemporaryDirectory() as folder:
        ticket = os.path.join(folder, "ticket")
        subprocess.run([o.ringo, "ticket", ticket], check=True, stdout=subprocess.DEVNULL)
        free = kept.measure("no limit", lambda: step(o, net, ticket, "--plan", "one"))
        want = goodput(free["params"], free["compute_ms"])
        rate = links.rate_for(want)
        net.shape(rate, burst=links.burst(rate))
        kept.measure("goodput", lambda: net.goodput(links.stream_bytes(want)))
        for k in range(1 if o.quick else ROUNDS):
            for name, method in METHODS.items():
                kept.measure(f"{name}, round {k + 1}", lambda: step(o, net, ticket, *method))


def tables(values):
    rows, rounds = [], {}
    for name in METHODS:
        rounds[name] = [v for k, v in values.items() if k.startswith(name + ", round ")]
    median = lambda name, field: statistics.median(v[field] for v in rounds[name])
    dense = min((n for n in METHODS if n.startswith("uncompressed")), key=lambda n: median(n, "step_mean_ms"))
    for name in METHODS:
        # a ratio within each round, so that a slow round is slow for both
        faster = statistics.median(a["step_mean_ms"] / b["step_mean_ms"] for a, b in zip(rounds[dense], rounds[name]))
        rows.append([name, *(f"{median(name, f):.0f}" for f in ("step_mean_ms", "compute_ms")), f"{median(name, 'compress_ms'):.1f}",
                     f"{median(name, 'exposed_comm_ms'):.0f}", f"{median(name, 'bytes_sent'):,.0f}", f"{faster:.2f}"])
    head = ["method", "step, ms", "compute", "selection", "exposed exchange", "bytes sent by a worker", "times as fast as uncompressed"]
    free, n = values["no limit"], len(rounds[dense])
    return papers.table(head, rows) + (f"\nMedians of {n} rounds of {free['steps']} steps, a step's mean.\nWithout limits of the links the computation takes "
        f"{free['compute_ms']:.0f} ms; a plain stream moves {values['goodput'] / 1e6:.2f} MB/s.\nMachine: {values['machine']}.\n")
