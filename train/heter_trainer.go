package train

import (
	"context"
	"fmt"
	"net"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/worker"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/model"
)

// usualMicros is Heter.Micros where nothing is said.
const usualMicros = 4

// runHeterTrainer is a heter-trainer's life in a run of a model. It ends with
// ringo.ErrHeterTrainerDone.
func runHeterTrainer(ctx context.Context, job *ringo.Job, m model.Spec, cfg Config) error {
	cfg.Model, cfg.given = m, true // the first rank tells the shape of the data
	cfg = cfg.on(job)
	place, say := job.HeterTrainer(), cfg.Heter.Report
	if say == nil {
		say = func(string) {}
	}
	name := fmt.Sprintf("heter-trainer %d of %d", place.Index, len(place.Addrs))
	f, err := worker.Serve(ctx, job, worker.Config{
		Stateless: cfg.lends(), Sessions: cfg.Servers.threads(), Report: say,
		Open: func(about []byte) (*heter.Cut, heter.Device, error) {
			cut, device, err := OpenPart(cfg, about)
			if err == nil && place.Index == 0 {
				say(cut.String())
			}
			return cut, device, err
		},
		Up: func(addr net.Addr) {
			say(fmt.Sprintf("%s is up at %s, trainers: %d, threads: %d", name, addr, place.Trainers*cfg.Servers.threads(), cfg.Threads))
		},
	})
	if err != nil {
		return err
	}
	say(fmt.Sprintf("%s is done: steps: %d, micro-batches: %d, samples: %d, busy %s, starved %s, agreed and updated %s", name,
		f.Steps, f.MicroBatches, f.Samples, quantity.Duration(f.Busy), quantity.Duration(f.Starved), quantity.Duration(f.Agreed)))
	return ringo.ErrHeterTrainerDone
}
