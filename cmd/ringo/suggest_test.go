package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A flag that is misspelt, or called as other tools call it, is answered with ours.
func TestUnknownFlagsAreAnswered(t *testing.T) {
	for given, want := range map[string]string{
		"--batchsize 3": "--batch", "--batch-size 3": "--batch", "--batch_size=3": "--batch", "--bacth 3": "--batch",
		"--learning-rate 1": "--lr", "--lr_steps 1": "--lr-schedule",
		"--nproc 2": "--np", "--nproc-per-node 2": "--np", "--nproc_per_node=2": "--np", "--world-size 2": "--np",
		"--num-proc 2": "--np", "--epoch 3": "--epochs", "--num_train_epochs 3": "--epochs", "--wd 1": "--weight-decay", "--max-grad-norm 1": "--clip-norm",
		"--data-dir x": "--data", "--checkpoint-dir x": "--checkpoint", "--resume-from-checkpoint x": "--resume", "--backend nccl": "--transport",
		"--master_addr x": "--rendezvous", "--rdzv-endpoint x": "--rendezvous", "--node-rank 1": "--rank", "--timeline x": "--trace",
		"--bucket-cap-mb 25": "--bucket-bytes", "--num-threads 3": "--threads", "--strateg x": "--strategy", "--train-files x": "--train-file",
	} {
		checkRefused(t, exitUsage, "train mnist "+given, "(did you mean "+want+"?); see `ringo train --help`")
	}
	for _, given := range []string{"--zzzz", "-z", "--lr x", "--batch"} {
		if _, _, errs := command(t, "train mnist "+given); strings.Contains(errs, "did you mean") {
			t.Errorf("%s: %s", given, errs)
		}
	}
	checkRefused(t, exitUsage, "run --world-size 3 -- x", "(did you mean --np?)")
	checkRefused(t, exitUsage, "ps show --jsn x", "(did you mean --json?)")
}

// What other tools call a flag is a flag of ours on one command at least, and no
// name that we use ourselves stands for another.
func TestNamesElsewhere(t *testing.T) {
	for _, c := range elsewhere() {
		found := false
		each(newRoot(nil, nil), func(cmd *cobra.Command) { found = found || cmd.Flags().Lookup(c.flag) != nil })
		names := strings.Fields(c.names)
		if !found || slices.Contains(names, c.flag) || len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
			t.Errorf("--%s, elsewhere %q: there is %v", c.flag, names, found)
		}
		for _, name := range names {
			if name != strings.ToLower(name) || strings.ContainsAny(name, "-_") {
				t.Errorf("--%s: %q is never looked for", c.flag, name)
			}
		}
	}
}

// each visits a command and all below it.
func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		each(sub, visit)
	}
}

// Values of a list and models are answered likewise.
func TestUnknownValuesAreAnswered(t *testing.T) {
	for line, want := range map[string]string{
		"train mnits --data synthetic": "mnist", "train resnet-20 --data synthetic": "resnet20",
		"train mnist --data synthetic --strategy topkk": "topk", "train mnist --data synthetic --strategy partial-update": "partialUpdate", "train mnist --data synthetic --optimizer adma": "adam",
		"train mnist --data synthetic --transport tpc": "tcp", "train mnist --data synthetic --plan exct": "exact",
		"train mnist --data synthetic --collective-algorithm rnig": "ring", "train mnist --data synthetic --progress plian": "plain",
		"train ctr-dnn --data synthetic --sync asnyc": "async", "train mnist --data synthetic --set exchange.dlgs-rule=papr": "paper",
		"bench allreduce --collective-algorithm rnig": "ring",
	} {
		checkRefused(t, exitUsage, line, `(did you mean "`+want+`"?)`)
	}
}
