package main

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/launch"
)

const synthetic = "train mnist --data synthetic "

// The commands that start ranks have the same flags for that, and the same
// faults.
func TestJobUsage(t *testing.T) {
	for _, cmd := range []string{synthetic, "bench allreduce ", "bench step mnist "} {
		for _, c := range [][]string{
			{"--np 0", "--np 0: want 1 to 1024"},
			{"--np -1", "--np -1: want 1 to 1024"},
			{"--np two", `"two" for "--np"`},
			{"--np", "flag needs an argument: --np"},
			{"--rank 0 --np 2", "--rank needs --rendezvous HOST:PORT"},
			{"--rank 2 --np 2 --rendezvous localhost:70", "--rank 2: want a rank from 0 to 1, since --np is 2"},
			{"--rank -1 --np 2 --rendezvous localhost:70", "--rank -1: want a rank from 0 to 1"},
			{"--rank 1 --rendezvous localhost:70", "--rank 1: want a rank from 0 to 0, since --np is 1"},
			{"--rendezvous localhost:70", "--rendezvous is for ranks started by hand: give --rank too"},
			{"--rendezvous localhost:70 --np 2", "give --rank too"},
			{"--rank 0 --np 2 --rendezvous localhost", `--rendezvous "localhost": want HOST:PORT`},
			{"--rank 0 --np 2 --rendezvous localhost:0", "a port from 1 to 65535"},
			{"--rank 0 --np 2 --rendezvous localhost:99999", "a port from 1 to 65535"},
			{"--np 1025", "--np 1025: want 1 to 1024"},
			{"--threads 1025", "--threads 1025: want 0 to 1024"},
			{"--rank 0 --np 2 --rendezvous localhost:", `--rendezvous "localhost:": want HOST:PORT`},
			{"--rank 0 --np 2 --rendezvous ::1:70", `--rendezvous "::1:70": want HOST:PORT`},
			{"--transport udp", `--transport "udp" is not known: use auto, shm, tcp or mem`},
			{"--transport ''", `--transport "" is not known`},
			{"--transport mem --rank 0 --np 2 --rendezvous localhost:70", "--transport mem keeps all ranks in one process"},
			{"--algorithm rng", `--algorithm "rng" is not known (did you mean "ring"?): use auto or `},
			{"--timeout 0", "--timeout 0s: want a positive time"},
			{"--timeout -1s", "--timeout -1s: want a positive time"},
			{"--timeout 30", `"30" for "--timeout"`},
			{"--join-timeout 0s", "--join-timeout 0s: want a positive time"},
			{"--heartbeat 1s --dead-after 1500ms", "--heartbeat 1s, --dead-after 1.5s: want a positive time and at least twice that"},
			{"--threads -1", "--threads -1: want 0 to 1024"},
			{"--progress fancy", `--progress "fancy" is not known: use auto, bar, plain or none`},
			{"--np 2 --streams 17", "streams 17: want 1 to 16"},
			{"--np 2 --streams 0", "--streams 0: want 1 to 16"},
			{"--np 2 --port-range 9-8", `port-range "9-8": want FIRST-LAST`},
			{"--np 2 --congestion-control voodoo", `congestion-control "voodoo"`},
			{"--np 2 --transport mem --checksum", "--checksum has no effect here"},
			{"--interface lo", "--interface has no effect here"},
			{"--nope", "unknown flag: --nope; see `ringo " + path(cmd) + " --help`"},
			{"-x", "unknown shorthand flag"},
			{"extra", `"extra"]`},
			// all faults are told together
			{"--np 0 --algorithm rng --progress fancy --threads -2 --timeout 0", "--np 0", `"rng"`, `"fancy"`, "--threads -2", "--timeout 0s", "; "},
		} {
			checkRefused(t, exitUsage, cmd+c[0], c[1:]...)
		}
	}
}

// path is a command line without its flags and model.
func path(line string) string {
	words, _, _ := strings.Cut(line, " --")
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(words), "mnist"))
}

// What is wrong with the command itself.
func TestUsage(t *testing.T) {
	for _, c := range [][]string{
		{"versoin", `"versoin" is not a command of ` + "`ringo`; did you mean version?; see `ringo --help`"},
		{"xyzzy", `"xyzzy" is not a command of ` + "`ringo`; see `ringo --help`"},
		{"--nope", "unknown flag: --nope; see `ringo --help`"},
		{"version --nope", "unknown flag: --nope; see `ringo version --help`"},
		{"version extra", "`ringo version` takes no argument", `"extra"`},

		{"data cifar10 --skip-bad 1 --out x", "--skip-bad belongs to --from PATH"},
		{"data cifar10 --from x --out y --mirror http://z", "--mirror is for fetching; --from fetches nothing"},
		{"train", "`ringo train` needs a model, for instance `ringo train mnist`"},
		{"train mnits --data synthetic", `unknown model "mnits" (did you mean "mnist"?)`, "mnist-cnn"},
		{"train xyzzy --data synthetic", `unknown model "xyzzy": known are`, "mnist-cnn"},
		{"train mnist mlp --data synthetic", "`ringo train` takes one model", `["mnist" "mlp"]`},
		{"train mnist", "no data", `"synthetic", with --data`},
		{synthetic + "--lr nan", "--lr NaN: want a positive number"},
		{synthetic + "--lr inf", "--lr +Inf"},
		{synthetic + "--lr 0", "--lr 0"},
		{synthetic + "--lr -0.1", "--lr -0.1"},
		{synthetic + "--lr fast", `"fast" for "--lr"`},
		{synthetic + "--momentum 1", "momentum 1: want a number from 0 to below 1"},
		{synthetic + "--epochs 2 --warmup 3epochs", "--warmup of 3 epochs in a run of 2: the learning rate would never be 0.005; want at most 2 epochs"},
		{synthetic + "--momentum nan", "momentum NaN"},
		{synthetic + "--weight-decay -1", "--weight-decay -1"},
		{synthetic + "--weight-decay inf", "--weight-decay +Inf"},
		{synthetic + "--optimizer adagard", `optimizer "adagard" is not known (did you mean "adagrad"?): use one of sgd, adagrad, adam, adamw, ftrl`},
		{synthetic + "--optimizer adam --weight-decay 0.1", "--weight-decay has no effect: it needs --optimizer sgd or adagrad or adamw or click"},
		{synthetic + "--optimizer ftrl --weight-decay 0.1", "--weight-decay has no effect: it needs --optimizer sgd or"},
		{synthetic + "--optimizer ftrl --eps 0.1", "--eps has no effect: it needs --optimizer adagrad or"},
		{synthetic + "--optimizer ftrl --strategy partialUpdate", "--optimizer ftrl makes parameters anew of its own sums in each step, which undoes the mean of --strategy partialUpdate"},
		{synthetic + "--strategy auto --bucket-bytes 65536", "--bucket-bytes 65536 has no effect on --plan exact"},
		{synthetic + "--optimizer adamw --momentum 0.9", "--momentum has no effect: it needs --optimizer sgd"},
		{synthetic + "--eps 1e-8", "--eps has no effect: it needs --optimizer adagrad or"},
		{synthetic + "--lr-steps 80:0.01,40", "--lr-steps", "40"},
		{synthetic + "--lr-steps 1:0.01 --lr-cosine", "cosine"},
		{synthetic + "--lr-floor 0.001", "--lr-floor has no effect: it needs --lr-cosine"},
		{synthetic + "--warmup soon", "--warmup", `"soon"`},
		{synthetic + "--dropout -0.1", "--dropout -0.1: want 0 to below 1"},
		{synthetic + "--dropout 1", "dropout 1: want below 1"},
		{synthetic + "--dropout 0.5", "--dropout 0.5 has no effect on mnist-cnn"},
		{synthetic + "--partitions 3", "--partitions has no effect: it needs --strategy partialUpdate"},
		{synthetic + "--strategy int8 --spars 0.1 --dlgs-every 3 --layer-thresholds", "--spars has no effect: it needs --strategy sparseTopK or", "--dlgs-every has", "--layer-thresholds has"},
		{synthetic + "--clip-value 2 --momentum-correction 0.9", "--clip-value has no effect: it needs --strategy fp16 or", "--momentum-correction has"},
		{synthetic + "--strategy dlgs --spars 1.5 --dlgs-every -1 --clip-value -3 --momentum-correction 1", "dlgs-every -1", "clip-value -3", "momentum-correction 1"},
		{synthetic + "--strategy dlgs --dlgs-rule printed", `dlgs: rule "printed" is not known: use corrected or paper`},
		{synthetic + "--strategy auto --dlgs-rule printed", `dlgs: rule "printed" is not known: use corrected or paper`},
		{synthetic + "--strategy dgc --dlgs-rule corrected", "--dlgs-rule has no effect: it needs --strategy dlgs"},
		{synthetic + "--strategy topk --spars 1.5", "--spars 1.5: want a share above 0 and at most 1"},
		{synthetic + "--strategy topk --plan fixed", "--plan fixed has no effect on --strategy topk, which selects by model and has plan one alone"},
		{synthetic + "--strategy lags --bucket-bytes 4096", "--bucket-bytes 4096 has no effect on --plan per-layer"},
		{synthetic + "--warmup-density 0.25,0.1", "--warmup-density has no effect: it needs --strategy sparseTopK or"},
		{synthetic + "--strategy dgc --epochs 2 --warmup-density 0.25,0.1,2", "is for 3 epochs, the run has 2", "want shares above 0"},
		{synthetic + "--strategy dgc --warmup-density 0.25,x", `--warmup-density: "x" is no number`},
		{synthetic + "--strategy dgc --momentum-correction 0.9 --momentum 0.9", "--momentum-correction 0.9 with --optimizer sgd of momentum 0.9"},
		{synthetic + "--seeds 0", "--seeds 0: want 1 to 1000"},
		{synthetic + "--every 5", "--every has no effect: it needs --checkpoint"},
		{synthetic + "--update all", "update \"all\" is not known: use whole or sharded"},
		{synthetic + "--np 2 --strategy fp16 --update sharded", "--update sharded is for --strategy fp32"},
		{synthetic + "--resume", "has no effect: it needs --checkpoint"},
		{synthetic + "--checkpoint x --every -1", "--every -1"},
		{synthetic + "--checkpoint x --seeds 2", "--seeds 2 with --checkpoint"},
		{synthetic + "--skip-bad -1", "--skip-bad -1"},
		{synthetic + "--train-file x", "files are named"},
		{synthetic + "--skip-bad 1", "--skip-bad 1 has no effect on synthetic data"},
		{synthetic + "--trace -", "--trace and --save-profile want a file: only --json writes to stdout with -"},
		{synthetic + "--np 2 --tune --save-profile -", "--save-profile want a file"},
		{synthetic + "--trace x --json x", "--json, --trace and --save-profile want a file each"},
		{synthetic + "--np 2 --tune --save-profile x --json x", "want a file each"},
		{synthetic + "--strategy auto --save-profile x", "--save-profile x has nothing to save on one rank"},
		{synthetic + "--batch 0", "batch 0: want at least 1"},
		{synthetic + "--batch -64", "batch -64"},
		{synthetic + "--batch 1.5", `"1.5" for "--batch"`},
		{synthetic + "--epochs 0", "epochs 0: want at least 1"},
		{synthetic + "--seed -1", `"-1" for "--seed"`},
		{synthetic + "--train-limit -1", "--train-limit -1"},
		{synthetic + "--eval-limit -1", "--eval-limit -1"},
		{synthetic + "--strategy fp23", `strategy "fp23" is not known (did you mean "fp32"?): use one of fp32, fp16`},
		{synthetic + "--plan fixd", `plan "fixd" is not known (did you mean "fixed"?): use one of one, per-layer, fixed`},
		{synthetic + "--bucket-bytes -1", "--bucket-bytes -1"},
		{synthetic + "--bucket-bytes 3", "--bucket-bytes 3"},
		{synthetic + "--plan one --bucket-bytes 4096", "--bucket-bytes 4096 has no effect on --plan one"},
		{synthetic + "--clip-norm -1", "--clip-norm -1"},
		{synthetic + "--clip-norm nan", "--clip-norm NaN"},
		{synthetic + "--accumulate -1", "--accumulate -1"},
		{"train mnist --np 0 --lr nan --batch 0 --plan x", "--np 0", "no data", "--lr NaN", "batch 0", `plan "x"`},

		{"bench allreduc", `"allreduc" is not a command of ` + "`ringo bench`; did you mean allreduce?"},
		{"bench allreduce --floats 1,x", `"1,x" for "--floats"`},
		{"bench allreduce --floats ''", `"--floats"`},
		{"bench allreduce --floats 1,-3,-4", "--floats -3: want 0 to 1073741824", "--floats -4"},
		{"bench allreduce --floats 9999999999999", "--floats 9999999999999: want 0 to"},
		{"bench allreduce --time 0", "--time 0s: want more than 0 and at most 1h"},
		{"bench kernels --only fft", "--only fft: no kernel's name has it", "gemm"},
		{"bench kernels --kernels mmx --time 0", "--kernels", `"mmx"`, "--time 0s: want more than 0"},
		{"bench allreduce --explain --json -", "--json has no effect with --explain"},
		{"bench kernels extra", "takes no argument"},
		{"bench gemm extra", "`ringo bench gemm` takes no argument"},
		{"bench codec --data ''", "--data is empty"},
		{"bench codec --only fft", "--only fft: no stage's name has it", "dlgs/reuse"},
		{"bench codec --values 0 --ratio 2 --data odd --time 0", "--values 0: want 1", "--ratio 2: want more than 0", `--data "odd"`, "--time 0s: want more than 0"},
		{"bench step", "`ringo bench step` needs a model, for instance `ringo bench step mnist`"},
		{"bench step mnits", `did you mean "mnist"?`},
		{"bench step mnist mlp", "takes one model"},
		{"bench step mnist --batch 0 --steps 0", "batch 0", "--steps 0: want 1 to 1000000"},
		{"bench step mnist --batch 1000000000000000 --steps 1000000000000000000", "--batch 1000000000000000: want at most 65536", "--steps 1000000000000000000"},
		{"bench step mnist --strategy fp23", `strategy "fp23"`},
		{"bench step mnist --plan fixd", `plan "fixd"`},

		{"data mnits", `"mnits" is not a command of ` + "`ringo data`; did you mean mnist?"},
		{"data mnist", "needs --out DIR"},
		{"data mnist --out ''", "needs --out DIR"},
		{"data mnist --out x extra", "takes no argument"},
		{"data mnist --out x --mirror ftp://a --mirror b", `"ftp://a" is not an http(s) address`, `"b"`},
		{"data mnist --out x --progress fancy", `--progress "fancy"`},
		{"data mnist --out x --force", "unknown flag: --force"},

		{"run", "needs a program"},
		{"run --np 2", "needs a program"},
		{"run --np 2 --", "needs a program"},
		{"run --np 0 -- true", "--np 0: want 1 to 1024"},
		{"run --np 2 --join-timeout 0 -- true", "--join-timeout 0s"},
		{"run --lr 1 -- true", "unknown flag: --lr"},
	} {
		checkRefused(t, exitUsage, c[0], c[1:]...)
	}
}

// A process that a launcher placed cannot be placed again.
func TestWorkerUsage(t *testing.T) {
	t.Setenv(launch.RankVar, "0")
	checkRefused(t, exitUsage, synthetic+"--rank 0 --np 2 --rendezvous localhost:70", "--rank 0, but RINGO_RANK is set too")
	checkRefused(t, exitUsage, synthetic+"--np 2 --transport mem", "it cannot be used by a single rank")
	checkRefused(t, exitFailed, synthetic, "RINGO_WORLD_SIZE is not set", "RINGO_RENDEZVOUS is not set", "RINGO_TICKET is not set")
}
