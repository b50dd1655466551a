package bindings

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Tables is a rank's connection to the job's parameter servers, for calls from any goroutine.
type Tables struct {
	client  *client.Client
	session *client.Session // the only session: requests reach servers in order
	schema  schema.Schema
	close   sync.Once
	closed  error
}

// leaveWithin bounds the servers' time to acknowledge pushes when a client leaves.
const leaveWithin = 30 * time.Second

// OpenTables connects to the parameter servers that a launcher has started for the job. text is the
// tables' schema as JSON, with the names of schema.Schema, and equal on all ranks. Servers with
// other values of its "settings" reject the rank. A batch may repeat keys.
func OpenTables(job *ringo.Job, text string) (*Tables, error) {
	var asked struct {
		schema.Schema
		Settings setting.Values `json:"settings"`
	}
	if err := decode("the schema of the tables", text, &asked); err != nil {
		return nil, err
	}
	t := &Tables{schema: asked.Schema}
	if err := t.schema.Validate(); err != nil {
		return nil, Misusef("%v", err)
	}
	if job.ParameterServers() == 0 {
		return nil, Misusef("the job has no servers of tables: start it with ringo run --servers 1 --sync async, for example")
	}
	var err error
	if t.client, err = job.DialParameterServers(client.Config{Schema: t.schema, Settings: asked.Settings, Merge: true}); err != nil {
		return nil, err
	}
	t.session = t.client.Session(0)
	return t, nil
}

// Pull is a request for rows in progress.
type Pull struct {
	tables *Tables
	pull   *client.Pull
}

// Pull requests the rows of keys for a step (from 1); with peek, missing rows are not created. rows
// belongs to the client until the Pull's Wait returns.
func (t *Tables) Pull(table int, peek bool, step uint64, keys []uint64, rows []float32) (*Pull, error) {
	if err := t.fits(table, step, len(keys), len(rows), 0); err != nil {
		return nil, err
	}
	ask := t.session.PullRows
	if peek {
		ask = t.session.PeekRows
	}
	pull, err := ask(table, step, keys, rows)
	if err != nil {
		return nil, err
	}
	return &Pull{t, pull}, nil
}

// Wait returns after the rows arrive. An error that ended the client also closes the client: rows
// is not written afterwards.
func (p *Pull) Wait() error {
	err := p.pull.Wait()
	if err != nil && p.tables.client.Err() != nil {
		_ = p.tables.client.Close()
	}
	return err
}

// Push sends gradients of keys' rows for a step. Both slices are the caller's again afterwards.
func (t *Tables) Push(table int, step uint64, keys []uint64, grads []float32) error {
	counts := 0
	if table >= 0 && table < len(t.schema.Sparse) {
		counts = t.schema.Sparse[table].Counts()
	}
	if err := t.fits(table, step, len(keys), len(grads), counts); err != nil {
		return err
	}
	return t.session.PushRows(table, step, keys, grads)
}

// Width is the number of values in a table's row, and in a row's gradient with its counts
// (optim.CountedRule).
func (t *Tables) Width(table int) (row, gradient int, err error) {
	if table < 0 || table >= len(t.schema.Sparse) {
		return 0, 0, Misusef("table %d is none of %d", table, len(t.schema.Sparse))
	}
	s := &t.schema.Sparse[table]
	return s.Dim, s.Dim + s.Counts(), nil
}

// fits reports a batch with a wrong number of values per key.
func (t *Tables) fits(table int, step uint64, keys, values, counts int) error {
	row, _, err := t.Width(table)
	switch {
	case err != nil:
		return err
	case step == 0:
		return Misusef("steps are counted from 1")
	case values != keys*(row+counts):
		return Misusef("%d values of %d rows of table %q, which have %d each", values, keys, t.schema.Sparse[table].Name, row+counts)
	}
	return nil
}

// Clock ends this rank's pushes of a step and sets the learning rate from the next step on; a
// negative rate keeps the rate.
func (t *Tables) Clock(step uint64, rate float64) error { return t.session.Clock(step, rate) }

// Flush waits until all servers have acknowledged all pushes.
func (t *Tables) Flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	return t.client.Flush(ctx)
}

// Save makes all servers write a checkpoint after a step, and returns each server's checkpoint
// number. All ranks call Save. oldest is the lowest step with checkpoints still in use.
func (t *Tables) Save(step, oldest uint64) ([]uint64, error) {
	if oldest > step {
		return nil, Misusef("the oldest step of use, %d, is after step %d", oldest, step)
	}
	if err := t.Flush(); err != nil {
		return nil, err
	}
	if _, err := t.client.AllGather(nil); err != nil { // a barrier: all ranks have flushed
		return nil, fmt.Errorf("before a checkpoint: %w", err)
	}
	return t.client.Save(step, oldest)
}

// Close leaves the servers after their acknowledgement of all pushes. After an error Close only
// ends the client.
func (t *Tables) Close() error {
	t.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
		defer cancel()
		if t.client.Err() == nil {
			t.closed = t.client.Leave(ctx)
		}
		_ = t.client.Close()
	})
	return t.closed
}
