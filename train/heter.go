package train

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/client"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/trainer"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// Heter says that the part of the model that its code marks for them (nn.Tape.OnDevice) runs on
// heter-trainers. What is before the part runs on the ranks, with parameters on servers. In bsp
// heter-trainers own the part's parameters. In other modes these lie on servers as all others do,
// and a rank lends them what it has for each of its steps, so that the mode promises of them what
// it promises without heter-trainers.
type Heter struct {
	// Count is how many heter-trainers the job has; for Run 0: as many as the launcher says, or none.
	Count int
	// Micros is in how many micro-batches a batch goes there, at least 1; for Run 0: 4.
	Micros int
	// Values is how what crosses travels: fp32 (also where it is empty), fp16, bf16 or int8. Other than as fp32 results are not those
	// of a model in one piece.
	Values string
	// Report gets a line about each heter-trainer that this rank loses while others are left; in a heter-trainer about what it does. It
	// may be nil; any goroutine may call it.
	Report func(line string) `json:"-"`
	// Note gets a line where this rank shares no memory with a heter-trainer and could. It may be nil: Report does; any goroutine may call it.
	Note func(line string) `json:"-"`
}

func (h *Heter) settings() []setting.Row {
	kept, some := setting.Equals("sync", Consistencies()...), setting.Enabled("heter.count")
	return []setting.Row{
		{Path: "heter.count", Commands: setting.Run | setting.Heter, Scope: setting.JobMutable, Flag: "heter", Unit: "processes", Needs: kept, Value: setting.Int(&h.Count),
			About: "number of heter-trainers, which compute the dense layers that the model's code marks for them, and under sync bsp own their parameters; 0: ranks compute all"},
		{Path: "heter.micro-batches", Commands: setting.Heter, Scope: setting.JobMutable, Unit: "pieces", Needs: some, Value: setting.Int(&h.Micros),
			About: "in how many micro-batches a batch goes to heter-trainers, which compute one while ranks are at the next"},
		{Path: "heter.wire-dtype", Commands: setting.Heter, Scope: setting.JobMutable, Needs: some, Value: setting.Choice(&h.Values, "fp32", "fp16", "bf16", "int8", ""),
			About: "how activations and their gradients travel between ranks and heter-trainers"},
	}
}

// validateHeter reports what heter-trainers rule out.
func (c Config) validateHeter(f *errorList) {
	h := c.Heter
	f.add(h.Count < 0, "heter.count", "%d: want 0 or more", h.Count)
	if h.Count == 0 {
		return
	}
	f.add(h.Micros < 1, "heter.micro-batches", "%d: want at least 1", h.Micros)
	if _, err := h.code(); err != nil {
		f.add(true, "heter.wire-dtype", "%q: %w", h.Values, err)
	}
}

// lends says that ranks lend heter-trainers the part's parameters.
func (c Config) lends() bool { return c.Heter.Count > 0 && c.Servers.Consistency != "bsp" }

func (h Heter) code() (message.Code, error) {
	if h.Values == "" {
		return message.FP32, nil
	}
	return message.ParseCode(h.Values)
}

// shape is what a model takes from its data, and what heter-trainers, which see none, are told of it.
type shape struct {
	Input                         []int
	IDs, Labels, Targets, Classes int
	Slots                         []model.Slot
	Options                       model.Options
}

// of is a model of that shape.
func (s shape) of(m model.Spec) model.Spec {
	m.Input, m.IDs, m.Labels, m.Targets, m.Classes, m.Slots = s.Input, s.IDs, s.Labels, s.Targets, s.Classes, s.Slots
	return m
}

// OpenPart makes the part of c's model that a heter-trainer has, of what the job's first rank says of its data: see
// service.Config.Open.
func OpenPart(c Config, about []byte) (*heter.Cut, heter.Device, error) {
	var s shape
	d := json.NewDecoder(bytes.NewReader(about))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, nil, fmt.Errorf("what a rank says of its model: %w", err)
	}
	spec, prepare := s.of(c.Model), func(ps *nn.Params) error { return c.Start.choose(ps, c.Model.PyTorch) }
	cut, err := heter.Find(spec, s.Options, prepare)
	if err != nil {
		return nil, nil, err
	}
	if c.Optimizer == OptimizerClick { // which is for rows
		c.Optimizer = "adagrad"
	}
	device, err := heter.NewCPU(spec, cut, heter.CPUConfig{
		Options: s.Options, Seed: c.Seed, Threads: max(1, c.Threads), Prepare: prepare,
		Optimizer: func(ps *nn.Params) (optim.Optimizer, error) {
			if c.lends() { // others move the parameters
				return &optim.SGD{LR: c.LR}, nil
			}
			rule, err := c.newRule(ps, nil)
			if err != nil {
				return nil, err
			}
			return rule, nil
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return cut, device, nil
}

// splitParams is a rank's side of a part of its model that heter-trainers have. Of a model that has
// none it is nil, of which all methods do nothing.
type splitParams struct {
	cut       *heter.Cut
	about     []byte
	client    *client.Client
	job       context.Context
	trainer   *heter.Trainer
	rate      float64
	stateless bool      // it has the part's parameters, and lends them
	at        [][]int32 // by table, of keys in a micro-batch
	micros    int
	rows      *trainer.Trainer // whose rows may be pushed early; nil: they are not
	// next asks for the rows of the next batch, and early sends what is final of this one's gradients; they took so long.
	next, early     func() error
	asking, pushing time.Duration
	inFlight        int         // micro-batches that were not waited for
	finals          []earlyRows // by table
	// stages are the times of the epoch so far, and all of those before.
	stages, all Stages
	// state is what heter-trainers keep of their optimizer, on rank 0 and where the run is saved.
	state []float32
}

// newSplitParams finds the part of a model in ps that is not arranged yet, whose parameters are
// frozen there from then on, unless they are lent.
func newSplitParams(c Config, o model.Options, ps *nn.Params) (*splitParams, error) {
	m := c.Model
	cut, err := heter.Find(m, o, func(ps *nn.Params) error { return c.Start.choose(ps, m.PyTorch) })
	if err != nil {
		return nil, err
	}
	if len(cut.Frozen) > 0 && c.Start.From != "" {
		return nil, setting.Errorf("training.init-from", "%s: %s of the part that heter-trainers have would be frozen at other values, of which they are not told: train these, or leave %v out", c.Start.From, some(cut.Frozen), setting.Path("heter.count"))
	}
	about, err := json.Marshal(shape{m.Input, m.IDs, m.Labels, m.Targets, m.Classes, m.Slots, o})
	if err != nil {
		return nil, err
	}
	if c.lends() {
		return &splitParams{cut: cut, about: about, stateless: true}, nil
	}
	if len(cut.TrainerParams) == 0 {
		standIn(ps)
	}
	return &splitParams{cut: cut, about: about}, cut.Freeze(ps, cut.Params)
}

// begin connects to the heter-trainers. rows are those of the replica's batches, which is one of so many of its rank.
func (f *splitParams) begin(r *Replica, c Config, rows *trainer.Trainer) (err error) {
	if f == nil {
		return nil
	}
	addrs, ticket := r.job.Heters()
	if len(addrs) != c.Heter.Count {
		return setting.Errorf("heter.count", "%d, and the job has %d heter-trainers: start all of it with one command, or say where those are that were started by hand (heter.addresses)", c.Heter.Count, len(addrs))
	}
	code, err := c.Heter.code()
	if err != nil {
		return err
	}
	f.job = r.job.Context()
	f.client, err = client.Dial(f.job, client.Config{
		Ticket: ticket, Version: ringo.Version, Addrs: addrs, Trainer: int(r.stream), Trainers: r.job.Size() * c.Servers.threads(), Cut: f.cut, About: f.about, Code: code, Lent: f.stateless, Report: c.Heter.Report, Note: c.Heter.Note,
	})
	if err != nil {
		return err
	}
	f.at, f.finals = make([][]int32, len(r.Params.Tables())), make([]earlyRows, len(r.Params.Tables()))
	if r.job.Rank() == 0 && c.Checkpoint.Dir != "" && !f.stateless {
		f.state = make([]float32, f.client.StateLen()-f.client.Len())
	}
	if r.job.Rank() == 0 && c.Start.From != "" && !f.stateless { // if the run goes on instead, it is told otherwise later
		if err := f.give(r.Params, nil); err != nil {
			return err
		}
	}
	f.trainer, err = heter.NewTrainer(r.model, f.cut, c.Heter.Micros, overlap{f.client, f}, nn.TapeConfig{Kernels: r.kernels, Threads: c.threadsEach()})
	if err != nil {
		return err
	}
	if f.micros = c.Heter.Micros; !f.stateless {
		f.rows = rows
	}
	f.trainer.BeforeEach(func(from []int32) { f.hold(r.Params, rows, from) })
	if f.stateless {
		return f.trainer.SetParams(r.Params, f.client)
	}
	return nil
}

// hold gives tables by keys the rows of a micro-batch's.
func (f *splitParams) hold(ps *nn.Params, rows *trainer.Trainer, from []int32) {
	for i, t := range ps.Tables() {
		if t.Slots == nil {
			continue
		}
		at, held := rows.Rows(i)
		if from != nil {
			f.at[i] = f.at[i][:0]
			for _, k := range from {
				f.at[i] = append(f.at[i], at[k])
			}
			at = f.at[i]
		}
		t.Hold(held, at)
	}
}

// backward runs the model over a batch, there and back. With last it is the step's last one.
func (f *splitParams) backward(r *Replica, b model.Batch, seed uint64, last bool) (model.Pass, error) {
	r.Opt.BeginBackward()
	f.inFlight, f.early = 0, nil
	if last && f.rows != nil && min(f.micros, b.N) > 1 {
		f.early = func() error { return f.pushEarly(r, f.rows) }
		defer func() { f.early = nil }()
	}
	return f.trainer.Backward(b, seed, r.Opt.GradReady)
}

func (f *splitParams) setRate(rate float64) {
	if f != nil {
		f.rate = rate
	}
}

// end ends the step.
func (f *splitParams) end() error {
	if f == nil {
		return nil
	}
	return f.trainer.End(f.rate)
}

// waited is how long passes have waited for heter-trainers since it was last asked, where they waited so long for rows, too.
func (f *splitParams) waited(pull time.Duration) time.Duration {
	if f == nil {
		return 0
	}
	t, asking := f.trainer.Times(), f.asking
	t.Back.Starved -= asking + f.pushing // they are in waits
	t.Back.Busy += f.pushing
	f.asking, f.pushing = 0, 0
	f.stages.add(Stages{Pull: Stage{BusyS: asking.Seconds(), StarvedS: pull.Seconds()}, Pool: stageOf(t.Pool), Send: stageOf(t.Send), Back: stageOf(t.Back)})
	return t.Back.Starved
}

// spent are the times since it was last asked; nil: there are none.
func (f *splitParams) spent() *Stages {
	if f == nil {
		return nil
	}
	was := f.stages
	f.all.add(was)
	f.stages = Stages{}
	return &was
}

// total are the times of all epochs.
func (f *splitParams) total() *Stages {
	if f == nil {
		return nil
	}
	return &f.all
}

// evaluate runs the model over a batch, of which times tell nothing.
func (f *splitParams) evaluate(b model.Batch) (model.Pass, error) {
	pass, err := f.trainer.Evaluate(b)
	f.trainer.Times()
	f.asking = 0
	return pass, err
}

// settle brings in the part's parameters as they are after the last step.
func (f *splitParams) settle(ps *nn.Params) error {
	if f == nil || f.stateless {
		return nil
	}
	all := make([]float32, f.client.Len())
	if err := f.client.Values(all); err != nil {
		return err
	}
	return f.cut.Unpack(ps, all)
}

func (f *splitParams) leave() error {
	if f == nil {
		return nil
	}
	return f.client.Leave()
}

// abort ends what passes wait for. Any goroutine may call it, while another one is in a pass: what passes use is left to close.
func (f *splitParams) abort() {
	if f != nil && f.client != nil {
		f.client.Abort(cmp.Or(context.Cause(f.job), errors.New("the run has ended")))
	}
}

// close ends all, when no pass is under way.
func (f *splitParams) close() {
	f.abort()
	if f != nil && f.trainer != nil {
		f.trainer.Close()
	}
}
