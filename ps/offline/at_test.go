package offline

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/engine"
)

// order saves a job's parts after a step of the run.
func (j *job) order(step uint64) (numbers []uint64) {
	j.t.Helper()
	for _, e := range j.servers {
		n, err := e.SaveStep(context.Background(), step, 1)
		must(j.t, err)
		numbers = append(numbers, n)
	}
	return numbers
}

// A checkpoint of the whole job is found by its numbers, whatever was saved or logged after it; one that is
// not whole is refused, all that is wrong together.
func TestAt(t *testing.T) {
	j := begin(t, 2, engine.WAL, nil, 0)
	j.set(initial())
	j.train(1, 2)
	ten := j.order(10)
	want := j.values()
	j.train(3)
	twenty := j.order(20)
	j.save(true)
	j.train(4)
	j.end()
	found, err := At(j.dir, 10, ten)
	must(t, err)
	least, most := found.Steps()
	if got := found.Dirs(); least != 10 || most != 10 || !slices.Equal(got, []string{ServerDir(j.dir, 0), ServerDir(j.dir, 1)}) {
		t.Errorf("steps %d to %d in %v", least, most, got)
	}
	must(t, found.Each(context.Background(), 0, func(keys []uint64, weights []float32) error {
		for i, key := range keys {
			if !slices.Equal(weights[i*dim:][:dim], want[key*dim:][:dim]) {
				t.Fatalf("key %d differs", key)
			}
		}
		return nil
	}))
	refused := func(step uint64, numbers []uint64, words ...string) {
		t.Helper()
		_, err := At(j.dir, step, numbers)
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("step %d, %v: %v, want it to say %q", step, numbers, err, w)
			}
		}
	}
	refused(20, ten, "server 0 of 2: ", "is of step 10 of its run, not of step 20", "server 1 of 2: ")
	refused(20, twenty[:1], "server-1 is missing: the job had 2 servers")
	refused(20, append(twenty, 1), "server 2 of 3: ", "server-2")
	refused(20, []uint64{twenty[0], 99}, "server 1 of 2: ", "no checkpoint")
	refused(20, nil, "checkpoints of no servers")
	must(t, os.Remove(filepath.Join(found.Servers[0].Chain[0].Dir, "dense-0")))
	refused(10, ten, "server 0 of 2: ", "lacks a file")
	must(t, os.RemoveAll(ServerDir(j.dir, 1)))
	refused(20, twenty, "server 1 of 2: ", "is no server's folder")
}
