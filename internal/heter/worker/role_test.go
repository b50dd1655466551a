package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/client"
	"github.com/ringo-ml/ringo/internal/heter/worker"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

const (
	seed, batch, steps = 3, 64, 60
	rate               = 0.2
)

// signs is a model that tells whether the sum of four numbers is positive: ranks have its first layer, heter-trainers the others.
var signs = model.Spec{
	Name: "signs", Input: []int{4}, Labels: 1, Classes: 2,
	Build: func(ps *nn.Params, _ model.Options) model.Model {
		near, far, last := ps.Dense("near", 4, 8), ps.Dense("far", 8, 8), ps.Dense("last", 8, 2)
		part := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor {
			return t.Dense(t.Dense(x[0], far, nn.ReLU), last, nn.Identity)
		}
		return model.Model{Loss: model.CrossEntropy, Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.OnDevice(heter.DeviceName, part, t.Dense(b.Values, near, nn.ReLU))}
		}}
	},
}

// Example is a program with a loop of its own: each of its processes calls ringo.Run with run. Here they are goroutines, placed by hand.
func Example() {
	losses, err := together(1, 1, "")
	fmt.Println(err, len(losses) == steps && losses[0] > 0.6 && losses[steps-1] < 0.3)
	// Output: <nil> true
}

// run is what every process of the program does; a rank returns its losses.
func run(job *ringo.Job) (losses []float32, err error) {
	cut, err := heter.Find(signs, model.Options{}, nil)
	if err != nil {
		return nil, err
	}
	if job.HeterTrainer() != nil {
		_, err := worker.Serve(job.Context(), job, worker.Config{Open: func([]byte) (*heter.Cut, heter.Device, error) {
			d, err := heter.NewCPU(signs, cut, heter.CPUConfig{Seed: seed, Optimizer: func(*nn.Params) (optim.Optimizer, error) { return &optim.SGD{LR: rate}, nil }})
			return cut, d, err
		}})
		return nil, err
	}
	ps := nn.NewParams(seed)
	m := signs.Build(ps, model.Options{})
	if err := errors.Join(cut.Freeze(ps, cut.Params), m.Arrange(ps, signs.Sample(1))); err != nil {
		return nil, err
	}
	addrs, ticket := job.Heters()
	remote, err := client.Dial(job.Context(), client.Config{Ticket: ticket, Version: ringo.Version, Addrs: addrs, Trainer: job.Rank(), Trainers: job.Size(), Cut: cut})
	if err != nil {
		return nil, err
	}
	trainer, err := heter.NewTrainer(m, cut, 2, remote, nn.TapeConfig{})
	if err != nil {
		return nil, err
	}
	defer trainer.Close()
	for step := range uint64(steps) {
		pass, err := trainer.Backward(samples(uint32(step)*uint32(job.Size())+uint32(job.Rank())), step, func(int) {})
		if err != nil {
			return nil, err
		}
		losses = append(losses, pass.Loss.Mean.Data[0])
		if err := errors.Join(trainer.End(rate), collective.AllReduce(job.Group(), ps.Grads(), collective.Sum)); err != nil { // heter-trainers' parameters, and ranks' own
			return nil, err
		}
		for i, g := range ps.Grads() {
			ps.Values()[i] -= rate / float32(job.Size()) * g
		}
	}
	return losses, remote.Leave()
}

// samples are a batch, by its number.
func samples(number uint32) model.Batch {
	b := signs.Sample(batch)
	for i := range b.N {
		sum := float32(0)
		for k := range 4 {
			number = number*1664525 + 1013904223
			x := float32(number>>8)/(1<<23) - 1
			b.Values.Data[4*i+k], sum = x, sum+x
		}
		b.Labels[i] = 0
		if sum > 0 {
			b.Labels[i] = 1
		}
	}
	return b
}

// together runs ranks and heter-trainers, and returns the losses of rank 0.
func together(ranks, heters int, tls string) (losses []float32, err error) {
	cfg := ringo.Config{Size: ranks, Rendezvous: free(), Network: ringo.Network{TLS: transport.TLS{Mode: tls}}, Lookup: secret()}
	for range heters {
		cfg.Heters = append(cfg.Heters, free())
	}
	errs := make([]error, ranks+heters)
	var all sync.WaitGroup
	for i := range errs {
		mine := cfg
		if mine.Rank = i; i >= ranks {
			mine.Rank, mine.HeterTrainer, mine.Rendezvous = i-ranks, true, ""
		}
		all.Go(func() {
			errs[i] = ringo.Run(context.Background(), mine, func(job *ringo.Job) error {
				own, err := run(job)
				if job.Rank() == 0 {
					losses = own
				}
				return err
			})
		})
	}
	all.Wait()
	return losses, errors.Join(errs...)
}

// secret has the ticket of a job, which programs find in their environment.
func secret() func(name string) (string, bool) {
	ticket := transport.NewTicket().String()
	return func(name string) (string, bool) {
		if name != launch.TicketVar {
			return "", false
		}
		return ticket, true
	}
}

// free is an address where nobody listens.
func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A job learns the same whoever computes its part, over links that are encrypted, too.
func TestOwnLoop(t *testing.T) {
	one, err := together(2, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	two, err := together(2, 2, transport.TLSOn)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range one {
		if d := math.Abs(float64(two[i] - want)); d > 1e-4 {
			t.Fatalf("step %d: loss %v with two heter-trainers, %v with one", i, two[i], want)
		}
	}
}

// A rank cannot serve, and a heter-trainer does once.
func TestServeIsRefused(t *testing.T) {
	cfg := ringo.Config{Lookup: secret()}
	serve := func(job *ringo.Job) error {
		stopped, stop := context.WithCancel(job.Context())
		stop()
		_, err := worker.Serve(stopped, job, worker.Config{Open: func([]byte) (*heter.Cut, heter.Device, error) { return nil, nil, nil }})
		return err
	}
	if err := ringo.Run(t.Context(), cfg, serve); err == nil || !strings.Contains(err.Error(), "this process is a rank of its job, and no heter-trainer") {
		t.Errorf("got %v", err)
	}
	cfg.Size, cfg.HeterTrainer, cfg.Heters = 1, true, []string{free()}
	err := ringo.Run(t.Context(), cfg, func(job *ringo.Job) error { return errors.Join(serve(job), serve(job)) })
	if err == nil || !strings.Contains(err.Error(), "context canceled") || !strings.Contains(err.Error(), "heter-trainer 0 has begun already: one process serves once") {
		t.Errorf("got %v", err)
	}
}
