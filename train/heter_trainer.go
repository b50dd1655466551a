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

// Stage is how a stage of a rank's pipeline to heter-trainers has spent its time, in seconds.
type Stage struct {
	BusyS    float64 `json:"busy_s"`
	StarvedS float64 `json:"starved_s"` // the stage before had nothing for it
	BlockedS float64 `json:"blocked_s"` // the stage behind had no room
}

func stageOf(t heter.StageTimes) Stage {
	return Stage{t.Busy.Seconds(), t.Starved.Seconds(), t.Blocked.Seconds()}
}

func (s Stage) plus(o Stage) Stage {
	return Stage{s.BusyS + o.BusyS, s.StarvedS + o.StarvedS, s.BlockedS + o.BlockedS}
}

// String tells of the parts that took time.
func (s Stage) String() string {
	text := ""
	for _, part := range []struct {
		what    string
		seconds float64
	}{{"busy", s.BusyS}, {"starved", s.StarvedS}, {"blocked", s.BlockedS}} {
		if part.seconds >= 0.0005 {
			text += fmt.Sprintf(" %s %s", part.what, quantity.Seconds(part.seconds))
		}
	}
	return text
}

// Stages are those of a rank whose model's dense part heter-trainers have, while it trained. Rows are pulled, pooled up to the cut and sent,
// and from the gradients that come back the rank goes on backward. Sending overlaps all others, which take turns.
type Stages struct {
	Pull Stage `json:"pull"` // starved: rows were not here yet
	Pool Stage `json:"pool"`
	Send Stage `json:"send"` // blocked: heter-trainers had no room, or were at the step before
	Back Stage `json:"back"` // starved: gradients had not come back yet
}

func (s *Stages) add(o Stages) {
	s.Pull, s.Pool, s.Send, s.Back = s.Pull.plus(o.Pull), s.Pool.plus(o.Pool), s.Send.plus(o.Send), s.Back.plus(o.Back)
}

// String tells where the time went, stage by stage.
func (s Stages) String() string {
	return fmt.Sprintf("pull%v; pool%v; send%v; back%v", s.Pull, s.Pool, s.Send, s.Back)
}
