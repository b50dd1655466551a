// Package worker is what a program does that a launcher has started as a heter-trainer: it finds
// its place by its job, opens the part of its model, and computes for ranks until all of them have
// left. Package train does it for programs that call train.Run or train.NewLoop; one with a loop of
// its own over heter.Trainer calls Serve in it:
//
//	func run(job *ringo.Job) error {
//		if job.HeterTrainer() != nil {
//			_, err := worker.Serve(job.Context(), job, worker.Config{Open: open})
//			return err
//		}
//		addrs, ticket := job.Heters() // of a rank: for client.Dial
//		…
//	}
//
// Ranks and heter-trainers are one program, and call ringo.Run. `ringo run --servers S --np N --heter M -- PROGRAM` starts both.
package worker

import (
	"context"
	"errors"
	"net"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/service"
)

// Config says what a heter-trainer computes.
type Config struct {
	// Open makes the part, of what the first rank says of its model, and the device that computes it: see service.Config.
	Open func(about []byte) (*heter.Cut, heter.Device, error)
	// Stateless says that ranks lend the part's parameters, as client.Config.Stateless does.
	Stateless bool
	// Sessions is how many trainers, each with a Client of its own, every rank has. 0: one.
	Sessions int
	// Up is called when ranks can come to an address. It may be nil.
	Up func(addr net.Addr)
	// Report gets a line about what a person should know. It may be nil; it is called by many goroutines.
	Report func(line string)
}

// Serve computes for the ranks of a job until all have left, and returns what it has done. It is an error in a process that is no
// heter-trainer, or where it was called before.
//
// It is to be called soon: a launcher that sees no sign of life of a heter-trainer takes it for lost after the job's join timeout, and
// what shows it begins here.
func Serve(ctx context.Context, job *ringo.Job, cfg Config) (service.Stats, error) {
	place := job.HeterTrainer()
	if place == nil {
		return service.Stats{}, errors.New("heter: this process is a rank of its job, and no heter-trainer: see Job.HeterTrainer")
	}
	_, ticket := job.Heters()
	c := service.Config{
		Ticket: ticket, Version: ringo.Version, Index: place.Index, Count: len(place.Addrs), Trainers: place.Trainers * max(1, cfg.Sessions), Times: place.Times,
		Stateless: cfg.Stateless, ContinueOnLoss: place.ContinueOnLoss, Open: cfg.Open, Report: cfg.Report, LinkOnly: place.LinkOnly,
	}
	if c.Count > 1 && !c.Stateless {
		c.Addrs = place.Addrs
		c.Meet = func(ctx context.Context, m service.GroupSpec) (service.StepGroup, error) {
			j, err := place.Meet(ctx, m.Members, m.Place)
			if err != nil {
				return nil, err
			}
			return service.Over(j.Group(), j.Close), nil
		}
	}
	s, err := service.New(c)
	if err != nil {
		return service.Stats{}, err
	}
	listener, err := place.Begin()
	if err != nil {
		return service.Stats{}, err
	}
	if cfg.Up != nil {
		cfg.Up(listener.Addr())
	}
	return s.Serve(ctx, listener)
}
