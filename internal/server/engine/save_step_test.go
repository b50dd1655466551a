package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/snapshot"
)

// stays are the checkpoints of an engine.
func stays(t *testing.T, e *Engine) []uint64 {
	t.Helper()
	all, err := snapshot.Numbers(e.checkpoints())
	must(t, err)
	return all
}

// Checkpoints of the job stay as long as they are of use, beside the server's own, over restarts too, and each
// can be begun with: what came after it is left out, on any number of servers.
func TestSaveStep(t *testing.T) {
	ctx := context.Background()
	s := mixed()
	c := Config{Trainers: 2, Mode: BSP, Durability: WAL, Dir: t.TempDir(), Keep: 1, Job: "first"}
	servers, want := cluster(t, c, s, 2), newTwin(t, s)
	trainers := []*trainer{newTrainer(t, servers, 0), newTrainer(t, servers, 1)}
	for _, sessions := range trainers[0].sessions {
		sessions[0].begin(want.dense)
	}
	rng := rand.New(rand.NewPCG(4, 4))
	step := func() {
		var all [][]grads
		for _, tr := range trainers {
			g := draw(s, rng, 300)
			all = append(all, g)
			tr.push(s, g)
		}
		want.step(all)
		for _, tr := range trainers {
			tr.each(func(l *client) { l.clock(-1) })
		}
	}
	order := func(after, oldest uint64) (numbers []uint64) {
		for _, e := range servers {
			n, err := e.SaveStep(ctx, after, oldest)
			must(t, err)
			again, err := e.SaveStep(ctx, after, oldest)
			if n != again || err != nil {
				t.Errorf("step %d: number %d, and %d %v when it is asked again", after, n, again, err)
			}
			numbers = append(numbers, n)
		}
		return numbers
	}
	step()
	ten := order(10, 10)
	other, err := servers[0].Save(ctx, false) // not of the job
	must(t, err)
	step()
	twenty := order(20, 10)
	keep := stays(t, servers[0])
	if slices.Contains(keep, other.Number) || !slices.Contains(keep, ten[0]) || !slices.Contains(keep, twenty[0]) {
		t.Errorf("checkpoints %v stay, of the job %d and %d, of the server's own %d", keep, ten[0], twenty[0], other.Number)
	}
	step()
	for i, e := range servers { // it is killed
		must(t, e.Close())
		c := c
		c.Index, c.Servers, c.Dir = i, 2, name("%s/%d", c.Dir, i)
		servers[i] = open(t, c, s)
	}
	want.compare(t, servers)
	trainers = []*trainer{newTrainer(t, servers, 0), newTrainer(t, servers, 1)}
	from := []string{name("%s/1", c.Dir), name("%s/0", c.Dir)} // in any order
	numbers := []uint64{order(20, 20)[1], twenty[0]}
	for range 2 {
		step()
	}
	for i := range servers {
		must(t, servers[i].Close())
	}
	after := newTwin(t, s) // what was there after step 20
	rng = rand.New(rand.NewPCG(4, 4))
	for range 2 {
		after.step([][]grads{draw(s, rng, 300), draw(s, rng, 300)})
	}
	for _, n := range []int{1, 2, 3} {
		next := Config{Trainers: 3, Mode: Async, Durability: Checkpoint, Dir: t.TempDir(), From: from, FromNumbers: numbers, Ordered: true, Job: "next"}
		again := cluster(t, next, s, n)
		after.compare(t, again)
		if got := stays(t, again[0]); len(got) != 0 {
			t.Errorf("%d servers: checkpoints %v before one was ordered", n, got)
		}
		number, err := again[0].SaveStep(ctx, 30, 20)
		if got := stays(t, again[0]); err != nil || !slices.Equal(got, []uint64{number}) || again[0].Stats().Saved != number {
			t.Errorf("%d servers: number %d of %v, %v", n, number, got, err)
		}
		for _, e := range again {
			must(t, e.Close())
		}
	}
	c.Index, c.Servers, c.Dir = 0, 2, name("%s/0", c.Dir)
	e := open(t, c, s)
	if _, err := e.SaveStep(ctx, 40, 40); err != nil {
		t.Error(err)
	}
	if got := stays(t, e); slices.Contains(got, twenty[0]) || slices.Contains(got, ten[0]) {
		t.Errorf("%v stay, of which none before step 40 is of use", got)
	}
}

// What cannot be saved, or begun with, is told.
func TestSaveStepRefused(t *testing.T) {
	s := whole(2)
	dir := t.TempDir()
	c := Config{Trainers: 1, Mode: Async, Durability: Checkpoint, Dir: dir, Ordered: true}
	e := open(t, c, s)
	newClient(t, e, 0).begin(newSums(s).dense())
	for _, steps := range [][2]uint64{{0, 0}, {3, 4}} {
		if _, err := e.SaveStep(context.Background(), steps[0], steps[1]); err == nil || !strings.Contains(err.Error(), "want at least 1") {
			t.Errorf("%v: %v", steps, err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	over := errors.New("over")
	cancel(over)
	if _, err := e.SaveStep(ctx, 5, 5); !errors.Is(err, over) {
		t.Errorf("got %v", err)
	}
	number, err := e.SaveStep(context.Background(), 5, 5)
	must(t, err)
	must(t, e.Close())
	if _, err := e.SaveStep(context.Background(), 6, 5); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	next := Config{Trainers: 1, Mode: Async, Durability: None, From: []string{dir}, FromNumbers: []uint64{number + 1}}
	if _, err := Open(next, s); !errors.Is(err, snapshot.ErrNone) {
		t.Errorf("got %v", err)
	}
	next.FromNumbers = []uint64{number, number}
	next.Ordered = true
	if _, err := Open(next, s); err == nil || !strings.Contains(err.Error(), "2 numbers of checkpoints for 1 directories") || !strings.Contains(err.Error(), `only with durability "none"`) {
		t.Errorf("got %v", err)
	}
	next.FromNumbers, next.Ordered = []uint64{number}, false
	must(t, os.Truncate(name("%s/checkpoints/checkpoint-%012d/dense-0", dir, number), 3))
	if _, err := Open(next, s); err == nil || !strings.Contains(err.Error(), "dense-0") {
		t.Errorf("got %v", err)
	}
}
