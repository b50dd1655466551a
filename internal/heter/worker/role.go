// Package worker runs a process started as a heter-trainer by a launcher: find the role in the job,
// open the stage of the model, and compute for ranks until all have left. Package train does this
// for programs with train.Run or train.NewLoop; a custom loop over heter.Trainer calls Serve:
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
// Ranks and heter-trainers are the same program, and call ringo.Run.
// `ringo run --servers S --np N --heter M -- PROGRAM` starts both.
package worker

import (
	"context"
	"errors"
	"net"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/service"
)

// Config configures a heter-trainer.
type Config struct {
	// Open makes the stage and its device, from the first rank's description: see service.Config.
	Open func(about []byte) (*heter.Cut, heter.Device, error)
	// Stateless reports that ranks send the stage's parameters, as with client.Config.Lent.
	Stateless bool
	// Sessions is the number of trainers, each with a Client, in every rank. 0: one.
	Sessions int
	// Up is called when ranks can connect to an address. It may be nil.
	Up func(addr net.Addr)
	// Report receives lines for users. It may be nil; many goroutines call it.
	Report func(line string)
}

// Serve computes for the ranks of a job until all have left, and returns the Stats. A second call,
// or a process that is no heter-trainer, is an error.
//
// Call Serve early: heartbeats start there, and a launcher treats a heter-trainer without a
// heartbeat as lost after the job's join timeout.
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
