package bindings

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/worker"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// PartSettingsVar is the variable of a program with the settings of the `ringo heter` before it.
const PartSettingsVar = "RINGO_PART_SETTINGS"

// PartSettings are settings for a heter-trainer in another language, as JSON, equal to the ranks'.
type PartSettings struct {
	// Addresses are the addresses of all heter-trainers, by number, for a Place by hand.
	Addresses []string `json:"addresses,omitempty"`
	// Stateless reports that ranks send the stage's parameters: every sync but bsp.
	Stateless bool `json:"stateless,omitempty"`
	// TrainerThreads is ps.trainer-threads; 0 means 1.
	TrainerThreads int `json:"trainer_threads,omitempty"`
	// Transport, Algorithm and Timeout are those of a Place that sets none.
	Transport string        `json:"transport,omitempty"`
	Algorithm string        `json:"algorithm,omitempty"`
	Timeout   time.Duration `json:"timeout,omitempty"`
	// ContinueOnLoss reports that the job continues without a lost rank.
	ContinueOnLoss bool          `json:"continue_on_loss,omitempty"`
	Times          cluster.Times `json:"times"`
	Network        ringo.Network `json:"network"`
}

// Part is a heter-trainer's computation in another language.
type Part struct {
	// Open makes the device for the stage of a cut. about is the first rank's description, JSON
	// with a field "cut".
	Open func(about []byte, cut *heter.Cut) (*heter.Callbacks, error)
	// Report receives lines for users; any goroutine calls it.
	Report func(line string)
}

// ServePart makes this process a heter-trainer of its job, and returns after all ranks have left.
// text are PartSettings as JSON, "" for the defaults.
func ServePart(ctx context.Context, p Place, lookup func(string) (string, bool), text string, part Part) error {
	var s PartSettings
	if err := decode("the settings of a heter-trainer", cmp.Or(text, "{}"), &s); err != nil {
		return err
	}
	if p.Heters = s.Addresses; p.Size > 0 && len(p.Heters) == 0 {
		return Misusef("a heter-trainer that is placed by hand: the settings have no addresses: set those of all heter-trainers, HOST:PORT each")
	}
	p.Transport, p.Algorithm, p.Timeout = cmp.Or(p.Transport, s.Transport), cmp.Or(p.Algorithm, s.Algorithm), cmp.Or(p.Timeout, s.Timeout)
	cfg, err := p.Config(lookup)
	if err != nil {
		return err
	}
	join := cfg.Times.Join
	if cfg.Times, cfg.Network, cfg.ServersOnly = s.Times, s.Network, s.ContinueOnLoss; join != 0 {
		cfg.Times.Join = join
	}
	return ringo.Run(ctx, cfg, func(job *ringo.Job) error { return s.serve(ctx, job, part) })
}

func (s PartSettings) serve(ctx context.Context, job *ringo.Job, part Part) error {
	place := job.HeterTrainer()
	if place == nil {
		return Misusef("this process is no heter-trainer of a job: a launcher's variables, or the number of ranks, the index and the addresses of all heter-trainers, must place it")
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	name := fmt.Sprintf("heter-trainer %d of %d", place.Index, len(place.Addrs))
	f, err := worker.Serve(ctx, job, worker.Config{
		Stateless: s.Stateless, Sessions: s.TrainerThreads, Report: part.Report,
		Open: func(about []byte) (*heter.Cut, heter.Device, error) {
			cut, device, err := s.open(about, part, place.Index == 0)
			if err != nil { // no other rank brings another stage
				stop(err)
			}
			return cut, device, err
		},
		Up: func(addr net.Addr) { part.Report(fmt.Sprintf("%s is up at %s, a program with libringo", name, addr)) },
	})
	if err != nil {
		return err
	}
	part.Report(fmt.Sprintf("%s is done: steps: %d, micro-batches: %d, samples: %d, busy %s, starved %s, agreed and updated %s", name,
		f.Steps, f.MicroBatches, f.Samples, quantity.Duration(f.Busy), quantity.Duration(f.Starved), quantity.Duration(f.Agreed)))
	return ringo.ErrHeterTrainerDone
}

// open makes the device, and checks that it fits the cut.
func (s PartSettings) open(about []byte, part Part, prints bool) (*heter.Cut, heter.Device, error) {
	var has struct{ Cut *heter.Cut }
	if err := json.Unmarshal(about, &has); err != nil || has.Cut == nil || len(has.Cut.Slots) == 0 {
		return nil, nil, fmt.Errorf("the rank's description of its model has no cut (%v): a heter-trainer without the model's code needs ranks with train.Run or train.NewLoop", err)
	}
	c := has.Cut
	d, err := part.Open(about, c)
	if err != nil {
		return nil, nil, err
	}
	last := c.Slots[len(c.Slots)-1]
	switch n, want := len(d.Memory.Values), last.Offset+last.Padded; {
	case n == 0 || n != len(d.Memory.Gradients):
		err = fmt.Errorf("the part has %d parameters and %d gradients: want equally many, at least one", n, len(d.Memory.Gradients))
	case d.Start != heter.StartTrainer && d.Start != heter.StartOwn:
		err = fmt.Errorf("the part's start is %d: want %d, first values of rank 0, or %d, its own", d.Start, heter.StartTrainer, heter.StartOwn)
	case d.Start != heter.StartOwn && n != want:
		err = fmt.Errorf("the part has %d parameters, with the padding of the cut's ranges they are %d", n, want)
	case d.Start == heter.StartOwn && s.Stateless:
		err = fmt.Errorf("the module's parameters are not those of the stage (%s), which ranks send in every sync but bsp: use bsp, or give the module these parameters", strings.Join(c.Params, ", "))
	case d.Start != heter.StartOwn && len(c.Frozen) > 0:
		err = fmt.Errorf("the stage has frozen parameters (%s), which a heter-trainer of another program does not receive: train them, or use heter.device=cpu", strings.Join(c.Frozen, ", "))
	}
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	if prints {
		part.Report(c.String())
	}
	return c, d, nil
}
