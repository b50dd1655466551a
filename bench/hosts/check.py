#!/usr/bin/env python3
"""Starts mnist on four hosts by `ringo train --hosts` through a real sshd, wants the parameters of `ringo train --np 4`, and breaks jobs at random.

usage: bench/hosts/check.py [--faults N] [--seed S] [--ringo FILE]

Hosts are network namespaces on a bridge with names, memory and an sshd of their own. A fault kills a session of sshd, a host's launcher, the
job's launcher or a rank, or cuts a host's link: then everything is to end on every host within a deadline, and the launcher names
what it was. It needs Linux, root, Debian's iproute2 and
openssh-server, and changes nothing of this host's own network or sshd.
"""
import argparse, contextlib, os, random, re, shutil, signal, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
import netns

HOSTS = 4
SMALL = ["train", "mnist", "--data", "synthetic", "--train-limit", "2000", "--eval-limit", "500", "--progress", "none", "--collective-algorithm", "ring"]  # by itself a job chooses by which ranks share a host
TIMES = ["--heartbeat-timeout", "3s"]
DEADLINE = 25  # seconds, for a cut link: 9 s until a host is lost, with what follows
SOON = 14  # for all else
PATIENCE = 60


def need(*tools):
    for tool in tools:
        if not shutil.which(tool) and not os.path.exists(f"/usr/sbin/{tool}"):
            raise SystemExit(f"no {tool}: install iproute2, openssh-client and openssh-server")


class Hosts:
    """Four hosts h0 … h3, of which h0 is the launcher's, each with a name, memory and a temporary folder of its own."""

    def __init__(self, net, folder):
        self.net, self.folder, self.daemons = net, folder, []
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/key"], check=True)
        os.makedirs("/run/sshd", exist_ok=True)
        known = open(f"{folder}/known", "w")
        config = open(f"{folder}/config", "w")
        for i in range(HOSTS):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/host{i}"], check=True)
            public = open(f"{folder}/host{i}.pub").read().split()
            known.write(f"{net.address(i)} {public[0]} {public[1]}\n")
            config.write(f"Host h{i}\n  HostName {net.address(i)}\n  User root\n  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking yes\n")
            with open(f"{folder}/sshd{i}", "w") as f:
                f.write(f"ListenAddress {net.address(i)}\nHostKey {folder}/host{i}\nAuthorizedKeysFile {folder}/key.pub\nPidFile {folder}/sshd{i}.pid\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nMaxStartups 100\n")
        known.close()
        config.close()
        for i in range(HOSTS):
            self.daemons.append(netns.start(self.inside(i, [shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-f", f"{folder}/sshd{i}"]), stderr=subprocess.DEVNULL))
        end = time.time() + 20
        while any(subprocess.run(self.inside(0, ["ssh", "-F", f"{folder}/config", "-o", "BatchMode=yes", f"h{i}", "true"]), capture_output=True).returncode for i in range(HOSTS)):
            if time.time() > end:
                raise SystemExit("the hosts' sshd do not answer")
            time.sleep(0.2)

    def inside(self, i, command):
        script = f"hostname h{i}; mount -t tmpfs none /dev/shm; export TMPDIR=/dev/shm; exec \"$@\""
        return [*self.net.enter(i), "unshare", "--uts", "--mount", "sh", "-c", script, "sh", *command]

    def close(self):
        netns.end(self.daemons)


def processes(binary):
    """Those that run a binary: number, arguments and rank."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") != binary:
                continue
            words = open(f"/proc/{pid}/cmdline").read().split("\0")[:-1]
            env = dict(kv.split("=", 1) for kv in open(f"/proc/{pid}/environ").read().split("\0") if "=" in kv)
            space = os.stat(f"/proc/{pid}/ns/net").st_ino
        except (OSError, ValueError):
            continue
        rank = env.get("RINGO_RANK") if len(words) > 1 and words[1] == "train" else None
        found.append({"pid": int(pid), "words": words, "rank": rank and int(rank), "space": space})
    return found


def job(o, hosts, *more, **how):
    ssh = ["--set", f"job.ssh=ssh -F {hosts.folder}/config"]
    return netns.start(hosts.inside(0, [o.ringo, *SMALL, "--hosts", ",".join(f"h{i}" for i in range(HOSTS)), *ssh, *more]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, **how)


def hash_of(text, what):
    found = re.findall(r"params sha256 (\w+)", text)
    if len(found) != 1:
        raise SystemExit(f"{what}: {len(found)} of one hash\n{text}")
    return found[0]


def wait_for(p, pattern):
    """Reads a job's output up to a line with a pattern."""
    read, late = "", threading.Timer(PATIENCE, p.kill)
    late.start()
    for line in p.stdout:
        read += line
        if re.search(pattern, line):
            late.cancel()
            return read
    late.cancel()
    raise SystemExit(f"the job has ended before {pattern!r}\n{read}")


def session(space, name="sshd"):
    """The session of sshd by which a host's launcher was started: the parent's of its shell."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = open(f"/proc/{pid}/stat").read()
            if os.stat(f"/proc/{pid}/ns/net").st_ino == space and f"({name}" in stat and int(stat.rsplit(")", 1)[1].split()[1]) != 0:
                line = open(f"/proc/{pid}/cmdline").read()
                if "notty" in line or "@" in line:
                    yield int(pid)
        except OSError:
            pass


def strike(o, hosts, p, kind, rng):
    """Breaks something of a job, and says what the launcher is to tell."""
    all = processes(o.ringo)
    attending = [q for q in all if q["words"][1] == "attend-host"]
    ranks = {q["rank"]: q for q in all if q["rank"] is not None}
    victim = rng.randrange(1, HOSTS)
    on = rf"rank {victim} on h{victim}"
    space = ranks[victim]["space"]
    if kind == "rank":
        victim = rng.randrange(HOSTS)
        os.kill(ranks[victim]["pid"], signal.SIGKILL)
        return rf"rank {victim} on h{victim} is lost: killed by signal 9", None
    if kind == "session":
        for pid in session(space):
            os.kill(pid, signal.SIGKILL)
        return rf"{on} is lost: its host h{victim} is lost: ", None
    if kind == "attendant":
        os.kill(next(q["pid"] for q in attending if q["space"] == space), signal.SIGKILL)
        return rf"{on} is lost: (its host h{victim} is lost: |killed by signal 9)", None
    if kind == "link":
        device = ["ip", "-n", hosts.net.bridge, "link", "set", f"p{victim}"]
        subprocess.run([*device, "down"], check=True)
        return rf"(rank {victim}|rank \d+ on h{victim}|h{victim} is lost)", lambda: subprocess.run([*device, "up"], check=True)
    launcher = next(q["pid"] for q in all if q["words"][1] == "train" and q["rank"] is None)
    os.kill(launcher, signal.SIGKILL if kind == "launcher" else signal.SIGTERM)
    return "" if kind == "launcher" else "interrupted by SIGTERM", None


KINDS = ["rank", "session", "attendant", "link", "launcher", "told"]


def fault(o, hosts, kind, rng):
    p = job(o, hosts, "--epochs", "100000", *TIMES)
    read = wait_for(p, r"epoch +1/")
    time.sleep(rng.random())
    want, repair = strike(o, hosts, p, kind, rng)
    begun = time.time()
    try:
        read += p.communicate(timeout=DEADLINE + 10)[0]
        took = time.time() - begun
        limit = DEADLINE if kind == "link" else SOON
        while processes(o.ringo) and time.time() - begun < limit:
            time.sleep(0.1)
        left, all = processes(o.ringo), time.time() - begun
    finally:
        if repair:
            repair()
        p.kill()
    print(f"{kind:<10} launcher {took:5.1f} s, all {all:5.1f} s: {read.strip().splitlines()[-1][:150]}", flush=True)
    if left or not re.search(want, read):
        for q in left:
            os.kill(q["pid"], signal.SIGKILL)
        raise SystemExit(f"{kind}: left after {all:.1f} s {left}, want {want!r} in\n{read}")


def options(about, kinds, faults):
    """What the command line says of jobs that are broken."""
    ap = argparse.ArgumentParser(description=about)
    ap.add_argument("--faults", type=int, default=faults, help=f"how many jobs are broken (default {faults})")
    ap.add_argument("--kinds", default=",".join(kinds), help="which faults")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    return ap.parse_args()


@contextlib.contextmanager
def rig(o):
    """The hosts, each with an sshd, and a copy of the binary that they can all read, which o.ringo is then."""
    netns.need_root()
    netns.raise_on_signals()
    need("ssh", "sshd", "ssh-keygen", "unshare")
    with tempfile.TemporaryDirectory(prefix="ringo-hosts-") as folder, netns.Net("hosts", HOSTS) as net:
        os.chmod(folder, 0o755)
        mine = os.path.join(folder, "ringo")
        if o.ringo:
            shutil.copy(o.ringo, mine)
        else:
            subprocess.run(["go", "build", "-o", mine, "./cmd/ringo"], cwd=ROOT, check=True)
        o.ringo = mine
        hosts = Hosts(net, folder)
        try:
            yield hosts
        finally:
            hosts.close()


def same(p, want, where):
    """A job that has ended well with the parameters of another."""
    got = hash_of(p.communicate(timeout=PATIENCE)[0], where)
    print(f"one host   {want}\n{where} {got}", flush=True)
    if p.returncode != 0 or got != want:
        raise SystemExit(f"other parameters on {where}, status {p.returncode}")


def main():
    o = options(__doc__.split("\n")[0], KINDS, 6)
    with rig(o) as hosts:
        alone = subprocess.run([o.ringo, *SMALL, "--epochs", "1", "--np", str(HOSTS)], capture_output=True, text=True)
        same(job(o, hosts, "--epochs", "1"), hash_of(alone.stdout, "one host"), "four hosts")
        rng, kinds = random.Random(o.seed), o.kinds.split(",")
        for i in range(o.faults):
            fault(o, hosts, kinds[i % len(kinds)], rng)


if __name__ == "__main__":
    main()
