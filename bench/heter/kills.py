#!/usr/bin/env python3
"""Kills heter-trainers of a job at random, and wants it to end as one that was left alone.

usage: bench/heter/kills.py --ringo FILE [--seconds 600] [--signals KILL,STOP] [--seed 1]

A job of two trainers, two servers and two heter-trainers, which the launcher starts again (job.max-restarts), trains ctr-dnn. Every few seconds one of
the heter-trainers gets a signal, as soon as both take part. The samples of every epoch must all have been trained on, the job must end well, and its AUC is
printed beside that of the same job left alone. Exits 1 where a job fails.
"""
import argparse, json, os, random, re, signal, subprocess, sys, tempfile, threading, time

TRAIN = ["train", "ctr-dnn", "--data", "synthetic", "--train-limit", "20000", "--eval-limit", "8000", "--batch", "128", "--threads", "1", "--np", "2", "--servers", "2", "--heter", "2",
         "--progress", "none", "--heartbeat-timeout", "2s", "--lr", "0.001", "--set", "job.max-restarts=1000000"]


class Job:
    """A job, and what it says of its heter-trainers."""

    def __init__(self, ringo, epochs, folder):
        self.json = os.path.join(folder, "json")
        self.out = subprocess.Popen([ringo, *TRAIN, "--epochs", str(epochs), "--json", self.json], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines, self.lost, self.back = [], [0, 0], [0, 0]
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.out.stdout:
            self.lines.append(line)
            for i in range(2):
                self.lost[i] += f"ringo: heter-trainer {i} is lost" in line.split(";")[0]
                self.back[i] += f"heter-trainer {i}: it has the others' parameters, and takes part" in line.split(";")[0]

    def heter(self, index):
        """The process id of a heter-trainer; None: there is none now."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ") as f, open(f"/proc/{pid}/stat") as s:
                    if f"RINGO_HETER_INDEX={index}\0" in f.read() and int(s.read().rsplit(")", 1)[1].split()[1]) == self.out.pid:
                        return int(pid)
            except OSError:
                pass

    def epochs(self):
        try:
            with open(self.json) as f:
                return [e for e in (json.loads(line) for line in f if line.endswith("\n")) if e["event"] == "epoch"]
        except FileNotFoundError:
            return []

    def end(self, deadline):
        try:
            status = self.out.wait(timeout=deadline)
        except subprocess.TimeoutExpired:
            self.out.kill()
            raise SystemExit("not ended in time:\n" + "".join(self.lines[-40:]))
        if status:
            raise SystemExit(f"status {status}:\n" + "".join(self.lines[-40:]))
        return self.epochs()


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--ringo", required=True, help="the binary")
    ap.add_argument("--seconds", type=float, default=600, help="for how long heter-trainers are killed")
    ap.add_argument("--signals", default="KILL,STOP")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--epochs", type=int, default=0, help="of each job; 0: measured first, so that it lasts about as long")
    o = ap.parse_args()
    rng, kinds = random.Random(o.seed), [getattr(signal, "SIG" + s) for s in o.signals.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        if not o.epochs:
            begun = time.monotonic()
            Job(o.ringo, 5, folder).end(300)
            o.epochs = max(5, int(o.seconds / (time.monotonic() - begun) * 5 * 0.8))
            os.remove(os.path.join(folder, "json"))
        job, killed, begun = Job(o.ringo, o.epochs, folder), 0, time.monotonic()
        while job.out.poll() is None and time.monotonic() < begun + o.seconds:
            time.sleep(rng.uniform(0.5, 4))
            if sum(job.lost) < killed or job.back != job.lost or not job.epochs():
                continue  # one is still away, or not known to be
            pid = job.heter(rng.randrange(2))
            if pid and job.out.poll() is None:
                os.kill(pid, rng.choice(kinds))
                killed += 1
        hurt = job.end(o.seconds + 300)
        took = time.monotonic() - begun
        os.remove(job.json)
        alone = Job(o.ringo, o.epochs, folder).end(o.seconds + 300)
    if len(hurt) != o.epochs or len(alone) != o.epochs:
        raise SystemExit(f"{len(hurt)} and {len(alone)} epochs of {o.epochs}")
    for name, of in (("killed", hurt), ("left alone", alone)):
        print(f"{name}: AUC of epochs 1, 2, 3 and the last {[round(of[i]['eval_auc'], 5) for i in (0, 1, 2, -1)]}, training loss {of[-1]['train_loss']:.6f}")
    print(f"{killed} heter-trainers killed or stopped in {took:.0f} s, {sum(job.lost)} were lost, {sum(job.back)} came back")


if __name__ == "__main__":
    main()
