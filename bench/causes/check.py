#!/usr/bin/env python3
"""Slows real jobs in five ways, and looks whether their page and `ringo status` name the cause; three are not slowed, and nothing may be named.

usage: bench/causes/check.py [--ringo BINARY] [--only NAME,…] [--calm SECONDS] [--out FILE]

Each run is asked once a second, from ten seconds after it is slowed (or has begun) on: five times by the status and five by what the page
shows. A slowed run passes where all ten name its cause and rank, another one where none names any. A run beside which others than the job
had more than --foreign processors is made again, since that is a cause, too. Needs Linux, root, iproute2, and control groups for storage.
"""
import argparse, ctypes, glob, http.client, json, os, random, shutil, signal, socket, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SETTLE, ASKED = 11, 5  # seconds until the first question, and questions
TICK = os.sysconf("SC_CLK_TCK")
LIMIT = 4 << 20  # bytes a second of the slow disk
SLOW = "rate 100mbit burst 256kb latency 50ms"  # a slow link, as tc's token bucket takes it
FAR = "rate 2gbit burst 70kb latency 50ms mpu 50000"  # one on which each packet, however small, takes as long as 50 kB: 0.2 ms


class Left(Exception):
    """This machine cannot do it."""


# --- what runs, and what slows it -------------------------------------------------------------

MNIST = "mnist --data synthetic --np 2 --threads 1 --epochs 1000"
RESNET = "cifar-resnet20 --data synthetic --np 2 --threads 1 --epochs 1000"
CLICKS = "ctr-dnn --data {rows} --stream --set data.shuffle-window=-1 --np 2 --threads 1 --epochs 1000 --eval-limit 512"


def slow_rank(job):
    """Stops rank 1 for 30 ms of every 60."""

    def bursts():
        while not job.over.wait(0.03):
            os.kill(job.rank(1), signal.SIGSTOP)
            time.sleep(0.03)
            os.kill(job.rank(1), signal.SIGCONT)

    return job.beside(bursts)


def slow_disk(job):
    """Lets the job read LIMIT bytes a second from its disk, and nothing from memory."""
    device = os.stat(job.rows).st_dev
    if os.major(device) == 0:
        raise Left(f"{job.rows} lies on no disk: --dir")
    number = f"{os.major(device)}:{os.minor(device)}"
    group, limit = storage_group(number)
    job.at_end(lambda: leave(group, [job.pid, job.rank(0), job.rank(1)]))
    with open(limit, "w") as f:
        f.write(f"{number} {LIMIT}\n" if "blkio" in limit else f"{number} rbps={LIMIT}\n")
    for pid in (job.rank(0), job.rank(1)):
        join(group, pid)

    def forget():
        evict(job.rows)
        while not job.over.wait(3):  # sooner, what has just been read for a rank would be gone before it has it
            evict(job.rows)

    return job.beside(forget)


def core_taken(job):
    """Runs a loop on the processor that rank 1 is bound to."""
    core = min(os.sched_getaffinity(job.rank(1)))
    loop = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"], preexec_fn=with_parent)
    job.at_end(lambda: (loop.kill(), loop.wait()))


# The runs: name, what is trained, over what link the ranks speak ("": the usual one), what slows it, and the cause and rank that must be named.
RUNS = [
    ("slow rank", MNIST, "", slow_rank, ("slow_rank", 1)),
    ("slow disk", CLICKS, "", slow_disk, ("slow_disk", None)),
    ("slow link", MNIST + " --transport tcp", SLOW, None, ("slow_link", -1)),
    ("small buckets", RESNET + " --transport tcp --plan per-layer --batch 4", FAR, None, ("small_buckets", -1)),
    ("a core taken", MNIST, "", core_taken, ("core_taken", 1)),
    ("undisturbed: mnist in shared memory", MNIST, "", None, None),
    ("undisturbed: resnet-20 over TCP", RESNET + " --transport tcp", "", None, None),
    ("undisturbed: clicks from a file", CLICKS, "", None, None),
]


# --- the machine ------------------------------------------------------------------------------


def with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def storage_group(number):
    """A control group for storage and the file of its limit."""
    name = f"ringo-causes-{os.getpid()}"
    for root, limit in (("/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device"), ("/sys/fs/cgroup", "io.max")):
        group = os.path.join(root, name)
        try:
            os.mkdir(group)
        except OSError:
            continue
        if os.path.exists(os.path.join(group, limit)):
            return group, os.path.join(group, limit)
        os.rmdir(group)
    raise Left("there is no control group that limits storage")


def join(group, pid):
    with open(os.path.join(group, "cgroup.procs"), "w") as f:
        f.write(f"{pid}\n")


def leave(group, pids):
    """Removes a group whose processes have ended, or go to its parent."""
    for pid in pids:
        try:
            join(os.path.dirname(group), pid)
        except OSError:
            pass  # it has ended
    for _ in range(100):
        try:
            return os.rmdir(group)
        except OSError:
            time.sleep(0.1)


def evict(folder):
    """Makes the system forget the files of a folder."""
    for path in glob.glob(os.path.join(folder, "*")):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def busy():
    """Seconds for which the machine's processors have run processes."""
    user, nice, system, _, _, _, _, steal = map(int, open("/proc/stat").readline().split()[1:9])
    return (user + nice + system + steal) / TICK


def taken(pids):
    sum = 0
    for pid in pids:
        try:
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            sum += (int(fields[11]) + int(fields[12])) / TICK
        except OSError:
            pass
    return sum


def rest(seconds, most):
    """Waits until processes have no more than so many processors for two seconds; false where that does not come."""
    end = time.time() + seconds
    while time.time() < end:
        before = busy()
        time.sleep(2)
        if (busy() - before) / 2 <= most:
            return True
    return False


def write_rows(folder, rows=240_000):
    """Rows as Criteo has them, in which there is nothing to learn: 70 MB, of which every 5,000 are the same."""
    r = random.Random(1)
    row = lambda: "\t".join([str(r.randrange(4) // 3)] + [str(r.randrange(1000)) for _ in range(13)] + ["%08x" % r.randrange(1 << 20) for _ in range(26)]) + "\n"
    some = "".join(row() for _ in range(5000))
    for name, times in (("train.tsv", rows // 5000), ("test.tsv", 1)):
        with open(os.path.join(folder, name), "w") as f:
            for _ in range(times):
                f.write(some)
            f.flush()
            os.fsync(f.fileno())


# --- a job ------------------------------------------------------------------------------------


class OverSocket(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("job", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Job:
    """A `ringo train` with a page, until close."""

    def __init__(self, ringo, what, shaped, rows, said):
        self.ringo, self.rows, self.over, self.ends, self.threads, self.said = ringo, rows, threading.Event(), [], [], said
        command = [ringo, "train", *what.format(rows=rows).split(), "--http", "127.0.0.1:0", "--progress", "none"]
        if shaped:  # a host of its own, whose ranks speak over a shaped link
            if not shutil.which("tc") or not shutil.which("unshare"):
                raise Left("no tc, or no unshare")
            lo = f"ip link set lo up && tc qdisc add dev lo root tbf {shaped}"
            command = ["unshare", "--net", "sh", "-c", f'{lo} && exec "$0" "$@"', *command]
        self.process = subprocess.Popen(command, stdout=said, stderr=said, preexec_fn=with_parent)
        self.pid = self.process.pid
        self.pids = {}

    def beside(self, do):
        def guarded():
            try:
                do()
            except ProcessLookupError:
                pass  # it has ended

        t = threading.Thread(target=guarded)
        t.start()
        self.threads.append(t)

    def at_end(self, do):
        self.ends.append(do)

    def rank(self, n):
        return self.pids[n]

    def status(self):
        """What `ringo status` says."""
        p = subprocess.run([self.ringo, "status", str(self.pid), "--json", "-"], capture_output=True, text=True)
        return json.loads(p.stdout) if p.returncode == 0 else None

    def page(self):
        """What the page's panel of causes shows: its text, "" for none."""
        path = glob.glob(f"/dev/shm/ringo-job-{os.getuid()}-{self.pid}-*/answers")
        c = OverSocket(path[0])
        c.request("GET", "/state")
        panel = next(p for p in json.loads(c.getresponse().read())["panels"] if p["id"] == "cause")
        return panel["rows"][0][1] if panel["kind"] != "none" else ""

    def begin(self, seconds=90):
        """Waits until all ranks have told of steps."""
        end = time.time() + seconds
        while time.time() < end:
            if self.process.poll() is not None:
                raise SystemExit(f"the job has ended:\n{tail(self.said)}")
            s = self.status()
            if s and s["processes"] and all(p["step"] > 4 for p in s["processes"]):
                self.pids = {p["rank"]: p["pid"] for p in s["processes"]}
                return
            time.sleep(0.5)
        raise SystemExit(f"no steps within {seconds} s:\n{tail(self.said)}")

    def close(self):
        self.over.set()
        for t in self.threads:
            t.join()
        for do in self.ends:
            do()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def tail(said):
    said.flush()
    return "\n".join(open(said.name).read().splitlines()[-20:])


# --- the check --------------------------------------------------------------------------------


def judge(want, statuses, pages):
    """Whether what was said is what is wanted: a cause and its rank (None: any), or None for nothing."""
    if want is None:
        return not any(statuses) and not any(pages)
    kind, rank = want
    right = lambda c: c is not None and c["kind"] == kind and (rank is None or c["rank"] == rank)
    return len(statuses) > 0 and len(pages) > 0 and all(map(right, statuses)) and all(pages)


def one(o, rows, name, what, shaped, slows, want):
    """A run: what was said, and how many processors others had meanwhile."""
    with tempfile.NamedTemporaryFile("w", prefix="ringo-causes-") as said:
        job = Job(o.binary, what, shaped, rows, said)
        try:
            job.begin()
            slowed = slows(job) if slows else None
            time.sleep(SETTLE)
            own = [job.pid, *job.pids.values()]
            before, begun = busy() - taken(own), time.time()
            statuses, pages = [], []
            for _ in range(ASKED):
                time.sleep(1)
                s = job.status()
                statuses.append(s["cause"])
                pages.append(job.page())
            foreign = (busy() - taken(own) - before) / (time.time() - begun)
        finally:
            job.close()
    step = {k: v for k, v in s["step"].items() if v}
    return {"run": name, "want": want and want[0], "named": [c and c["kind"] for c in statuses], "ranks": [c and c["rank"] for c in statuses], "text": pages[-1],
            "foreign_processors": round(foreign, 2), "step": step, "right": judge(want, statuses, pages)}


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    ap.add_argument("--only", default="", help="the runs whose names begin with one of these, by commas")
    ap.add_argument("--calm", type=float, default=600, help="for how many seconds to wait for a machine on which nothing else runs")
    ap.add_argument("--foreign", type=float, default=0.15, help="how many processors others may have beside a run")
    ap.add_argument("--tries", type=int, default=3, help="how often a run is made beside which others ran")
    ap.add_argument("--dir", help="a folder on a disk for 70 MB of rows (default: that for temporary files)")
    ap.add_argument("--out", default="", help="a file for the results, a line of JSON a run")
    o = ap.parse_args()
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        raise SystemExit("this needs Linux and root")
    results = []
    with tempfile.TemporaryDirectory(prefix="ringo-causes-", dir=o.dir) as folder:
        o.binary = o.ringo or os.path.join(folder, "ringo")
        if not o.ringo:
            subprocess.run(["go", "build", "-o", o.binary, "./cmd/ringo"], cwd=ROOT, check=True)
        rows = os.path.join(folder, "rows")
        os.mkdir(rows)
        write_rows(rows)
        for run in RUNS:
            if o.only and not any(run[0].startswith(n) for n in o.only.split(",")):
                continue
            r = attempt(o, rows, run)
            results.append(r)
            print(("right  " if r.get("right") else "LEFT   " if "left" in r else "WRONG  ") + run[0] + ": " + (r.get("left") or r["text"] or "nothing is named"), flush=True)
            if o.out:
                with open(o.out, "a") as f:
                    f.write(json.dumps(r) + "\n")
    slowed = [r for r in results if r.get("want")]
    others = [r for r in results if not r.get("want") and "left" not in r]
    print(f"{sum(r['right'] for r in slowed)} of {len(slowed)} slowed runs named, {sum(not r['right'] for r in others)} of {len(others)} undisturbed ones accused of anything")
    sys.exit(any("left" in r or not r["right"] for r in results))


def attempt(o, rows, run):
    """Makes a run beside which others did not run."""
    for _ in range(o.tries):
        if not rest(o.calm, o.foreign):
            return {"run": run[0], "left": f"others ran on this machine for {o.calm:g} s"}
        try:
            r = one(o, rows, *run)
        except Left as why:
            return {"run": run[0], "left": str(why)}
        if r["foreign_processors"] <= o.foreign or run[3] is core_taken:
            return r
    return {"run": run[0], "left": f"others ran beside it, {o.tries} times"}


if __name__ == "__main__":
    main()
