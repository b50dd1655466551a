"""The ten accuracies of DistOpt's text, by two launchers, and bytes and accuracy of each of its options."""
import os, shutil, tempfile

import papers

# The text's: accuracy on the test images after each epoch, two workers, by its own launcher; by MPI it gives the last alone.
TEXT = [0.9564, 0.9776, 0.9814, 0.9841, 0.9853, 0.9863, 0.9879, 0.9882, 0.9887, 0.9891]
TEXT_MPI = 0.9887
OPTIONS = {
    "fp32": [], "fp16": [], "partialUpdate": [],
    "sparseTopK": ["--spars", "0.05"], "sparseThreshold": ["--spars", "0.001"],
}
PATIENCE = 1800  # seconds, for one training


def command(o, option):
    """The text's settings. Over TCP, by the ring, bytes are counted as between hosts."""
    small = ["--epochs", "2", "--train-limit", "12800"] if o.quick else ["--epochs", "10"]
    return ["train", "mnist", "--data", o.data, *small, "--batch", "64", "--lr", "0.005", "--momentum", "0.9", "--weight-decay", "1e-5",
            "--strategy", option, *OPTIONS[option], "--transport", "tcp", "--collective-algorithm", "ring", "--json", "-", "--progress", "none"]


def training(line, **how):
    lines = papers.records(line, PATIENCE, **how)
    epochs, last = [r for r in lines if r["event"] == "epoch"], lines[-1]
    return {"accuracy": [e["eval_accuracy"] for e in epochs], "step_bytes_sent": epochs[-1]["step_bytes_sent"],
            "params": last["params"], "params_sha256": last["params_sha256"]}


def by_mpi(o):
    """The job of fp32, started by Open MPI from a file of hosts."""
    mpiexec = shutil.which("mpiexec.openmpi") or shutil.which("mpiexec")
    if not mpiexec:
        raise SystemExit("no mpiexec: install openmpi-bin")
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        hosts.write("localhost slots=2\n")
        hosts.flush()
        start = [mpiexec, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--hostfile", hosts.name, "-np", "2"]
        return training([*start, o.ringo, *command(o, "fp32")])


def measure(o, kept):
    if not os.path.isdir(o.data):
        raise SystemExit(f"no folder {o.data!r}: --data names one with the four files of MNIST")
    for option in OPTIONS:
        kept.measure(option, lambda: training([o.ringo, *command(o, option), "--np", "2"]))
    kept.measure("fp32, mpiexec", lambda: by_mpi(o))


def tables(values):
    ours, mpi = values["fp32"]["accuracy"], values["fp32, mpiexec"]["accuracy"]
    whole = len(ours) == len(TEXT)
    rows = [[i + 1, f"{TEXT[i]:.4f}", f"{ours[i]:.4f}", f"{mpi[i]:.4f}"] for i in range(len(ours))]
    text = papers.table(["epoch", "text", "`ringo train --np 2`", "`mpiexec --hostfile`"], rows)
    if whole:
        text += f"\nWith MPI the text gives the last accuracy alone, {TEXT_MPI}.\n"
    same = values["fp32"]["params_sha256"] == values["fp32, mpiexec"]["params_sha256"]
    text += f"\nThe parameters of both launchers are {'equal' if same else 'NOT equal'} bit for bit.\n\n"
    full = values["fp32"]["step_bytes_sent"]
    rows = [[f"`{' '.join([name, *OPTIONS[name]])}`", f"{values[name]['accuracy'][-1]:.4f}", f"{values[name]['step_bytes_sent']:,.0f}",
             f"{values[name]['step_bytes_sent'] / full:.3f}"] for name in OPTIONS]
    text += papers.table(["option", f"accuracy after {len(ours)} epochs", "bytes sent by a rank in a step", "of fp32"], rows)
    return text + f"\nMachine: {values['machine']}.\n"
