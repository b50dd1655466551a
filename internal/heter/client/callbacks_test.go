package client

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
)

// behind is a way: the device is behind functions, as that of a program in another language.
func behind(c *service.Config) {
	open := c.Open
	c.Open = func(about []byte) (*heter.Cut, heter.Device, error) {
		cut, d, err := open(about)
		if err != nil {
			return nil, nil, err
		}
		return cut, callbacks(d), nil
	}
}

// callbacks is a device with memory apart from that of the host, which has no number that was not copied.
func callbacks(d heter.Device) *heter.Callbacks {
	c := &heter.Callbacks{OnClose: d.Close}
	m := &c.Memory
	m.Gradients, m.Values = make([]float32, len(d.Values())), make([]float32, len(d.Values()))
	for _, x := range d.State()[1:] {
		m.State = append(m.State, x...)
	}
	c.OnRun = func(b *heter.MicroBatch) error {
		if !b.Eval {
			spoil(m.Gradients)
		}
		return d.Run(b)
	}
	c.OnUpdate = func(rate float64, scale float32) error {
		spoil(m.Values)
		spoil(m.State)
		return d.Update(rate, scale)
	}
	c.OnSync = func(a heter.SyncAction) error {
		switch a {
		case heter.ReadGradients:
			copy(m.Gradients, d.Gradients())
		case heter.WriteGradients:
			copy(d.Gradients(), m.Gradients)
		case heter.ResetGradients:
			d.Reset()
		default:
			at := 0
			for i, x := range d.State() {
				there := m.Values
				if i > 0 {
					there = m.State[at : at+len(x)]
					at += len(x)
				}
				if a == heter.WriteState {
					there, x = x, there
				}
				copy(there, x)
			}
		}
		return nil
	}
	return c
}

func spoil(x []float32) {
	for i := range x {
		x[i] = float32(math.NaN())
	}
}

// Each step is the same in stateless mode.
func TestLentBehindFunctions(t *testing.T) {
	r := newLentRig(t, 2, 2, behind)
	r.runLent(4, false, func(int, string) {})
	r.checkEnds()
}

// A step of a single stateless trainer copies its gradients once, from the device.
func TestCopiesOfLent(t *testing.T) {
	var copies [5]int
	r := newLentRig(t, 1, 1, changed(func(c *heter.Callbacks, _ int) {
		sync := c.OnSync
		c.OnSync = func(a heter.SyncAction) error {
			copies[a]++
			return sync(a)
		}
	}))
	r.runLent(4, false, func(int, string) {})
	r.checkEnds()
	if reads, writes := copies[heter.ReadGradients], copies[heter.WriteGradients]; reads != r.steps || writes != 0 {
		t.Errorf("gradients were read %d times and written %d times in %d steps", reads, writes, r.steps)
	}
}

// The error of a function ends the job, and every trainer's error has its text, with the step and the micro-batch.
func TestErrorsOfFunctions(t *testing.T) {
	failed := errors.New("the module's result is [32 3], the cut has [32 2]")
	for name, c := range map[string]struct {
		spoil func(c *heter.Callbacks)
		want  string
	}{
		"run":       {func(c *heter.Callbacks) { c.OnRun = func(*heter.MicroBatch) error { return failed } }, "step 1: micro-batch 1 of trainer "},
		"update":    {func(c *heter.Callbacks) { c.OnUpdate = func(float64, float32) error { return failed } }, "step 1: the module's result"},
		"gradients": {func(c *heter.Callbacks) { failSync(c, heter.ReadGradients, failed) }, "step 1: micro-batch 1 of trainer "},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, 1, changed(func(d *heter.Callbacks, _ int) { c.spoil(d) }))
			clients := []*Client{r.dial(0), r.dial(1)} // both before the first error
			r.all(func(i int) error {
				tr := side(t, r.spec, r.cut, 2, clients[i])
				for _, b := range r.batches(i) {
					_, err := tr.Backward(b, 0, func(int) {})
					if err == nil {
						err = tr.End(rate)
					}
					if err == nil {
						continue
					}
					if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), failed.Error()) {
						return fmt.Errorf("got %w", err)
					}
					return nil
				}
				return errors.New("no error")
			})
			if err := <-r.ends[0]; err == nil || !strings.Contains(err.Error(), failed.Error()) {
				t.Errorf("the heter-trainer ends with %v", err)
			}
		})
	}
}

// An error of the copy at open names the copy, and ends the heter-trainer.
func TestErrorOfTheFirstCopy(t *testing.T) {
	failed := errors.New("out of memory")
	r := newRig(t, 1, 1, changed(func(c *heter.Callbacks, _ int) { failSync(c, heter.ReadState, failed) }))
	const want = "reading the state of a new device: out of memory"
	if _, err := Dial(t.Context(), r.config); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a trainer ends with %v", err)
	}
	if err := <-r.ends[0]; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the heter-trainer ends with %v", err)
	}
}

// TestLongDescription wants a description above the limit refused before a connection.
func TestLongDescription(t *testing.T) {
	r := newRig(t, 1, 1, nil)
	cfg := r.config
	cfg.About = make([]byte, message.MaxAbout+1)
	if _, err := Dial(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "has 4194305 bytes, the limit is 4194304: leave fewer layers") {
		t.Error(err)
	}
	cfg.About = cfg.About[:message.MaxAbout]
	c, err := Dial(t.Context(), cfg)
	must(t, err)
	must(t, c.Leave())
	must(t, <-r.ends[0])
}

// changed makes devices callbacks, changed by do with the number of the heter-trainer.
func changed(do func(c *heter.Callbacks, index int)) func(*service.Config) {
	return func(s *service.Config) {
		behind(s)
		open, index := s.Open, s.Index
		s.Open = func(about []byte) (*heter.Cut, heter.Device, error) {
			cut, d, err := open(about)
			do(d.(*heter.Callbacks), index)
			return cut, d, err
		}
	}
}

func failSync(c *heter.Callbacks, action heter.SyncAction, failed error) {
	sync := c.OnSync
	c.OnSync = func(a heter.SyncAction) error {
		if a == action {
			return failed
		}
		return sync(a)
	}
}
