#!/usr/bin/env python3
"""Starts one job by every launcher that this machine has, and wants of each the parameters of `ringo train --np N`.

usage: bench/launchers/check.py [--np N] [--ringo FILE] [--require LIST]

It starts mnist, on synthetic digits, by Open MPI's and MPICH's mpirun, by torchrun, and by srun on a Slurm of its own with two nodes,
all on this host. What is not installed is left out, and said; --require names what must be there. Debian's packages are openmpi-bin,
mpich, python3-torch, and slurm-wlm with munge, which needs root.
"""
import argparse, contextlib, json, os, shutil, socket, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TRAIN = ["train", "mnist", "--data", "synthetic", "--train-limit", "2000", "--eval-limit", "500", "--epochs", "1", "--progress", "none"]
PATIENCE = 120  # seconds, for one job


class Left(Exception):
    """A launcher is not there, or cannot be used: why."""


def tool(name, build=""):
    """Debian names the tools of one MPI among several by its build; elsewhere there is one."""
    found = shutil.which(f"{name}.{build}") if build else None
    found = found or shutil.which(name)
    if not found:
        raise Left(f"no {name}")
    return found


def command(o, *more):
    return [o.ringo, *TRAIN, *more]


def openmpi(o, folder):
    yield [tool("mpirun", "openmpi"), "--allow-run-as-root", "--oversubscribe", "-np", str(o.np), *command(o)], {}
    hosts = os.path.join(folder, "hosts")
    with open(hosts, "w") as f:
        f.write(f"localhost slots={o.np}\n")
    yield [tool("mpirun", "openmpi"), "--allow-run-as-root", "--hostfile", hosts, "-np", str(o.np), *command(o)], {}


def mpich(o, folder):
    run = tool("mpirun", "mpich")
    if "HYDRA" not in subprocess.run([run, "--version"], capture_output=True, text=True).stdout:
        raise Left(f"{run} is not MPICH's")
    yield [run, "-np", str(o.np), *command(o)], {}


def torchrun(o, folder):
    for python in ("/usr/bin/python3", sys.executable):
        if subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True).returncode == 0:
            logs = os.path.join(folder, "logs")  # without these options PyTorch 1.13 fails on Python 3.11
            yield [python, "-m", "torch.distributed.run", "--nproc_per_node", str(o.np), "--no_python", "--redirects", "1", "--tee", "1", "--log_dir", logs, *command(o)], {}
            return
    raise Left("no python3 with torch")


def srun(o, folder):
    with slurm(folder) as env:
        ticket = os.path.join(folder, "ticket")
        subprocess.run([o.ringo, "ticket", ticket], check=True)
        meet = ["--rendezvous", os.path.join(folder, "meet"), "--ticket-file", ticket]
        # Slurm takes the ready script: it says when the job would start, and starts none. Its nodes here are small.
        ready = os.path.join(ROOT, "deploy", "ringo.sbatch")
        said = subprocess.run([tool("sbatch"), "--test-only", ready], env=dict(os.environ, **env), capture_output=True, text=True)
        if said.returncode != 0 or "to start at" not in said.stderr:
            raise SystemExit(f"sbatch --test-only {ready}: exit {said.returncode}: {said.stderr}")
        yield [tool("srun"), "-N2", f"-n{o.np}", *command(o, *meet)], env
        if o.np <= 2:
            yield [tool("srun"), "-N1", f"-n{o.np}", *command(o)], env


@contextlib.contextmanager
def slurm(folder):
    """A Slurm of two nodes, both this host."""
    daemons = [tool("munged"), tool("slurmctld"), tool("slurmd")]
    tool("srun")
    if os.geteuid() != 0:
        raise Left("Slurm's daemons need root")
    key, started = os.path.join(folder, "munge.key"), []
    with open(key, "wb") as f:
        f.write(os.urandom(1024))
    os.chmod(key, 0o600)
    sock = os.path.join(folder, "munge.sock")
    name, ports = socket.gethostname().split(".")[0], free_ports(3)
    conf = os.path.join(folder, "slurm.conf")
    with open(conf, "w") as f:
        f.write(f"""ClusterName=check
SlurmctldHost={name}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={sock}
CryptoType=crypto/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/control.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/control.log
SlurmdLogFile={folder}/%n.log
NodeName=n1 NodeHostname={name} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8
NodeName=n2 NodeHostname={name} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
""")
    os.makedirs(os.path.join(folder, "state"))
    env = {"SLURM_CONF": conf}
    all_env = dict(os.environ, **env)
    try:
        for words in ([daemons[0], "--foreground", "--force", "--key-file", key, "--socket", sock, "--pid-file", f"{folder}/munged.pid",
                       "--log-file", f"{folder}/munged.log", "--seed-file", f"{folder}/munged.seed"],
                      [daemons[1], "-D"], [daemons[2], "-D", "-N", "n1"], [daemons[2], "-D", "-N", "n2"]):
            started.append(subprocess.Popen(words, env=all_env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(0.5)
        end = time.time() + 30
        while subprocess.run([tool("sinfo"), "-h", "-t", "idle", "-o", "%D"], env=all_env, capture_output=True, text=True).stdout.strip() != "2":
            if time.time() > end:
                raise Left(f"Slurm's nodes do not come up: see {folder}")
            time.sleep(0.3)
        yield env
    finally:
        for p in reversed(started):
            p.terminate()
        for p in started:
            p.wait()


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


LAUNCHERS = {"openmpi": openmpi, "mpich": mpich, "torchrun": torchrun, "srun": srun}


def parameters(words, env):
    """The hash of the parameters that a job ended with; a job tells it on one rank."""
    p = subprocess.run(words, env=dict(os.environ, **env), capture_output=True, text=True, timeout=PATIENCE)
    found = [text for line in (p.stdout + p.stderr).splitlines() if "params sha256 " in line for text in [line.split("params sha256 ")[1].split()[0]]]
    if p.returncode != 0 or len(found) != 1:
        raise SystemExit(f"{' '.join(words)}: exit {p.returncode}, {len(found)} of one hash\n{p.stdout}{p.stderr}")
    return found[0]


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--np", type=int, default=4, help="ranks (default 4)")
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    ap.add_argument("--require", default="", help="fail where these are not installed, such as openmpi,srun")
    o = ap.parse_args()
    required = [n for n in o.require.split(",") if n]
    for n in required:
        if n not in LAUNCHERS:
            ap.error(f"--require {n}: want some of {', '.join(LAUNCHERS)}")
    with tempfile.TemporaryDirectory() as folder:
        if not o.ringo:
            o.ringo = os.path.join(folder, "ringo")
            subprocess.run(["go", "build", "-o", o.ringo, "./cmd/ringo"], cwd=ROOT, check=True)
        want = parameters(command(o, "--np", str(o.np)), {})
        print(f"{'ringo train':<10} {want}")
        for name, start in LAUNCHERS.items():
            own = os.path.join(folder, name)
            os.makedirs(own)
            try:
                for words, env in start(o, own):
                    got = parameters(words, env)
                    print(f"{name:<10} {got}", flush=True)
                    if got != want:
                        raise SystemExit(f"{' '.join(words)}: other parameters than `ringo train --np {o.np}`")
            except Left as left:
                if name in required:
                    raise SystemExit(f"{name}: {left}")
                print(f"{name:<10} left out: {left}", flush=True)


if __name__ == "__main__":
    main()
