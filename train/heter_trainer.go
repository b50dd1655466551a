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

const usualMicros = 4

// runHeterTrainer serves as a heter-trainer until all ranks have left, and then returns
// ringo.ErrHeterTrainerDone.
func runHeterTrainer(ctx context.Context, job *ringo.Job, m model.Spec, cfg Config) error {
	cfg.Model, cfg.hasSet = m, true // the first rank sends the shape of the data
	cfg = cfg.on(job)
	place, say := job.HeterTrainer(), cfg.Heter.Report
	if say == nil {
		say = func(string) {}
	}
	name := fmt.Sprintf("heter-trainer %d of %d", place.Index, len(place.Addrs))
	f, err := worker.Serve(ctx, job, worker.Config{
		Stateless: cfg.sendsParams(), Sessions: cfg.Servers.threads(), Report: say,
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

// Stage is the time of one stage of a rank's pipeline to heter-trainers, in seconds.
type Stage struct {
	BusyS    float64 `json:"busy_s"`
	StarvedS float64 `json:"starved_s"` // waiting for the stage before
	BlockedS float64 `json:"blocked_s"` // waiting for the stage after
}

func stageOf(t heter.StageTimes) Stage {
	return Stage{t.Busy.Seconds(), t.Starved.Seconds(), t.Blocked.Seconds()}
}

func (s Stage) plus(o Stage) Stage {
	return Stage{s.BusyS + o.BusyS, s.StarvedS + o.StarvedS, s.BlockedS + o.BlockedS}
}

// String returns those parts of the stage's time that are above 0.5 ms.
func (s Stage) String() string {
	text := ""
	for _, part := range []struct {
		state   string
		seconds float64
	}{{"busy", s.BusyS}, {"starved", s.StarvedS}, {"blocked", s.BlockedS}} {
		if part.seconds >= 0.0005 {
			text += fmt.Sprintf(" %s %s", part.state, quantity.Seconds(part.seconds))
		}
	}
	return text
}

// Stages are the times of a rank's pipeline to heter-trainers in training: rows are pulled, pooled
// up to the cut and sent; backward continues from the returned gradients. Sending overlaps with the
// other stages, which alternate.
type Stages struct {
	Pull Stage `json:"pull"` // starved: waiting for rows
	Pool Stage `json:"pool"`
	Send Stage `json:"send"` // blocked: heter-trainers had no buffer, or were at the step before
	Back Stage `json:"back"` // starved: waiting for gradients
}

func (s *Stages) add(o Stages) {
	s.Pull, s.Pool, s.Send, s.Back = s.Pull.plus(o.Pull), s.Pool.plus(o.Pool), s.Send.plus(o.Send), s.Back.plus(o.Back)
}

// String returns the times by stage.
func (s Stages) String() string {
	return fmt.Sprintf("pull%v; pool%v; send%v; back%v", s.Pull, s.Pool, s.Send, s.Back)
}
