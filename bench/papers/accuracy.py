"""DLGS's Table 1 and figures 5 to 10: accuracy and losses of its three models, uncompressed and by each method, with several seeds,
and variants of a method that explain its loss."""
import concurrent.futures, math, os, re, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "dlgs"))
import papers, svg
from methods import Task

RANKS, TESTED = 2, 1000  # samples that test each epoch; all test the end
SEEDS = (1, 2, 3)
TASKS = {t.name: t for t in (
    Task("ResNet-20", "cifar-resnet20", 16, "pixels", lr=0.05, epochs=16, drops=(10, 13), train_limit=2000),
    Task("VGG16", "cifar-vgg16", 16, "pixels", lr=0.01, epochs=16, drops=(10, 13), train_limit=2000),
    Task("ResNet-50", "resnet50", 16, "images", lr=0.05, epochs=16, drops=(10, 13), train_limit=2000),
)}
MORE = {"ResNet-50": ["--image-size", "64"]}


def methods():
    """The text's methods with their settings. A name ends in its share of sent values."""
    out = {"uncompressed": []}
    for spars in ("0.1", "0.01"):
        for name, strategy in (("top-k", "topk"), ("LAGS", "lags"), ("DLGS", "dlgs")):
            out[f"{name} {spars}"] = ["--strategy", strategy, "--spars", spars]
        out[f"DLGS as printed {spars}"] = [*out[f"DLGS {spars}"], "--set", "exchange.dlgs-rule=paper", "--plan", "dlgs-scan", "--tune"]
    return out


METHODS = methods()
# Each changes one thing of a method, and tests one reason for its loss of accuracy.
CHANGES = {
    "momentum correction": ["--momentum", "0", "--set", "exchange.momentum-correction=0.9"],
    "no momentum, ten times the rate": ["--momentum", "0", "--lr", "0.5", "--lr-schedule", "10:0.05,13:0.005"],
    "0.25, 0.1 and 0.04 in the first epochs": ["--set", "exchange.warmup-density=0.25,0.1,0.04"],
    "all values in the first 4 epochs": ["--set", "exchange.warmup-density=1,1,1,1"],
    "all values after the first drop of the rate": ["--spars", "1", "--set", "exchange.warmup-density=" + ",".join(10 * ["0.01"])],
    "gradient's norm at most 1": ["--clip-norm", "1"],
    "a selection of each layer": ["--set", "exchange.layer-thresholds=true"],
    "one bucket": ["--plan", "one"],
    "exact selections": ["--set", "exchange.dlgs-every=1"],
    "constant scales and offsets of batch norm": ["--set", "training.freeze=*.norm.*"],
}
COMMON = ("momentum correction", "0.25, 0.1 and 0.04 in the first epochs", "constant scales and offsets of batch norm")
CHANGED = {"DLGS 0.01": tuple(CHANGES), "LAGS 0.01": COMMON, "uncompressed": ("no momentum, ten times the rate", "gradient's norm at most 1", COMMON[-1])}
VARIANTS = [(task, method, change) for task in ("ResNet-20", "VGG16") for method, changes in CHANGED.items() for change in changes]
PATIENCE = 6 * 3600  # seconds, for one training


def run_name(task, method, seed, change=""):
    return f"{task}, {method}{', ' + change if change else ''}, seed {seed}"


def training(o, task, flags, seed):
    """One training, and the accuracy of its last weights on all test samples."""
    data = os.path.abspath(o.data if task.data == "pixels" else o.images)
    schedule = task.training()
    if o.quick:
        schedule += ["--epochs", "3", "--lr-schedule", "2:0.001", "--train-limit", "640"]
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        lines = papers.records([o.ringo, "train", task.model, "--data", data, *schedule, "--warmup", "1epochs", *MORE.get(task.name, []), *flags,
            "--seed", str(seed), "--np", str(RANKS), "--threads", "1", "--transport", "mem", "--eval-limit", str(TESTED),
            "--checkpoint", run, "--set", "checkpoint.keep=1", "--progress", "none", "--json", "-"], PATIENCE)
        end = papers.records([o.ringo, "eval", run, "--data", data, "--eval-limit", "1000" if o.quick else "10000", "--threads", "1", "--json", "-"], PATIENCE)[-1]
    epochs = [r for r in lines if r["event"] == "epoch"]
    return {"accuracy": end["eval_accuracy"], "test_loss": end["eval_loss"], "samples": end["classes"]["samples"], "steps": epochs[-1]["done"],
        "buckets": lines[-1]["buckets"], "density": statistics.mean(e["density"] for e in epochs),
        "by_epoch": [e["eval_accuracy"] for e in epochs], "train_loss": [e["train_loss"] for e in epochs]}


def runs():
    """All runs, the most useful first: a seed of all methods before the next."""
    out = []
    for task in TASKS:
        for seed in SEEDS:
            out += [(task, method, "", seed, flags) for method, flags in METHODS.items()]
            out += [(t, method, change, seed, METHODS[method] + CHANGES[change]) for t, method, change in VARIANTS if t == task]
    return out


def measure(o, kept):
    chosen = [r for r in runs() if re.search(o.only, run_name(r[0], r[1], r[3], r[2]))]
    if o.quick:
        chosen = [r for r in chosen if r[0] == "ResNet-20" and r[3] == 1 and not r[2]]
    for task in {TASKS[r[0]].data for r in chosen}:
        if not os.path.exists(o.data if task == "pixels" else o.images):
            raise SystemExit(f"--{'data' if task == 'pixels' else 'images'}: no such folder or file")
    kept.measure("ringo", lambda: revision())
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for done in [pool.submit(one, o, kept, *r) for r in chosen]:
            done.result()


def one(o, kept, task, method, change, seed, flags):
    kept.measure(run_name(task, method, seed, change), lambda: training(o, TASKS[task], flags, seed))


def revision():
    """The commit of this checkout, which the binary is to be built from."""
    return subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=papers.ROOT, capture_output=True, text=True, check=True).stdout.strip()


def found(values, task, method, change=""):
    """The kept runs by seed."""
    return {s: values[n] for s in SEEDS if (n := run_name(task, method, s, change)) in values}


def mean(numbers, digits):
    """Their mean, with its standard error if there are several."""
    numbers = list(numbers)
    text = f"{statistics.mean(numbers):.{digits}f}"
    return text + (f" ± {statistics.stdev(numbers) / math.sqrt(len(numbers)):.{digits}f}" if len(numbers) > 1 else "")


def loss(runs, dense):
    """Points of accuracy below the uncompressed run of the same seed, over the seeds that both have."""
    return [100 * (dense[s]["accuracy"] - r["accuracy"]) for s, r in runs.items() if s in dense]


def row(name, runs, dense):
    lost = loss(runs, dense)
    each = lambda field, factor=1: [factor * r[field] for r in runs.values()]
    return [name, len(runs), mean(each("accuracy", 100), 1), mean(lost, 1) if lost else "", mean(each("test_loss"), 2),
            mean([r["train_loss"][-1] for r in runs.values()], 2), f"{statistics.mean(each('density')):.3f}"]


HEAD = ["method", "seeds", "accuracy, %", "points below uncompressed", "test loss", "train loss", "share sent"]


def tables(values):
    text = ""
    for task in TASKS:
        dense = found(values, task, "uncompressed")
        rows = [(m, r) for m in METHODS if (r := found(values, task, m))]
        if not rows:
            continue
        rows.sort(key=lambda row: -statistics.mean(loss(row[1], dense) or [0]))  # the worst first
        t, r = TASKS[task], next(iter(rows[0][1].values()))
        text += (f"{task}, `{t.model}`: {t.train_limit:,} images, {t.epochs} epochs, {r['steps']:,} steps; learning rate {t.lr:g}, "
            f"a tenth after {t.drops[0]} and {t.drops[1]} epochs; {r['samples']:,} test images.\n\n")
        text += papers.table(HEAD, [row(m, r, dense) for m, r in rows]) + "\n"
        changed = [(m, c, r) for k, m, c in VARIANTS if k == task and (r := found(values, task, m, c))]
        if changed:
            text += f"{task}, one change of the method:\n\n"
            text += papers.table(HEAD, [row(f"{m}, {c}", r, dense) for m, c, r in changed]) + "\n"
        text += f"![test accuracy of {task} by epoch](pictures/{picture(task, 'accuracy')})\n"
        text += f"![train loss of {task} by epoch](pictures/{picture(task, 'loss')})\n\n"
    return text + f"Machine: {values['machine']}; ringo of commit {values['ringo']}.\n"


def picture(task, what):
    return f"{what}-{TASKS[task].model.removeprefix('cifar-')}.svg"


def pictures(values):
    """The curves by the names of their files: means over the seeds."""
    out = {}
    for task in TASKS:
        for what, field, label, factor in (("accuracy", "by_epoch", "test accuracy, %", 100), ("loss", "train_loss", "train loss", 1)):
            series = []
            for i, method in enumerate(METHODS):
                if runs := found(values, task, method):
                    means = [factor * statistics.mean(at) for at in zip(*(r[field] for r in runs.values()))]
                    colour = svg.COLOURS[-1] if i == 0 else svg.COLOURS[(i - 1) % 4]
                    series.append(svg.Series(method, enumerate(means, 1), colour, "5 4" if method.endswith(" 0.01") else ""))
            if series:
                out[picture(task, what)] = svg.lines(f"{task}: {label} by epoch", "epoch", label, series)
    return out
