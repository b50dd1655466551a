package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/job"
)

// What --write-job writes is a job that has the same result, whatever the run had chosen: each of these is run again by
// its file alone.
func TestWrittenJobsRepeat(t *testing.T) {
	t.Parallel()
	const click = "train ctr-dnn --data synthetic --train-limit 700 --eval-limit 101 --batch 50 --epochs 1 --threads 1 --set data.table-rows=2000 --np 2 --servers 2 "
	const mlp = "train mlp --data synthetic --train-limit 960 --eval-limit 33 --batch 16 --epochs 1 --threads 1 --np 2 "
	for name, line := range map[string]string{
		"plain":             mlp,
		"another optimizer": mlp + "--optimizer adamw --warmup 10 --lr-schedule cosine:0.0001 --accumulate 2",
		"dlgs":              mlp + "--strategy dlgs --spars 0.1 --set exchange.dlgs-every=7 --momentum 0 --set exchange.momentum-correction=0.9",
		"auto":              mlp + "--strategy auto --spars 0.1",
		"seeds":             mlp + "--tune --plan exact --set training.seeds=2",
		"tuned":             mlp + "--tune --plan exact --transport tcp",
		"partial":           mlp + "--strategy partialUpdate --set exchange.partitions=3 --np 3 --collective-algorithm ring",
		"sum":               mlp + "--sync aggregate --servers 2 --strategy int8 --clip-norm 1",
		"bsp":               click + "--sync bsp --set ps.wire-dtype=fp16",
		"geo":               click + "--sync geo --geo-steps 3 --np 1",
		"click rule":        click + "--sync bsp --optimizer click --set ps.click=decay=0.9,extend_at=2",
		"language model":    "train gpt-mini --data synthetic --train-limit 16 --eval-limit 4 --batch 2 --epochs 1 --threads 1 --np 2 --dropout 0",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "job.yaml")
			first := runSummary(t, line+" --progress none --write-job "+file)
			second := runSummary(t, "train --job "+file+" --progress none --threads 1")
			for _, field := range []string{"params_sha256", "plan_sha256", "strategy", "np", "train_loss"} {
				if !reflect.DeepEqual(first[field], second[field]) {
					text, _ := os.ReadFile(file)
					t.Errorf("%s: %v, by the file %v:\n%s", field, first[field], second[field], text)
				}
			}
		})
	}
	checkRefused(t, exitFailed, mlp+"--write-job "+filepath.Join(t.TempDir(), "no", "job.yaml"), "--write-job: ", "no such file or directory")
}

// Every job file that comes with ringo trains, of a few samples.
func TestPresetsTrain(t *testing.T) {
	if testing.Short() {
		t.Skip("trains by every preset: NOT done with -short")
	}
	t.Chdir(t.TempDir()) // one of them has a folder
	for _, name := range job.Presets() {
		got := runSummary(t, "train --job "+name+" --train-limit 128 --eval-limit 33 --batch 16 --epochs 1 --progress none --threads 1")
		if got["params_sha256"] == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	checkRefused(t, exitUsage, "train --job mnits", "--job: open mnits: no such file or directory; `ringo jobs` lists the built-in job files")
	checkRefused(t, exitUsage, "jobs mnits", `"mnits" is no job that comes with ringo (did you mean "mnist"?)`)
}
