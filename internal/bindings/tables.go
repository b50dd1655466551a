package bindings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Tables is a rank's connection to its job's servers of tables. Its methods may be called from any goroutine.
type Tables struct {
	client  *client.Client
	session *client.Session // the only one: what goes through it reaches servers in order
	schema  schema.Schema
	close   sync.Once
	closed  error
}

// leaveWithin bounds how long servers may take to acknowledge what was pushed, when a client of theirs leaves.
const leaveWithin = 30 * time.Second

// OpenTables connects to the servers that a launcher has started beside the job. text is the tables' schema as JSON, by the names of
// schema.Schema's; all ranks give the same. A batch may have a key several times.
func OpenTables(job *ringo.Job, text string) (*Tables, error) {
	t := &Tables{}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&t.schema); err != nil {
		return nil, Misusef("the schema of the tables is not what it should be: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, Misusef("the schema of the tables has something behind it")
	}
	if err := t.schema.Validate(); err != nil {
		return nil, Misusef("%v", err)
	}
	if job.ParameterServers() == 0 {
		return nil, Misusef("the job has no servers of tables: start it with ringo run --servers 1 --sync async, for example")
	}
	var err error
	if t.client, err = job.DialParameterServers(client.Config{Schema: t.schema, Merge: true}); err != nil {
		return nil, err
	}
	t.session = t.client.Session(0)
	return t, nil
}

// Pull is a request for rows under way.
type Pull struct {
	tables *Tables
	pull   *client.Pull
}

// Pull asks for the rows of keys as they are to be for a step, from 1, or with peek without making those that are not there. rows is the
// servers' until the Pull's Wait has returned.
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

// Wait returns when the rows are there. After an error that has ended the client nothing is written to them any more: it is closed then.
func (p *Pull) Wait() error {
	err := p.pull.Wait()
	if err != nil && p.tables.client.Err() != nil {
		_ = p.tables.client.Close()
	}
	return err
}

// Push sends gradients of keys' rows, which belong to a step. Both are the caller's again when it returns.
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

// Width is how many values a row of a table has, and how many its gradient with what follows that, see optim.CountedRule.
func (t *Tables) Width(table int) (row, gradient int, err error) {
	if table < 0 || table >= len(t.schema.Sparse) {
		return 0, 0, Misusef("table %d is none of %d", table, len(t.schema.Sparse))
	}
	s := &t.schema.Sparse[table]
	return s.Dim, s.Dim + s.Counts(), nil
}

// fits reports a batch whose values are not so many for each key.
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

// Clock says that this rank has pushed all that it will of a step, and what the learning rate is from the next one on; below zero: as
// it is.
func (t *Tables) Clock(step uint64, rate float64) error { return t.session.Clock(step, rate) }

// Flush waits until all servers have acknowledged what was pushed.
func (t *Tables) Flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	return t.client.Flush(ctx)
}

// Save has all servers write a checkpoint after a step, and returns its number at each of them. All ranks call it. oldest is the lowest
// step whose checkpoints are still of use.
func (t *Tables) Save(step, oldest uint64) ([]uint64, error) {
	if oldest > step {
		return nil, Misusef("the oldest step of use, %d, is after step %d", oldest, step)
	}
	if err := t.Flush(); err != nil {
		return nil, err
	}
	if _, err := t.client.AllGather(nil); err != nil { // all have
		return nil, fmt.Errorf("before a checkpoint: %w", err)
	}
	return t.client.Save(step, oldest)
}

// Close tells the servers that this rank has no more to do, once they have acknowledged what was pushed. After a fault it only ends the
// client.
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
