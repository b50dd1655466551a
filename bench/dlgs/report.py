"""Tables and charts of the runs that are kept in a folder."""
import glob, json, os, re, statistics

import links, svg
from methods import DENSE_PLANS, RATIOS, SPARSE_PLANS, TASKS, Method, auto_candidates, dense, dlgs, rules, sparse, trained_methods
from tables import Factor, Percent, Table

STAGES = (("compute_ms", "computation"), ("compress_ms", "compression"), ("exposed_comm_ms", "exposed communication"), ("update_ms", "update"))
FIGURES = ("step_ms", "step_exact_ms", "step_reuse_ms", "step_bytes_sent", "density", *(k for k, _ in STAGES))
COLOUR = {"uncompressed": svg.COLOURS[6], "top-k": svg.COLOURS[1], "LAGS": svg.COLOURS[2], "DLGS": svg.COLOURS[0], "DLGS as printed": svg.COLOURS[3]}
STAGE_COLOUR = (svg.COLOURS[0], svg.COLOURS[4], svg.COLOURS[1], svg.COLOURS[2])
AUTO_LINKS = ("shm", "1gbit", "100mbit")


# --- names of runs ------------------------------------------------------------------------------


def free_name(task):
    return f"{task}-free-{dense('one').name}"


def timing_name(task, r, method, i):
    return f"{task}-r{r:g}-{method.name}-{i}"


def training_name(task, method):
    return f"{task}-train-{method.name}"


def auto_name(task, link, method, i):
    return f"{task}-auto-{link}-{method.name}-{i}"


def link_path(out, task, r):
    return os.path.join(out, f"{task}-r{r:g}-link.json")


# --- figures of runs ----------------------------------------------------------------------------


def steady(run):
    """The figures of a run's epochs after the first, in which it warms up and plans: the median of each."""
    epochs = run.epochs[1:] or run.epochs
    out = {}
    for key in FIGURES:
        values = [e[key] for e in epochs if e.get(key) is not None]
        if values:
            out[key] = statistics.median(values)
    return out


class Rounds:
    """A method's rounds: the median of each figure, and all step times."""

    def __init__(self, runs):
        rounds = [steady(r) for r in runs]
        self.all = [r["step_ms"] for r in rounds]
        self.summary, self.choice = runs[0].summary, runs[0].last("choice")
        self.median = {k: statistics.median(r[k] for r in rounds if k in r) for k in rounds[0]}

    def __getitem__(self, key):
        return self.median.get(key)

    @property
    def span(self):
        return span(self.all, ".1f")


def span(values, form):
    return f"{min(values):{form}}–{max(values):{form}}" if len(values) > 1 else "–"


def kept_rounds(runner, name_of):
    """The runs of the rounds that are there, from 1 on; none if the first is missing."""
    runs = []
    while run := runner.kept(name_of(len(runs) + 1)):
        runs.append(run)
    return runs


def rounds_of(runner, name_of):
    runs = kept_rounds(runner, name_of)
    return Rounds(runs) if runs else None


def best_dense(runner, task, r):
    """(plan, times) of the uncompressed exchange at its best plan."""
    found = [(plan, rounds_of(runner, lambda i: timing_name(task, r, dense(plan), i))) for plan in DENSE_PLANS]
    found = [(plan, t) for plan, t in found if t]
    return min(found, key=lambda f: f[1]["step_ms"]) if found else (None, None)


def read_link(out, task, r):
    if not os.path.exists(link_path(out, task, r)):
        return None
    with open(link_path(out, task, r)) as f:
        return json.load(f)


# --- the report ---------------------------------------------------------------------------------


class Report:
    def __init__(self, runner):
        self.runner, self.tables, self.charts = runner, [], []

    def table(self, table):
        if table.rows:
            self.tables.append((table, []))

    def chart(self, name, text):
        """Under the last table."""
        with open(os.path.join(self.runner.out, name), "w") as f:
            f.write(text)
        self.tables[-1][1].append(name)

    def write(self):
        """report.md and report.txt; returns the latter's text."""
        pictures = lambda names: "".join(f"![{n[:-4]}]({n})\n\n" for n in names)
        with open(os.path.join(self.runner.out, "report.md"), "w") as f:
            f.write("\n".join(t.markdown() + "\n" + pictures(names) for t, names in self.tables))
        text = "\n".join(t.text() for t, _ in self.tables)
        with open(os.path.join(self.runner.out, "report.txt"), "w") as f:
            f.write(text)
        return text


def kept_rs(out, task):
    """Every r whose links were shaped, the slowest first."""
    names = (re.search(r"-r([0-9.e+]+)-link\.json$", path) for path in glob.glob(link_path(glob.escape(out), task, 0).replace("-r0-", "-r*-")))
    return sorted((float(n[1]) for n in names if n), reverse=True)


def make(runner, workers, spars):
    """Everything that the kept runs have figures for."""
    report = Report(runner)
    for task in TASKS:
        rs = kept_rs(runner.out, task)
        for r in rs:
            steps(report, task, r, read_link(runner.out, task, r))
            predictions(report, task, r)
            plans(report, task, r)
            both_rules(report, task, r)
        if not TASKS[task].time_only:
            epochs(report, task, rs, workers)
        choices(report, task, spars)
    return report


def steps(report, task, r, link):
    """A step's time and its stages, of each method."""
    plan, base = best_dense(report.runner, task, r)  # there is none if other methods were picked
    ideal = link["compute_ms"] + link["update_ms"]
    faster = lambda ms: Factor(base["step_ms"] / ms) if base else None
    bound = f", {faster(ideal):.2f} x" if base else ""
    table = Table(
        f"{task}: a step where the uncompressed exchange takes {r:g} times the computation",
        ["method", "plan", "step ms", "rounds", "faster", "compute", "compress", "exposed", "update", "sent kB", "density"],
        note=f"Links of {links.text(link['rate'])}, goodput {link['goodput'] / 1e6:.2f} MB/s, {link['congestion_control']}; computation {link['compute_ms']:.1f} ms, "
        f"uncompressed exchange {link['exchange_ms']:.1f} ms at least. Perfect compression would reach {ideal:.1f} ms{bound}. ms per step, sent kB per rank and step.")
    rows = [("uncompressed", plan, base)] if base else []
    for m in sparse():
        if t := rounds_of(report.runner, lambda i: timing_name(task, r, m, i)):
            rows.append((m.title, t.summary.get("plan"), t))
    for name, used, t in rows:
        sent = t["step_bytes_sent"]
        table.add(name, used, t["step_ms"], t.span, faster(t["step_ms"]), *(t[k] for k, _ in STAGES), sent and sent / 1e3, t["density"])
    report.table(table)
    series = [svg.Series(name, [t[k] for _, _, t in rows], colour) for (k, name), colour in zip(STAGES, STAGE_COLOUR)]
    if any(v is not None for s in series for v in s.values):  # none without rows
        report.chart(f"{task}-r{r:g}-steps.svg", svg.bars(f"{task}: a step at r = {r:g}", "ms per step", [n.replace(" ", "\n") for n, _, _ in rows], series,
                                                          stacked=True, rules=[("perfect compression", ideal)]))


def predictions(report, task, r):
    """What the plan predicts beside what was measured, of exact and of reuse steps."""
    table = Table(f"{task}: predicted and measured step at r = {r:g}", ["method", "plan", "steps", "predicted ms", "measured ms", "measured / predicted", "rounds"])
    names, pairs = [], []
    for m in [*map(dense, DENSE_PLANS), *sparse()]:
        by_kind = {}
        for run in kept_rounds(report.runner, lambda i: timing_name(task, r, m, i)):
            for kind, *pair in predicted_steps(run):
                by_kind.setdefault(kind, []).append(pair)
        for kind, rounds in by_kind.items():
            predicted, measured = (statistics.median(v) for v in zip(*rounds))
            ratios = [b / a for a, b in rounds]
            table.add(m.title, m.plan, kind, predicted, measured, statistics.median(ratios), span(ratios, ".3f"))
            names.append(f"{m.title}\n{m.plan}, {kind}")
            pairs.append((predicted, measured))
    report.table(table)
    if pairs:
        series = [svg.Series("predicted", [p for p, _ in pairs], svg.COLOURS[5]), svg.Series("measured", [v for _, v in pairs], svg.COLOURS[0])]
        report.chart(f"{task}-r{r:g}-predicted.svg", svg.bars(f"{task}: predicted and measured step at r = {r:g}", "ms per step", names, series))


def predicted_steps(run):
    """(kind, predicted ms, measured ms) by a run's last choice: measured by itself, or else by the epochs."""
    choice, epochs = run.last("choice", "choice_measured"), steady(run)
    kinds = (("all", "predicted_ms", "step_ms"), ("exact", "predicted_exact_ms", "step_exact_ms"), ("reuse", "predicted_reuse_ms", "step_reuse_ms"))
    out = [(kind, choice.get(p), choice.get(m) or epochs.get(m)) for kind, p, m in kinds]
    return [row for row in out if row[1] and row[2]]


def plans(report, task, r):
    """Every plan of the uncompressed exchange and of DLGS."""
    table = Table(f"{task}: plans at r = {r:g}", ["method", "plan", "buckets", "step ms", "rounds", "to the exact plan's"])
    for methods in ([dense(p) for p in DENSE_PLANS], *([dlgs(ratio, p) for p in SPARSE_PLANS] for ratio in RATIOS)):
        times = [(m, rounds_of(report.runner, lambda i: timing_name(task, r, m, i))) for m in methods]
        exact = next((t for m, t in times if m.plan == "exact" and t), None)
        found = [(m, t) for m, t in times if t]
        told = {dense(m.plan).name for m, _ in found} | {m.name for m in sparse()}  # by the table of steps
        for m, t in found if len(found) > 1 or any(m.name not in told for m, _ in found) else ():
            table.add(m.title, m.plan, t.summary.get("buckets"), t["step_ms"], t.span, exact and t["step_ms"] / exact["step_ms"])
    report.table(table)


def both_rules(report, task, r):
    """DLGS as it is printed, and with our rule and planner in place of the paper's, one by one and both."""
    table = Table(f"{task}: DLGS by rule and planner at r = {r:g}",
                  ["method", "rule", "plan", "buckets", "step ms", "rounds", "to the last", "exact step ms", "other step ms", "sent kB", "density"],
                  note="to the last: beside the default rule with the exact plan. sent kB: per rank and step; density: the share of values that is sent.")
    for ratio in RATIOS:
        found = [(m, t) for m in rules(ratio) if (t := rounds_of(report.runner, lambda i: timing_name(task, r, m, i)))]
        last = next((t for m, t in found if m.name == rules(ratio)[-1].name), None)
        for m, t in found if any(m.rule for m, _ in found) else ():
            sent = t["step_bytes_sent"]
            table.add(f"DLGS {ratio:g}", m.rule or "corrected", m.plan, t.summary.get("buckets"), t["step_ms"], t.span, last and t["step_ms"] / last["step_ms"],
                      t["step_exact_ms"], t["step_reuse_ms"], sent and sent / 1e3, t["density"])
    report.table(table)


def epochs(report, task, rs, workers):
    """Accuracy and loss by epoch of the trained methods, and the time of the whole schedule."""
    trained = [(m, run) for m in trained_methods(both_rules=True) if (run := report.runner.kept(training_name(task, m)))]
    if not trained:
        return
    every = TASKS[task].steps_per_epoch(workers) * TASKS[task].epochs
    table = Table(f"{task}: after {TASKS[task].epochs} epochs", ["method", "accuracy", "best", "test loss", "train loss", "measured s", *(f"s at r = {r:g}" for r in rs)],
                  note=f"s at r: {every:,} steps of the measured time of a step, without evaluation.")
    for m, run in trained:
        last = run.epochs[-1]
        total = [whole_schedule(report.runner, task, r, m, every) for r in rs]
        table.add(m.title, Percent(last["eval_accuracy"]), Percent(max(e["eval_accuracy"] for e in run.epochs)), last["eval_loss"], last["train_loss"], run.summary["wall_s"], *total)
    report.table(table)
    for key, label in (("eval_accuracy", "test accuracy"), ("train_loss", "train loss"), ("eval_loss", "test loss")):
        series = [svg.Series(m.title, [(e["epoch"], 100 * e[key] if "accuracy" in key else e[key]) for e in run.epochs], COLOUR[m.label], dash(m)) for m, run in trained]
        report.chart(f"{task}-{key}.svg", svg.lines(f"{task}: {label}", "epoch", label + (" in %" if "accuracy" in key else ""), series))
    known = [r for i, r in enumerate(rs) if any(row[6 + i] is not None for row in table.rows)]
    if known:
        series = [svg.Series(f"r = {r:g}", [row[6 + rs.index(r)] for row in table.rows], svg.COLOURS[i]) for i, r in enumerate(known)]
        report.chart(f"{task}-total.svg", svg.bars(f"{task}: the whole schedule", "s", [row[0].replace(" ", "\n") for row in table.rows], series))


def dash(method):
    """Ratios are told apart by the line."""
    return "6 4" if method.spars == min(RATIOS) else ""


def whole_schedule(runner, task, r, method, every):
    if method.strategy == "fp32":
        _, t = best_dense(runner, task, r)
    else:
        t = rounds_of(runner, lambda i: timing_name(task, r, method, i))
    return t and every * t["step_ms"] / 1e3


def choices(report, task, spars):
    """What `auto` picked beside all of its candidates."""
    for link in AUTO_LINKS:
        found = [(m, rounds_of(report.runner, lambda i: auto_name(task, link, m, i))) for m in auto_candidates(spars)]
        found = [(m, t) for m, t in found if t]
        auto = rounds_of(report.runner, lambda i: auto_name(task, link, Method("auto", "auto", spars), i))
        if not found or not auto:
            continue
        best, picked = min(t["step_ms"] for _, t in found), auto.choice.get("strategy")
        table = Table(f"{task}: auto over {link}", ["candidate", "predicted ms", "step ms", "rounds", "to the best", "picked"])
        predicted = {c["strategy"]: c["step_ms"] for c in auto.choice.get("candidates", ())}
        for m, t in found:
            table.add(m.title, predicted.get(m.strategy), t["step_ms"], t.span, t["step_ms"] / best, "auto" if m.strategy == picked else "")
        table.note = verdict(picked, {m.strategy: t["step_ms"] for m, t in found})
        report.table(table)


def verdict(picked, times):
    """Whether auto's choice is within 5 % of the best candidate."""
    if picked not in times:
        return f"auto picked {picked}, which was not measured"
    over = times[picked] / min(times.values()) - 1
    return f"auto picked {picked}: {100 * over:.1f} % over the best, {'within' if over <= 0.05 else 'NOT within'} 5 %"
