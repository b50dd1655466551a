"""What is compared: tasks with the paper's settings, and methods."""


class Task:
    """A model with its data and schedule: the rate lr falls to a tenth after each epoch of drops. time_only tasks are not
    trained to the end."""

    def __init__(self, name, model, batch, data, lr=0.1, epochs=14, drops=(8, 12), train_limit=0, samples=50_000, time_only=False):
        self.name, self.model, self.batch, self.data, self.lr, self.epochs = name, model, batch, data, lr, epochs
        self.drops, self.train_limit, self.time_only = drops, train_limit, time_only
        self.samples = train_limit or samples

    def steps_per_epoch(self, workers):
        return self.samples // (workers * self.batch)

    def flags(self):
        """The settings of every run."""
        return ["--batch", str(self.batch), "--optimizer", "sgd", "--lr", f"{self.lr:g}", "--momentum", "0.9", "--weight-decay", "0.0001"]

    def training(self):
        """The whole schedule."""
        limit = ["--train-limit", str(self.train_limit)] if self.train_limit else []
        steps = ",".join(f"{epoch}:{self.lr / 10**n:g}" for n, epoch in enumerate(self.drops, 1))
        return self.flags() + ["--epochs", str(self.epochs), "--lr-schedule", steps, *limit]

    def timing(self, workers, steps, epochs):
        """Some epochs of so many steps, without drops, and next to no evaluation."""
        one = workers * self.batch
        return self.flags() + ["--epochs", str(epochs), "--train-limit", str(steps * one), "--eval-limit", str(one)]


TASKS = {t.name: t for t in (
    Task("resnet20", "cifar-resnet20", 32, "pixels"),
    Task("vgg16", "cifar-vgg16", 32, "pixels", lr=0.005, train_limit=10_000),  # at the paper's 0.1 it hardly learns from so few steps
    Task("resnet50", "resnet50", 4, "images", time_only=True),
)}


class Method:
    """A strategy with its ratio and, where it has several, a plan, and a rule of DLGS."""

    def __init__(self, label, strategy, spars=None, plan=None, every=None, rule=None):
        self.label, self.strategy, self.spars, self.plan, self.every, self.rule = label, strategy, spars, plan, every, rule

    @property
    def name(self):
        """In names of files."""
        parts = [self.strategy, "" if self.spars is None else f"{self.spars:g}", self.plan or "", f"every{self.every}" if self.every else "", self.rule or ""]
        return "-".join(p for p in parts if p)

    @property
    def title(self):
        return self.label if self.spars is None else f"{self.label} {self.spars:g}"

    def flags(self):
        out = ["--strategy", self.strategy]
        for flag, name, value in (("--spars", "", self.spars), ("--plan", "", self.plan),
                                  ("--set", "exchange.dlgs-every=", self.every), ("--set", "exchange.dlgs-rule=", self.rule)):
            out += [] if value is None else [flag, name + (f"{value:g}" if isinstance(value, float) else str(value))]
        return out + (["--tune"] if self.plan in MEASURED_PLANS else [])


RATIOS = (0.1, 0.01)
DENSE_PLANS = ("one", "per-layer", "fixed", "mgwfbp", "exact")
MEASURED_PLANS = ("mgwfbp", "dlgs-scan", "exact")  # made from what the first steps take
DLGS_PLAN = "exact"
PAPER_PLAN, PAPER_RULE = "dlgs-scan", "paper"  # the paper's Algorithms 2 and 1
SPARSE_PLANS = ("one", "per-layer", "fixed", "mgwfbp", "dlgs-scan", "exact")


def dense(plan):
    return Method("uncompressed", "fp32", plan=plan)


def sparse(ratios=RATIOS):
    """The paper's other methods."""
    out = []
    for ratio in ratios:
        out += [Method("top-k", "topk", ratio), Method("LAGS", "lags", ratio), dlgs(ratio, DLGS_PLAN)]
    return out


def dlgs(ratio, plan, rule=None):
    """DLGS by the default rule, or by the paper's."""
    return Method("DLGS as printed" if rule == PAPER_RULE else "DLGS", "dlgs", ratio, plan, rule=rule)


def rules(ratio):
    """DLGS by both rules, each with both planners: the paper's rule and planner first, ours last."""
    return [dlgs(ratio, plan, rule) for rule in (PAPER_RULE, None) for plan in (PAPER_PLAN, DLGS_PLAN)]


def trained_methods(both_rules=False):
    """The paper's methods, each once: those whose accuracy is compared; with both rules DLGS as printed, too, with its plan."""
    return [dense("exact"), *sparse(), *(dlgs(ratio, PAPER_PLAN, PAPER_RULE) for ratio in RATIOS if both_rules)]


def auto_candidates(spars):
    """What `auto` chooses from, with the plans that it makes."""
    dense = [Method(s, s, plan="exact") for s in ("fp32", "fp16", "bf16")]
    return [*dense, dlgs(spars, DLGS_PLAN), Method("top-k", "topk", spars)]
