#!/usr/bin/env python3
"""Preempts a job by SIGTERM at random moments, starts it again, and wants the parameters of one that was left alone.

usage: bench/hosts/preempt.py [--kills N] [--seed S] [--np N] [--ringo FILE] [--away URL]

Each start is the same command, with --checkpoint DIR --resume auto, as schedulers requeue jobs: it begins where there is no checkpoint,
and goes on where there is one, in a folder here or, with --away, below a URL such as file:///shared/runs or s3://bucket/runs?endpoint=…. It is told to end at a random moment, and has 30 s to save and end with status 143, as Slurm and Kubernetes give it.
"""
import argparse, os, random, re, signal, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRAIN = ["train", "mnist", "--data", "synthetic", "--train-limit", "4000", "--eval-limit", "200", "--epochs", "20", "--progress", "none", "--collective-algorithm", "ring"]
GRACE = 30  # seconds between SIGTERM and SIGKILL
PATIENCE = 300


def hash_of(text):
    found = re.findall(r"params sha256 (\w+)", text)
    return found[0] if len(found) == 1 else None


def once(words, after):
    """Starts a job, tells it to end after so long, and returns its status, output, and the time that it took to end."""
    p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        return 0, p.communicate(timeout=after)[0], 0
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGTERM)
    begun = time.time()
    try:
        text = p.communicate(timeout=GRACE)[0]
    except subprocess.TimeoutExpired:
        p.kill()
        raise SystemExit(f"not ended {GRACE} s after SIGTERM:\n{p.communicate()[0]}")
    return p.returncode, text, time.time() - begun


def below(place, name):
    """A name below a folder or a URL, whose query stays behind it."""
    at, mark, query = place.partition("?")
    return f"{at.rstrip('/')}/{name}{mark}{query}"


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--kills", type=int, default=20)
    ap.add_argument("--np", type=int, default=2)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    ap.add_argument("--away", default="", help="save below this URL, which holds nothing of these jobs yet (default: in a folder here)")
    o = ap.parse_args()
    rng, kills, jobs, slowest = random.Random(o.seed), 0, 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        if not o.ringo:
            o.ringo = os.path.join(folder, "ringo")
            subprocess.run(["go", "build", "-o", o.ringo, "./cmd/ringo"], cwd=ROOT, check=True)
        words = [o.ringo, *TRAIN, "--np", str(o.np)]
        begun = time.time()
        want = hash_of(subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE).stdout)
        whole = time.time() - begun
        if not want:
            raise SystemExit("the job that was left alone has failed")
        while kills < o.kills:
            place, jobs = below(o.away or folder, f"run{jobs}"), jobs + 1
            while True:
                after = rng.uniform(0.05, whole / 2) if kills < o.kills else PATIENCE
                status, text, took = once([*words, "--checkpoint", place, "--resume", "auto"], after)
                slowest = max(slowest, took)
                if status == 0:
                    break
                if status not in (143, -signal.SIGTERM):
                    raise SystemExit(f"status {status} of a job that was told to end:\n{text}")
                kills += 1
                print(f"kill {kills}: {took:.1f} s to end: {text.strip().splitlines()[-1][:140] if text.strip() else 'nothing said'}", flush=True)
            if hash_of(text) != want:
                raise SystemExit(f"other parameters than {want}:\n{text}")
            print(f"job {jobs}: {want}", flush=True)
    print(f"{kills} kills of {jobs} jobs, at most {slowest:.1f} s to end; all with the parameters of one that was left alone")


if __name__ == "__main__":
    main()
