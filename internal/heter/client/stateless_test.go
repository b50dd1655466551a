package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// lender is a trainer that has all parameters, which are not those of other trainers, and moves them itself.
type lender struct {
	params *nn.Params
	model  model.Model
}

func (r *rig) lender(trainer int) lender {
	ps := nn.NewParams(seed + uint64(trainer))
	m := r.spec.Build(ps, model.Options{})
	must(r.t, m.Arrange(ps, r.spec.Sample(1)))
	return lender{ps, m}
}

// move is a step of plain gradient descent of the dense parameters.
func (l lender) move() {
	for _, p := range l.params.List() {
		for i, g := range p.Grad {
			p.Data[i] -= rate * g
		}
	}
}

// whole does a trainer's steps in one piece.
func (r *rig) whole(trainer int) (losses []float32, values []float32) {
	l := r.lender(trainer)
	tape := nn.NewTape(nn.TapeConfig{})
	defer tape.Close()
	for _, b := range r.batches(trainer) {
		tape.Reset()
		pass := l.model.Pass(tape, b)
		tape.Backward(pass.Loss.Mean, func(int) {})
		losses = append(losses, pass.Loss.Mean.Data[0])
		l.move()
	}
	return losses, l.params.Values()
}

// toldLender is told of a Lender.
type toldLender struct {
	told
	*Client
}

func (d *toldLender) Send(m *heter.MicroBatch) error { return d.told.Send(m) }
func (d *toldLender) Wait(m *heter.MicroBatch) error { return d.told.Wait(m) }
func (d *toldLender) End(rate float64) error         { return d.told.End(rate) }
func (d *toldLender) Gradients(dst []float32) error {
	d.at(d.told.step, "waits")
	defer d.at(d.told.step, "all")
	return d.Client.Gradients(dst)
}

// runLent does all steps of all trainers, each with an evaluation before and after, and compares. All
// trainers are connected before the first step: trainers of this mode do not wait for each other, and
// a heter-trainer that ends meanwhile refuses those that come.
func (r *rig) runLent(micros int, same bool, at func(step int, place string)) {
	r.t.Helper()
	var clients []*Client
	for i := range r.config.Trainers {
		clients = append(clients, r.dial(i))
	}
	r.all(func(i int) error {
		want, values := r.whole(i)
		c, l := clients[i], r.lender(i)
		tell := func(step int, place string) {
			if i == 0 {
				at(step, place)
			}
		}
		to := &toldLender{told{c, 0, tell}, c}
		tr, err := heter.NewTrainer(l.model, r.cut, micros, to, nn.TapeConfig{})
		must(r.t, err)
		defer tr.Close()
		must(r.t, tr.SetParams(l.params, to))
		near := func(what string, step int, got float32) error {
			if d := furthest([]float32{got}, want[step:step+1]); d > r.near || same && d != 0 {
				return fmt.Errorf("step %d: %s %v, want %v", step+1, what, got, want[step])
			}
			return nil
		}
		for step, b := range r.batches(i) {
			before, err := tr.Evaluate(b)
			if err != nil {
				return err
			}
			if err := near("evaluated", step, before.Loss.Mean.Data[0]); err != nil {
				return err
			}
			var told []int
			pass, err := tr.Backward(b, 0, func(slot int) { told = append(told, slot) })
			if err != nil {
				return err
			}
			if slices.Sort(told); len(told) != len(l.params.Slots()) || len(slices.Compact(told)) != len(l.params.Slots()) {
				return fmt.Errorf("gradients of %v are ready, of %d", told, len(l.params.Slots()))
			}
			if err := near("loss", step, pass.Loss.Mean.Data[0]); err != nil {
				return err
			}
			l.move()
			if err := tr.End(rate); err != nil {
				return err
			}
		}
		if d := furthest(l.params.Values(), values); d > r.near || same && d != 0 {
			return fmt.Errorf("parameters are %v off", d)
		}
		return c.Leave()
	})
}

func newLentRig(t testing.TB, trainers, heters int, change func(*service.Config)) *rig {
	t.Helper()
	r := newRig(t, trainers, heters, func(c *service.Config) {
		c.Stateless, c.Meet = true, nil
		if change != nil {
			change(c)
		}
	})
	r.config.Lent = true
	return r
}

func (r *rig) checkEnds(lost ...int) {
	r.t.Helper()
	for i, end := range r.ends {
		if err := <-end; (err != nil) != slices.Contains(lost, i) {
			r.t.Errorf("heter-trainer %d has ended: %v", i, err)
		}
	}
}

// Trainers that lend the part's parameters learn, each for itself, what they learn in one piece, whichever heter-trainers they share: the
// same bits where one heter-trainer has whole batches.
func TestLent(t *testing.T) {
	for _, mix := range [][3]int{{1, 1, 1}, {3, 1, 1}, {1, 1, 5}, {1, 2, 4}, {3, 2, 2}, {2, 3, 32}} {
		t.Run(fmt.Sprint(mix), func(t *testing.T) {
			r := newLentRig(t, mix[0], mix[1], nil)
			r.runLent(mix[2], mix[1]*mix[2] == 1, func(int, string) {})
			r.checkEnds()
		})
	}
}

// On one host what is lent, and gradients' sums, go through shared memory once a step each, whatever is evaluated, with the bits that they have over a link;
// and each to those that can have it.
func TestLentShared(t *testing.T) {
	if !sharedmem.Supported {
		t.Skip("no memory is shared on this system")
	}
	for _, link := range []bool{false, true} {
		r := newLentRig(t, 1, 1, func(c *service.Config) { c.LinkOnly = link })
		r.runLent(1, true, func(int, string) {})
		r.checkEnds()
		l, batches := message.Layout{Cut: r.cut}, r.batches(0)
		lent := 2 * 4 * int64(r.cut.Slots[len(r.cut.Slots)-1].Offset+r.cut.Slots[len(r.cut.Slots)-1].Padded) * int64(len(batches))
		var micros int64
		for _, b := range batches {
			micros += int64(2*l.RequestBytes(b.N) + l.ResultBytes(b.N, true) + l.ResultBytes(b.N, false) - 4*message.HeadSize)
		}
		f := r.served[0]
		switch read := f.Read + f.Written; {
		case link && (f.Shared != 0 || read < lent+micros):
			t.Errorf("%d bytes went over the link, of %d at least: %+v", read, lent+micros, f)
		case !link && (f.Shared != lent+micros || read > lent/4):
			t.Errorf("%d bytes are in memory and %d went over the link, want %d in memory: %+v", f.Shared, read, lent+micros, f)
		}
	}
	r := newLentRig(t, 2, 2, func(c *service.Config) { c.LinkOnly = c.Index == 1 })
	r.runLent(4, false, func(int, string) {})
	r.checkEnds()
}

// A heter-trainer that is lost, wherever the step is, costs nothing while another is left: what it had is computed again, and counts once. One
// that is started again is used at once, and stands in for all others.
//
// invariant[heter-sum-slot]: sums are whole also where a heter-trainer gets a lost one's micro-batches while its sum is read.
func TestLentLoss(t *testing.T) {
	for _, place := range []string{"sent", "back", "waits", "all", "ended"} {
		for _, mix := range [][3]int{{1, 2, 4}, {2, 3, 12}, {3, 2, 1}} {
			t.Run(fmt.Sprint(place, mix), func(t *testing.T) {
				r := newLentRig(t, mix[0], mix[1], nil)
				back := make(chan struct{}, 16)
				r.config.Report = func(line string) {
					if strings.Contains(line, "is there again") {
						back <- struct{}{}
					}
				}
				times := 1 // of several trainers some may have ended before it is there again
				if mix[0] == 1 {
					times = 2
				}
				lost := -1
				r.runLent(mix[2], false, func(step int, where string) {
					if where != place || step == 0 || step > times || lost >= step-1 {
						return
					}
					lost = step - 1
					for range lost {
						<-back // so that it may be the only one
					}
					r.stop(lost)
					r.again(lost)
				})
				if lost != times-1 {
					t.Errorf("%d", lost)
				}
				for i, stop := range r.stops { // the last one may not have been found while there were trainers
					stop()
					<-r.ends[i]
				}
			})
		}
	}
}

// The last heter-trainer that is lost ends a trainer by name.
func TestLentLastLost(t *testing.T) {
	r := newLentRig(t, 1, 1, nil)
	c, l := r.dial(0), r.lender(0)
	tr, err := heter.NewTrainer(l.model, r.cut, 2, c, nn.TapeConfig{})
	must(t, err)
	t.Cleanup(tr.Close)
	must(t, tr.SetParams(l.params, c))
	_, err = tr.Backward(r.batches(0)[0], 0, func(int) {})
	must(t, err)
	r.stop(0)
	if _, err = tr.Backward(r.batches(0)[1], 0, func(int) {}); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Error(err)
	}
}

// A trainer of another mode is refused, and so is what may not be lent.
func TestLentRefuses(t *testing.T) {
	r := newLentRig(t, 1, 1, nil)
	cfg := r.config
	cfg.Lent, cfg.Timeout = false, 10*time.Second
	if _, err := Dial(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "trainer 0 does not lend the part's parameters") {
		t.Error(err)
	}
	c := r.dial(0)
	if err := c.Lend(make([]float32, 3)); err == nil || !strings.Contains(err.Error(), "3 values of the part to lend: heter-trainers compute with ") {
		t.Error(err)
	}
	if err := c.Gradients(make([]float32, c.Len())); err == nil {
		t.Error("gradients of no step")
	}
	c.Abort(errors.New("the end"))
	<-r.ends[0]
}
