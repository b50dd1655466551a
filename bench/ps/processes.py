"""What an experiment does to the processes of a job: limits their memory, kills its servers, watches a folder."""
import os, random, signal, time


def descendants(pid):
    """The processes below one, as (pid, arguments); those that end meanwhile are left out."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as f:
                    parent = int(f.read().rsplit(")", 1)[1].split()[1])
                with open(f"/proc/{name}/cmdline") as f:
                    children.setdefault(parent, []).append((int(name), f.read().split("\0")))
            except OSError:
                pass
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [p for p, _ in below]
    return found


def servers(pid):
    """The processes of a job's servers; pid is the launcher's."""
    return sorted(p for p, args in descendants(pid) if args[1:2] == ["server"])


class Killer:
    """Kills a server of the job now and then, most times at most."""

    def __init__(self, most, every, seed):
        self.left, self.every, self.random = most, every, random.Random(seed)
        self.next, self.killed = time.monotonic() + every, 0

    def __call__(self, processes):
        if not self.left or time.monotonic() < self.next:
            return
        self.next = time.monotonic() + self.every * self.random.uniform(0.5, 1.5)
        victims = servers(processes[0].pid)
        if victims:
            os.kill(self.random.choice(victims), signal.SIGKILL)
            self.left -= 1
            self.killed += 1


class Folder:
    """The most bytes that files of certain folders below one have taken, as the file system counts them."""

    def __init__(self, path, below):
        self.path, self.below, self.most, self.next = path, below, 0, 0

    def __call__(self, _):
        if time.monotonic() < self.next:
            return
        self.next, total = time.monotonic() + 0.5, 0
        for folder, _, names in os.walk(self.path):
            if self.below not in folder.split(os.sep):
                continue
            for name in names:
                try:
                    total += os.stat(os.path.join(folder, name)).st_blocks * 512
                except OSError:
                    pass
        self.most = max(self.most, total)


class Cgroup:
    """A memory cgroup, of version 1 or 2, with a limit in bytes; needs root. Swap counts too where that is known."""

    def __init__(self, name, limit):
        v1 = "/sys/fs/cgroup/memory"
        self.old = os.path.isdir(v1)
        self.path = os.path.join(v1 if self.old else "/sys/fs/cgroup", name)
        try:
            if not self.old:
                self.write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")
            os.makedirs(self.path, exist_ok=True)
            for key in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if self.old else ("memory.max",):
                if os.path.exists(os.path.join(self.path, key)):
                    self.write(os.path.join(self.path, key), str(limit))
            if not self.old and os.path.exists(os.path.join(self.path, "memory.swap.max")):
                self.write(os.path.join(self.path, "memory.swap.max"), "0")
        except OSError as e:
            raise SystemExit(f"a memory cgroup cannot be made: {e}; root is needed, and a system that lets it")

    @staticmethod
    def write(path, text):
        with open(path, "w") as f:
            f.write(text)

    def enter(self):
        """What to put before a command that is to run in it."""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]

    def peak(self):
        """The most bytes that it has had, pages of files included; None where the system does not tell."""
        path = os.path.join(self.path, "memory.max_usage_in_bytes" if self.old else "memory.peak")
        if not os.path.exists(path):
            return None
        with open(path) as f:
            return int(f.read())

    def remove(self):
        for _ in range(100):
            try:
                return os.rmdir(self.path)
            except OSError:  # its last processes are ending
                time.sleep(0.1)
