package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/serving/batcher"
	"github.com/ringo-ml/ringo/internal/serving/sample"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/predict"
	"github.com/ringo-ml/ringo/train"
)

// Open loads the checkpoint in a file, and calls use with the predictor, which ends when use
// returns. The error is the error of loading or of use.
type Open func(ctx context.Context, file string, use func(*train.Predictor) error) error

// request is the part of a request that the model computes.
type request struct {
	rows    *sample.Rows
	outputs []float32 // outputs of all rows, in order
}

// served is a model in use. Its goroutine, within Open, computes one batch after another; the
// requests of a model are decoded by its own codec, so that no swap mixes two models in a request.
type served struct {
	predictor *train.Predictor
	codec     *sample.Codec
	queue     *batcher.Queue[*request]
	stats     *stats
	rows      int // rows of a forward pass

	file    string
	id      fileID
	step    int64
	version string

	mu      sync.Mutex
	users   int  // requests of handlers
	retired bool // replaced: the last user closes the queue
	ended   chan struct{}
	err     error // result of Open, valid once ended is closed
}

// fileID distinguishes a file from the file that replaces it.
type fileID struct {
	path string
	size int64
	time time.Time
}

func identify(path string) (fileID, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileID{}, err
	}
	return fileID{path, info.Size(), info.ModTime()}, nil
}

// open starts a model and returns it once loaded.
func (c *Config) open(ctx context.Context, id fileID, stats *stats) (*served, error) {
	m := &served{stats: stats, rows: c.Batch.Rows, file: id.path, id: id, queue: batcher.New[*request](c.Batch), ended: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		defer close(m.ended)
		m.err = c.Open(ctx, id.path, func(p *train.Predictor) error {
			if err := m.set(p); err != nil {
				return err
			}
			close(ready)
			for calls := m.queue.Next(); calls != nil; calls = m.queue.Next() {
				m.batch(calls)
			}
			return nil
		})
		m.queue.Close()
		for calls := m.queue.Next(); calls != nil; calls = m.queue.Next() { // after a failure
			finish(calls, fmt.Errorf("the model has ended: %w", m.err))
		}
	}()
	select {
	case <-ready:
		return m, nil
	case <-m.ended:
		return nil, m.err
	}
}

// set prepares the model for requests.
func (m *served) set(p *train.Predictor) (err error) {
	if m.codec, err = sample.New(p.Description()); err != nil {
		return fmt.Errorf("model %s cannot be served: %w", p.Spec().Name, err)
	}
	m.predictor = p
	_, m.step = p.Checkpoint()
	m.version = strconv.FormatInt(m.step, 10)
	_, err = predict.NewFormatter(p, predict.Config{})
	return err
}

func finish(calls []*batcher.Call[*request], err error) {
	for _, c := range calls {
		c.Finish(err)
	}
}

// batch computes calls, in forward passes of at most m.rows rows.
func (m *served) batch(calls []*batcher.Call[*request]) {
	err := errors.New("the forward pass has failed")
	defer func() { finish(calls, err) }() // also after a panic, which ends the model
	var parts []sample.Part
	var owners []*request
	rows := 0
	flush := func() error {
		if rows == 0 {
			return nil
		}
		err := m.forward(parts, owners, rows)
		parts, owners, rows = parts[:0], owners[:0], 0
		return err
	}
	for _, c := range calls {
		r := c.Item
		for lo := 0; lo < r.rows.N; {
			hi := min(r.rows.N, lo+m.rows-rows)
			parts, owners = append(parts, sample.Part{Rows: r.rows, Lo: lo, Hi: hi}), append(owners, r)
			rows += hi - lo
			if lo = hi; rows == m.rows {
				if err = flush(); err != nil {
					return
				}
			}
		}
	}
	err = flush()
}

// forward computes parts of requests with rows rows together.
func (m *served) forward(parts []sample.Part, owners []*request, rows int) error {
	var b data.Batch
	sample.Gather(&b, m.codec.Shape(), parts)
	start := time.Now()
	out, err := m.predictor.Forward(&b)
	if err != nil {
		return err
	}
	m.stats.forward(rows, time.Since(start))
	values := out[0].Data
	if len(values)%rows != 0 {
		return fmt.Errorf("the model has %d outputs for %d rows", len(values), rows)
	}
	each, at := len(values)/rows, 0
	for i, p := range parts {
		n := (p.Hi - p.Lo) * each
		owners[i].outputs = append(owners[i].outputs, values[at:at+n]...)
		at += n
	}
	return nil
}

// use registers a request that uses the model, unless the model is retired.
func (m *served) use() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired {
		return false
	}
	m.users++
	return true
}

func (m *served) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users--; m.retired && m.users == 0 {
		m.queue.Close()
	}
}

// retire closes the queue as soon as the model has no user.
func (m *served) retire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired = true; m.users == 0 {
		m.queue.Close()
	}
}

// compatible returns an error if newer answers the requests of m with another meaning.
func (m *served) compatible(newer *served) error {
	a, b := m.predictor.Description(), newer.predictor.Description()
	if err := m.codec.Compatible(newer.codec); err != nil {
		return err
	}
	s, t := m.predictor.Spec(), newer.predictor.Spec()
	switch {
	case s.Task != t.Task || s.Targets != t.Targets:
		return errors.New("predictions have another kind")
	case !slices.Equal(a.Words, b.Words) || a.Classes != b.Classes:
		return fmt.Errorf("the classes are %d (%.40q), in the newer model %d (%.40q)", a.Classes, a.Words, b.Classes, b.Words)
	case goal(a).Name != goal(b).Name || goal(a).Kind != goal(b).Kind:
		return fmt.Errorf("the predicted column is %q, in the newer model %q", goal(a).Name, goal(b).Name)
	case !sample.Equal(a.Shape, b.Shape):
		return errors.New("the shape of a sample is another one")
	}
	return nil
}

func goal(d data.Description) (c table.Column) {
	if d.Encoder != nil {
		c, _ = d.Encoder.Goal()
	}
	return c
}

// classes returns the names of the classes; nil for a model without classes.
func (m *served) classes() []string {
	s, d := m.predictor.Spec(), m.predictor.Description()
	if s.Task == model.Click || s.Targets > 0 {
		return nil
	}
	n := s.Classes
	if d.Classes > 0 {
		n = d.Classes
	}
	names := make([]string, n)
	for k := range names {
		if names[k] = strconv.Itoa(k); k < len(d.Words) {
			names[k] = d.Words[k]
		}
	}
	return names
}
