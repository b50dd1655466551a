"""Runs of `ringo train` whose ranks are started one by one, each on its host; whole runs are kept."""
import json, os, secrets, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import netns

PORT = 7000  # of the rendezvous


def build(binary, folder):
    """The binary that was named, or one built from this tree."""
    if binary:
        return os.path.abspath(binary)
    binary = os.path.join(folder, "ringo")
    subprocess.run(["go", "build", "-o", binary, "./cmd/ringo"], cwd=ROOT, check=True)
    return binary


class Run:
    """What a run has told: its epochs' lines and its summary."""

    def __init__(self, lines):
        events = [json.loads(line) for line in lines if line.startswith("{")]
        self.command = next((e for e in events if e.get("event") == "command"), {})
        self.epochs = [e for e in events if e.get("event") == "epoch"]
        self.summary = next((e for e in events if e.get("event") == "summary"), None)
        self.events = events

    def last(self, *kinds):
        """The last line of one of these kinds; empty if there is none."""
        return next((e for e in reversed(self.events) if e.get("event") in kinds), {})


class Runner:
    """Makes runs and keeps them in a folder: one that is whole is not made again with the same settings."""

    def __init__(self, ringo, out, workers, deadline, grace=5):
        self.ringo, self.out, self.workers = ringo, out, workers
        self.deadline, self.grace = deadline, grace  # seconds: of a run, and to say why after one of its ranks has failed
        self.prefix, self.watch = [], None  # before the command of a run here; called ten times a second with its processes
        os.makedirs(out, exist_ok=True)

    def path(self, name):
        return os.path.join(self.out, name + ".jsonl")

    def kept(self, name, made_by=None):
        """The whole run of that name, if there is one; made_by says with which settings."""
        if not os.path.exists(self.path(name)):
            return None
        with open(self.path(name)) as f:
            run = Run(f)
        return run if run.summary and made_by in (None, run.command) else None

    def on_hosts(self, net, name, model, *flags, **conditions):
        """A run with a rank on each host of net. conditions are what else decides it, such as the links' rate."""
        made_by = {"event": "command", "model": model, "flags": list(flags), "workers": self.workers, **conditions}
        return self.kept(name, made_by) or self.make(name, made_by, lambda json_file: [self.by_hand(net, i, model, flags, json_file) for i in range(self.workers)])

    def here(self, name, model, *flags, **conditions):
        """A run whose ranks are processes of this host."""
        made_by = {"event": "command", "model": model, "flags": list(flags), "workers": self.workers, **conditions}
        launch = lambda json_file: [[*self.prefix, self.ringo, "train", model, "--np", str(self.workers), "--progress", "none", "--json", json_file, *flags]]
        return self.kept(name, made_by) or self.make(name, made_by, launch)

    def by_hand(self, net, rank, model, flags, json_file):
        command = [*net.enter(rank), self.ringo, "train", model, "--np", str(self.workers), "--rank", str(rank), "--rendezvous", f"{net.address(0)}:{PORT}",
                   "--transport", "tcp", "--threads", "1", "--progress", "none", *flags]
        return command + (["--json", json_file] if rank == 0 else [])

    def make(self, name, made_by, commands):
        print(f"{name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            json_file = os.path.join(folder, "run.jsonl")
            self.wait(name, commands(json_file), folder, json_file)
            with open(json_file) as f:
                lines = [json.dumps(made_by) + "\n", *f]
        run = Run(lines)
        if not run.summary:
            raise SystemExit(f"{name}: ended without a summary")
        with open(self.path(name) + ".part", "w") as f:
            f.writelines(lines)
        os.replace(self.path(name) + ".part", self.path(name))
        return run

    def wait(self, name, commands, folder, json_file):
        """Starts the processes and returns when all have ended well. If one fails the others are killed."""
        env = dict(os.environ, RINGO_TICKET=secrets.token_hex(32))
        logs = [os.path.join(folder, f"log{i}") for i in range(len(commands))]
        ranks, told, limit = [], 0, time.monotonic() + self.deadline
        try:
            for command, log in zip(commands, logs):
                with open(log, "w") as f:
                    ranks.append(netns.start(command, env=env, stdin=subprocess.DEVNULL, stdout=f, stderr=f))
            while any(p.poll() is None for p in ranks):
                if any(p.returncode for p in ranks):
                    time.sleep(self.grace)  # the others say who is lost
                    break
                if time.monotonic() > limit:
                    raise SystemExit(f"{name}: not done after {self.deadline} s (--deadline)\n{tails(logs)}")
                told = tell(json_file, told)
                if self.watch:
                    self.watch(ranks)
                time.sleep(0.1)
            tell(json_file, told)
        finally:
            netns.end(ranks)
        if any(p.returncode for p in ranks):
            raise SystemExit(f"{name}: {' '.join(commands[0])}\nexit {', '.join(str(p.returncode) for p in ranks)}\n{tails(logs)}")


def tails(logs):
    """The last lines of what each process wrote."""
    out = []
    for i, log in enumerate(logs):
        with open(log, errors="replace") as f:
            out += [f"  {i}: {line.rstrip()}" for line in f.readlines()[-6:]]
    return "\n".join(out)


def tell(json_file, told):
    """Prints the epochs that have ended since; returns how many have been told."""
    if not os.path.exists(json_file):
        return told
    with open(json_file) as f:
        epochs = [json.loads(line) for line in f if line.endswith("\n") and '"epoch"' in line]
    epochs = [e for e in epochs if e.get("event") == "epoch"]
    for e in epochs[told:]:
        print(f"  epoch {e['epoch']}: {e['step_ms']:.1f} ms per step, {e['exposed_comm_ms']:.1f} exposed; train loss {e['train_loss']:.4f}, accuracy {e['eval_accuracy']:.4f}", file=sys.stderr, flush=True)
    return len(epochs)
