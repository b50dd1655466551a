package server

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/transport"
)

// dialJob is dial of a trainer of a job with a name.
func (r *running) dialJob(t *testing.T, ticket transport.Ticket, job string) (*client.Client, error) {
	t.Helper()
	return client.Dial(context.Background(), client.Config{Servers: []string{r.addr}, Ticket: ticket, Version: "1", Job: job, Trainers: 1, Schema: oneTable})
}

// A job's checkpoints are ordered by its trainers; the server makes none of its own. Another server begins with one of
// them, and leaves out what came later.
func TestOrderedCheckpoints(t *testing.T) {
	leakcheck.Check(t)
	dir, ticket := t.TempDir(), transport.NewTicket()
	first := filepath.Join(dir, "start-1")
	r := run(t, ticket, func(c *Config) { c.Dir, c.Job = first, "one" })
	if _, err := r.dialJob(t, ticket, "two"); err == nil || !strings.Contains(err.Error(), `trainer 0 is of job "two", this server is of "one"`) {
		t.Errorf("a trainer of another job: %v", err)
	}
	c, err := r.dialJob(t, ticket, "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Session(0).SetDense(0, make([]float32, 5)); err != nil {
		t.Fatal(err)
	}
	push(t, c, 1)
	numbers, err := c.Save(10, 10)
	if err != nil || !slices.Equal(numbers, []uint64{1}) {
		t.Fatalf("numbers %v, %v", numbers, err)
	}
	push(t, c, 2)
	if err := errors.Join(c.Leave(context.Background()), <-r.end); err != nil {
		t.Error(err)
	}
	if found, _ := filepath.Glob(filepath.Join(first, "server-0", "checkpoints", "*")); len(found) != 1 || r.stats.Tables.Saved != 1 {
		t.Errorf("checkpoints %v", found)
	}
	var mu sync.Mutex
	var lines []string
	r = run(t, ticket, func(c *Config) {
		c.Dir, c.Job, c.From, c.FromStep, c.FromNumbers = filepath.Join(dir, "start-2"), "two", first, 10, numbers
		c.Durability = engine.WAL
		c.Report = func(line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}
	})
	if c, err = r.dialJob(t, ticket, "two"); err != nil {
		t.Fatal(err)
	}
	if got := row(t, c, 1); !slices.Equal(got, []float32{-1, -1}) {
		t.Errorf("row 7 is %v, want -1", got)
	}
	if err := errors.Join(c.Leave(context.Background()), <-r.end); err != nil {
		t.Error(err)
	}
	if want := "after step 10 of the run; what came later is left out"; !strings.Contains(strings.Join(lines, "\n"), want) {
		t.Errorf("%q is not in %q", want, lines)
	}
	r = run(t, ticket, func(c *Config) {
		c.Dir, c.Job, c.From, c.FromStep, c.FromNumbers = filepath.Join(dir, "start-3"), "three", first, 11, numbers
	})
	if err := <-r.end; err == nil || !strings.Contains(err.Error(), "is of step 10 of its run, not of step 11") {
		t.Errorf("ended with %v", err)
	}
	err = Config{Job: "x", FromStep: 3, Mode: engine.BSP, Durability: engine.None, Servers: 1, Trainers: 1}.Validate()
	for _, want := range []string{`it begins with checkpoints [] of step 3 in ""`, "ps.dir is missing: ps.durability checkpoint"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
