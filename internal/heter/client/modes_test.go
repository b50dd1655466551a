package client

import (
	"context"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/service"
	keeper "github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	pstrainer "github.com/ringo-ml/ringo/internal/server/trainer"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	psclient "github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// ages is a device that notes how old the part is that micro-batches are computed with. Trainers say in the last two values of samples who they
// are and at which step, and what they push makes one parameter the number of steps that servers have.
type ages struct {
	heter.Device
	at int // of that parameter

	mu   *sync.Mutex
	seen *[][2]float32
}

func (d ages) Run(m *heter.MicroBatch) error {
	width := len(m.In[0]) / m.N
	x := m.In[0][width-2 : width]
	d.mu.Lock()
	*d.seen = append(*d.seen, [2]float32{x[1], d.Values()[d.at]})
	d.mu.Unlock()
	return d.Device.Run(m)
}

// runModes does steps of so many trainers, the first of which is slow, on one server, and returns for each micro-batch its step and how many
// steps of all trainers were in the part that it was computed with.
func runModes(t *testing.T, mode engine.Mode, staleness, trainers, steps int) (seen [][2]float32) {
	const counter = "out.bias"
	var mu sync.Mutex
	r := newLentRig(t, trainers, 2, func(c *service.Config) {
		open := c.Open
		c.Open = func(about []byte) (*heter.Cut, heter.Device, error) {
			cut, d, err := open(about)
			a := ages{Device: d, mu: &mu, seen: &seen}
			for _, s := range cut.Slots {
				if s.Name == counter {
					a.at = s.Offset
				}
			}
			return cut, a, err
		}
	})
	sc := schema.Schema{Dense: []schema.Dense{{Name: "dense", Len: len(r.lender(0).params.Values()), Rule: schema.Rule{Name: "sgd", LR: 1}}}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	cfg := keeper.Defaults()
	ticket := r.config.Ticket.(transport.Ticket)
	cfg.Listener, cfg.Ticket, cfg.Version, cfg.Servers, cfg.Trainers, cfg.Sessions, cfg.Mode, cfg.Staleness = l, ticket, "1", 1, trainers, 1, mode, staleness
	ended := make(chan error, 1)
	go func() {
		_, err := keeper.Run(context.Background(), cfg)
		ended <- err
	}()
	r.all(func(i int) error {
		c, own := r.dial(i), r.lender(i)
		clear(own.params.Values())
		servers, err := psclient.Dial(t.Context(), psclient.Config{Ticket: ticket, Version: "1", Trainer: i, Trainers: trainers, Sessions: 1, Schema: sc, Servers: []string{l.Addr().String()}})
		if err != nil {
			return err
		}
		ps, err := pstrainer.New(pstrainer.Config{Client: servers, Schema: sc, Values: own.params.Values(), First: i == 0})
		if err != nil {
			return err
		}
		tr, err := heter.NewTrainer(own.model, r.cut, 2, c, nn.TapeConfig{})
		if err != nil {
			return err
		}
		defer tr.Close()
		if err := tr.SetParams(own.params, c); err != nil {
			return err
		}
		for step := 1; step <= steps; step++ {
			if i == 0 {
				time.Sleep(4 * time.Millisecond)
			}
			if err := ps.Fetch(pstrainer.Batch{}); err != nil {
				return err
			}
			if _, err := tr.Backward(stamped(r, i, step), 0, nil); err != nil {
				return err
			}
			own.count(counter, -1)
			ps.Start(&exchange.Request{X: own.params.Grads()})
			if _, err := ps.Wait(nil); err != nil {
				return err
			}
			if err := tr.End(1); err != nil {
				return err
			}
			if err := ps.End(1); err != nil {
				return err
			}
		}
		if err := c.Leave(); err != nil {
			return err
		}
		return ps.Leave(t.Context())
	})
	r.checkEnds()
	must(t, <-ended)
	return seen
}

// stamped is a batch that says whose it is.
func stamped(r *rig, trainer, step int) model.Batch {
	b := r.batches(trainer)[step%r.steps]
	width := len(b.Values.Data) / b.N
	for i := range b.N {
		x := b.Values.Data[i*width : (i+1)*width]
		x[width-2], x[width-1] = float32(trainer), float32(step)
	}
	return b
}

// count makes gradients those of a parameter that counts steps alone.
func (l lender) count(name string, by float32) {
	for _, p := range l.params.List() {
		clear(p.Grad)
		if p.Name == name {
			p.Grad[0] = by
		}
	}
}

// What a mode promises of how old parameters are holds for the part on heter-trainers: in ssp no micro-batch of a step is computed with a part that
// lacks more than the staleness allows, whoever is slow, and no step of its own trainer. Without that promise some are.
func TestAges(t *testing.T) {
	const trainers, steps = 3, 20
	for _, c := range []struct {
		mode      engine.Mode
		staleness int
	}{{engine.SSP, 0}, {engine.SSP, 2}, {engine.Async, 0}} {
		seen := runModes(t, c.mode, c.staleness, trainers, steps)
		if len(seen) != trainers*steps*2 {
			t.Fatalf("%s: %d micro-batches", c.mode, len(seen))
		}
		worst, old := math.Inf(1), 0
		for _, s := range seen {
			step, has := float64(s[0]), float64(s[1])
			promised := step - 1 + (trainers-1)*max(0, step-1-float64(c.staleness))
			worst = min(worst, has-promised)
			if has < step-1 || has > trainers*steps {
				t.Errorf("%s: step %v has seen %v steps", c.mode, step, has)
			}
			if has < promised {
				old++
			}
		}
		if c.mode == engine.SSP && old > 0 || c.mode == engine.Async && old == 0 {
			t.Errorf("%s, staleness %d: %d micro-batches with a part that is older than that, by %v steps", c.mode, c.staleness, old, -worst)
		}
	}
}
