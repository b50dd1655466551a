"""DLGS's step with one server and three workers, as its text has them: three models on links whose exchange takes r times as long
as the computation, uncompressed and by each method."""
import collections, os, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "dlgs"))
import links, netns, papers

WORKERS = 3
Task = collections.namedtuple("Task", "title model batch steps")
RESNET20, VGG16, RESNET50 = Task("ResNet-20", "cifar-resnet20", 32, 32), Task("VGG16", "cifar-vgg16", 32, 16), Task("ResNet-50", "resnet50", 4, 16)
# The number of rounds of each model and r. At r = 1 compression gives at most 2 without overlap;
# the text has 1.99 at best.
CASES = {(RESNET20, 3): 3, (RESNET20, 1): 3, (VGG16, 3): 1, (VGG16, 1): 1, (RESNET50, 3): 1, (RESNET50, 1): 1}
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
PATIENCE = 600  # seconds, for one method


def step(o, net, ticket, task, *method):
    """The record of a benchmark: a worker on each of three hosts, with one thread, and the server on the fourth."""
    meet = ["--rendezvous", f"{net.address(0)}:7070", "--ticket-file", ticket, "--np", str(WORKERS), "--servers", "1", "--sync", "aggregate"]
    steps = 16 if o.quick else task.steps
    line = [o.ringo, "bench", "step", task.model, "--batch", str(task.batch), "--threads", "1", "--steps", str(steps), *meet, *method]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    others = [netns.start([*net.enter(WORKERS), o.ringo, "server", "--index", "0", *meet], **quiet)]
    others += [netns.start([*net.enter(r), *line, "--rank", str(r)], **quiet) for r in range(1, WORKERS)]
    try:
        return papers.records([*net.enter(0), *line, "--rank", "0", "--json", "-"], PATIENCE)[-1]
    finally:
        netns.end(others)


def goodput(values, compute_ms, r):
    """Bytes a second at which the server's link takes r times the computation: all workers' gradients in, and the sums out, at once."""
    return WORKERS * 4 * values / (r * compute_ms / 1e3)


def prefix(task, r):
    return f"{task.title}, r = {r}, "


def measure(o, kept):
    netns.need_root()
    netns.raise_on_signals()
    for (task, r), rounds in CASES.items():
        if not o.quick or (task, r) == (RESNET20, 3):
            case(o, kept, task, r, 1 if o.quick else rounds)


def case(o, kept, task, r, rounds):
    """Measures all methods of a model in turns, on links of its own."""
    with netns.Net("dlgs", WORKERS + 1) as net, tempfile.TemporaryDirectory() as folder:
        ticket = os.path.join(folder, "ticket")
        subprocess.run([o.ringo, "ticket", ticket], check=True, stdout=subprocess.DEVNULL)
        free = kept.measure(f"{task.title}, no limit", lambda: step(o, net, ticket, task, "--plan", "one"))
        want = goodput(free["params"], free["compute_ms"], r)
        rate = links.rate_for(want)
        net.shape(rate, burst=links.burst(rate))
        kept.measure(prefix(task, r) + "goodput", lambda: net.goodput(links.stream_bytes(want)))
        for k in range(rounds):
            for name, method in METHODS.items():
                kept.measure(f"{prefix(task, r)}{name}, round {k + 1}", lambda: step(o, net, ticket, task, *method))


def tables(values):
    done = [c for c in CASES if all(f"{prefix(*c)}{name}, round 1" in values for name in METHODS)]
    return "\n".join(one(values, *c) for c in done) + f"\nMachine: {values['machine']}.\n"


def one(values, task, r):
    """The table of a model and a ratio of exchange to computation, with all rounds that are complete."""
    rows, rounds, at = [], {}, prefix(task, r)
    complete = [k for k in range(1, CASES[task, r] + 1) if all(f"{at}{name}, round {k}" in values for name in METHODS)]
    for name in METHODS:
        rounds[name] = [values[f"{at}{name}, round {k}"] for k in complete]
    median = lambda name, field: statistics.median(v[field] for v in rounds[name])
    dense = min((n for n in METHODS if n.startswith("uncompressed")), key=lambda n: median(n, "step_mean_ms"))
    for name in METHODS:
        # a ratio within each round, so that a slow round is slow for both
        faster = statistics.median(a["step_mean_ms"] / b["step_mean_ms"] for a, b in zip(rounds[dense], rounds[name]))
        rows.append([name, *(f"{median(name, f):.0f}" for f in ("step_mean_ms", "compute_ms")), f"{median(name, 'compress_ms'):.1f}",
                     f"{median(name, 'exposed_comm_ms'):.0f}", f"{median(name, 'bytes_sent'):,.0f}", f"{faster:.2f}"])
    head = ["method", "step, ms", "compute", "selection", "exposed exchange", "bytes sent by a worker", "times as fast as uncompressed"]
    free, times = values[f"{task.title}, no limit"], f"median of {len(complete)} rounds" if len(complete) > 1 else "one round"
    return f"{task.title}, batch {task.batch}, r = {r}:\n\n" + papers.table(head, rows) + (
        f"\nA step's mean, {times} of {free['steps']} steps.\nWithout limits of the links the computation takes {free['compute_ms']:.0f} ms; "
        f"a plain stream moves {values[at + 'goodput'] / 1e6:.2f} MB/s.\n")
