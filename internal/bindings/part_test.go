package bindings_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/client"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/transport"
)

// signs is a model of two layers, the second of which heter-trainers have.
var signs = model.Spec{
	Name: "signs", Input: []int{4}, Labels: 1, Classes: 2,
	Build: func(ps *nn.Params, _ model.Options) model.Model {
		near, far := ps.Dense("near", 4, 8), ps.Dense("far", 8, 2)
		part := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor { return t.Dense(x[0], far, nn.Identity) }
		return model.Model{Loss: model.CrossEntropy, Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.OnDevice(heter.DeviceName, part, t.Dense(b.Values, near, nn.ReLU))}
		}}
	},
}

// doubling is a part whose output is its parameters' first value: an update adds 1.
func doubling(cut *heter.Cut) *heter.Callbacks {
	n := cut.Slots[len(cut.Slots)-1].Offset + cut.Slots[len(cut.Slots)-1].Padded
	c := &heter.Callbacks{Start: heter.StartTrainer, OnSync: func(heter.SyncAction) error { return nil }}
	c.Memory.Gradients, c.Memory.Values = make([]float32, n), make([]float32, n)
	c.OnRun = func(m *heter.MicroBatch) error {
		for i := range m.Out {
			m.Out[i] = c.Memory.Values[0]
		}
		m.Loss, m.Terms = c.Memory.Values[0], m.N
		return nil
	}
	c.OnUpdate = func(float64, float32) error {
		c.Memory.Values[0]++
		return nil
	}
	return c
}

// part runs a rank and a heter-trainer of a program, and returns the losses and the ends of both.
func part(t *testing.T, settings string, about any, open func([]byte, *heter.Cut) (*heter.Callbacks, error)) (losses []float32, rank, server error) {
	ticket, addr := transport.NewTicket().String(), freeport.Address(t)
	lookup := func(name string) (string, bool) {
		if name != launch.TicketVar {
			return "", false
		}
		return ticket, true
	}
	settings = fmt.Sprintf(`{"addresses": [%q]%s}`, addr, settings)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		server = bindings.ServePart(ctx, bindings.Place{Size: 1, Ticket: ticket}, lookup, settings, bindings.Part{Open: open, Report: func(line string) { t.Log(line) }})
		if misuse := (*bindings.Misuse)(nil); errors.As(server, &misuse) {
			cancel() // no rank has heard of it
		}
	})
	rank = ringo.Run(ctx, ringo.Config{Size: 1, Rendezvous: freeport.Address(t), Heters: []string{addr}, Lookup: lookup}, func(job *ringo.Job) (err error) {
		losses, err = trainPart(job, about)
		return err
	})
	all.Wait()
	return losses, rank, server
}

func trainPart(job *ringo.Job, about any) (losses []float32, err error) {
	cut, err := heter.Find(signs, model.Options{}, nil)
	if err != nil {
		return nil, err
	}
	ps := nn.NewParams(1)
	m := signs.Build(ps, model.Options{})
	if err := errors.Join(cut.Freeze(ps, cut.Params), m.Arrange(ps, signs.Sample(1))); err != nil {
		return nil, err
	}
	if about == nil {
		about = map[string]any{"cut": cut}
	}
	text, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	addrs, ticket := job.Heters()
	remote, err := client.Dial(job.Context(), client.Config{Ticket: ticket, Version: ringo.Version, Addrs: addrs, Trainers: 1, Cut: cut, About: text})
	if err != nil {
		return nil, err
	}
	if remote.Start() == heter.StartTrainer {
		values := make([]float32, remote.Len())
		values[0] = 5
		if err := remote.Begin(values); err != nil {
			return nil, err
		}
	}
	trainer, err := heter.NewTrainer(m, cut, 2, remote, nn.TapeConfig{})
	if err != nil {
		return nil, err
	}
	defer trainer.Close()
	for range 3 {
		pass, err := trainer.Backward(signs.Sample(8), 1, func(int) {})
		if err != nil {
			return losses, err
		}
		losses = append(losses, pass.Loss.Mean.Data[0])
		if err := trainer.End(0.1); err != nil {
			return losses, err
		}
	}
	return losses, remote.Leave()
}

// A program with functions for a part serves ranks, whose rank 0 sends the first values.
func TestServePart(t *testing.T) {
	losses, rank, server := part(t, "", nil, func(_ []byte, cut *heter.Cut) (*heter.Callbacks, error) {
		if len(cut.Stage) != 1 || cut.Stage[0].Op != "dense" || cut.Stage[0].In[0] != 0 || len(cut.Loss) != 1 || cut.Loss[0].Op != "softmaxcrossentropy" || cut.Loss[0].In[0] != 1 {
			t.Errorf("the stage is %+v, the loss %+v", cut.Stage, cut.Loss)
		}
		return doubling(cut), nil
	})
	if rank != nil || server != nil || fmt.Sprint(losses) != "[5 6 7]" {
		t.Errorf("losses %v, the rank ends with %v, the heter-trainer with %v", losses, rank, server)
	}
}

// A part that does not fit ends both processes, and the errors say why.
func TestPartsThatDoNotFit(t *testing.T) {
	change := func(do func(*heter.Callbacks)) func([]byte, *heter.Cut) (*heter.Callbacks, error) {
		return func(_ []byte, cut *heter.Cut) (*heter.Callbacks, error) {
			c := doubling(cut)
			do(c)
			return c, nil
		}
	}
	own := func(c *heter.Callbacks) { c.Start = heter.StartOwn }
	for name, c := range map[string]struct {
		settings string
		about    any
		open     func([]byte, *heter.Cut) (*heter.Callbacks, error)
		want     string
	}{
		"refused":   {"", nil, func([]byte, *heter.Cut) (*heter.Callbacks, error) { return nil, errors.New("[2 3] is not [2 2]") }, "[2 3] is not [2 2]"},
		"no cut":    {"", "hello", change(own), "the rank's description of its model has no cut"},
		"too few":   {"", nil, change(func(c *heter.Callbacks) { c.Memory.Values, c.Memory.Gradients = make([]float32, 4), make([]float32, 4) }), "the part has 4 parameters, with the padding of the cut's ranges they are 32"},
		"uneven":    {"", nil, change(func(c *heter.Callbacks) { c.Memory.Gradients = nil }), "the part has 32 parameters and 0 gradients"},
		"seed":      {"", nil, change(func(c *heter.Callbacks) { c.Start = heter.StartSeed }), "the part's start is 0: want 1, first values of rank 0, or 2, its own"},
		"negative":  {"", nil, change(func(c *heter.Callbacks) { c.Start = -1 }), "the part's start is -1"},
		"settings":  {`, "stateles": true`, nil, nil, "stateles"},
		"trailing":  {`} {"stateless": true`, nil, nil, "the settings of a heter-trainer: text after the end of the JSON"},
		"algorithm": {`, "algorithm": "rings"`, nil, nil, `"rings" is not known`},
		"timeout":   {`, "timeout": -1`, nil, nil, "want a positive time"},
		"transport": {`, "transport": "udp"`, nil, nil, `"udp" is not known`},
	} {
		t.Run(name, func(t *testing.T) {
			_, rank, server := part(t, c.settings, c.about, c.open)
			if server == nil || !strings.Contains(server.Error(), c.want) {
				t.Errorf("the heter-trainer ends with %v, want %q", server, c.want)
			}
			if rank == nil || c.open != nil && !strings.Contains(rank.Error(), c.want) {
				t.Errorf("the rank ends with %v, want %q", rank, c.want)
			}
		})
	}
}

// A process that is no heter-trainer of a job cannot serve.
func TestPartWithoutAPlace(t *testing.T) {
	for want, place := range map[string]bindings.Place{
		"no heter-trainer of a job": {}, "the settings have no addresses": {Size: 1, Ticket: transport.NewTicket().String(), Rendezvous: freeport.Address(t)},
	} {
		err := bindings.ServePart(t.Context(), place, func(string) (string, bool) { return "", false }, "", bindings.Part{Report: func(string) {}})
		if misuse := (*bindings.Misuse)(nil); !errors.As(err, &misuse) || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}
