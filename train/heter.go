package train

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/client"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/train/internal/tensornames"
)

// Heter configures heter-trainers, processes that compute the part of the model marked in its code
// by nn.Tape.OnDevice. Ranks compute the layers before the part; parameters are on servers. In bsp
// heter-trainers own the part's parameters. In other modes the servers have them, and a rank sends
// their values with each step, so that the mode's guarantees are the same as without
// heter-trainers.
type Heter struct {
	// Count is the number of heter-trainers of the job. 0 in Run means the launcher's, or none.
	Count int
	// Micros is the number of micro-batches into which a batch is divided. 0 in Run means 4.
	Micros int
	// Values is the wire type of activations and gradients: fp32 (or ""), fp16, bf16 or int8.
	// Except for fp32, results differ from those of the whole model.
	Values string
	// Report receives a line about each lost heter-trainer while at least one remains; in a
	// heter-trainer, lines about its work. nil means that no function receives the lines; any
	// goroutine may call Report.
	Report func(line string) `json:"-"`
	// Note receives a line if the rank could share memory with a heter-trainer and does not. Any
	// goroutine may call Note. nil means the function in the field Report.
	Note func(line string) `json:"-"`
}

func (h *Heter) settings() []setting.Row {
	kept, some := setting.Equals("sync", Consistencies()...), setting.Enabled("heter.count")
	return []setting.Row{
		{Path: "heter.count", Commands: setting.Run | setting.Heter, Scope: setting.JobMutable, Flag: "heter", Unit: "processes", Needs: kept, Value: setting.Int(&h.Count),
			About: "number of heter-trainers, which compute the dense layers marked in the model's code, and under sync bsp own their parameters; 0: ranks compute all"},
		{Path: "heter.micro-batches", Commands: setting.Heter, Scope: setting.JobMutable, Unit: "pieces", Needs: some, Value: setting.Int(&h.Micros),
			About: "number of micro-batches per batch; heter-trainers compute a micro-batch while ranks process the next"},
		{Path: "heter.wire-dtype", Commands: setting.Heter, Scope: setting.JobMutable, Needs: some, Value: setting.Choice(&h.Values, "fp32", "fp16", "bf16", "int8", ""),
			About: "data type of activations and their gradients between ranks and heter-trainers"},
	}
}

func (c Config) validateHeter(f *setting.Faults) {
	h := c.Heter
	f.Add(h.Count < 0, "heter.count", "%d: want 0 or more", h.Count)
	if h.Count == 0 {
		return
	}
	f.Add(h.Micros < 1, "heter.micro-batches", "%d: want at least 1", h.Micros)
	if _, err := h.code(); err != nil {
		f.Add(true, "heter.wire-dtype", "%q: %w", h.Values, err)
	}
}

// sendsParams reports whether ranks send heter-trainers the part's parameters.
func (c Config) sendsParams() bool { return c.Heter.Count > 0 && c.Servers.Consistency != "bsp" }

func (h Heter) code() (message.Code, error) {
	if h.Values == "" {
		return message.FP32, nil
	}
	return message.ParseCode(h.Values)
}

// shape is a model's shape. Heter-trainers receive it because they see no data.
type shape struct {
	Input   []int         `json:"input"`
	IDs     int           `json:"ids"`
	Labels  int           `json:"labels"`
	Targets int           `json:"targets"`
	Classes int           `json:"classes"`
	Slots   []model.Slot  `json:"slots"`
	Options model.Options `json:"options"`
	// Cut has the shapes of the tensors between both parts of the model, for heter-trainers that do
	// not have the model's code.
	Cut *heter.Cut `json:"cut"`
	// Timed is the size of a micro-batch that heter-trainers time in both precisions; 0: none.
	Timed int `json:"timed"`
}

func (s shape) apply(m model.Spec) model.Spec {
	m.Input, m.IDs, m.Labels, m.Targets, m.Classes, m.Slots = s.Input, s.IDs, s.Labels, s.Targets, s.Classes, s.Slots
	return m
}

// OpenPart makes the part of c's model for a heter-trainer, from the first rank's description of
// its data: see service.Config.Open.
func OpenPart(c Config, about []byte) (*heter.Cut, heter.Device, error) {
	var s shape
	d := json.NewDecoder(bytes.NewReader(about))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, nil, fmt.Errorf("the rank's description of its model: %w", err)
	}
	spec, prepare := s.apply(c.Model), func(ps *nn.Params) error { return c.Start.choose(ps, c.Model.PyTorch) }
	cut, err := heter.Find(spec, s.Options, prepare)
	if err != nil {
		return nil, nil, err
	}
	if c.Optimizer == OptimizerClick { // a rule for rows
		c.Optimizer = "adagrad"
	}
	device, err := heter.NewCPU(spec, cut, heter.CPUConfig{
		Options: s.Options, Seed: c.Seed, Threads: max(1, c.Threads), Prepare: prepare,
		Optimizer: func(ps *nn.Params) (optim.Optimizer, error) {
			if c.sendsParams() { // servers move the parameters
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
	if s.Timed > 0 && device.Precision().BF16 {
		device.SetTimes(timeDevice(device, cut, s.Timed))
	}
	return cut, device, nil
}

// heterParams adds heter-trainers to parameters on servers: they compute a part of the replica's
// model, and in bsp own the part's parameters.
type heterParams struct {
	*serverParams
	cut       *heter.Cut
	about     shape
	heters    *client.Client // connections to heter-trainers
	pipeline  *heter.Trainer
	rate      float64
	stateless bool      // the rank sends the part's parameters with each step
	at        [][]int32 // rows of the keys of a micro-batch, by table
	// ask requests the rows of the next batch, and early pushes final gradients of rows; asking and
	// pushing are the durations of their last calls.
	ask, early      func() error
	asking, pushing time.Duration
	inFlight        int         // micro-batches without a result
	finals          []earlyRows // pushed rows by table
	stages, all     Stages      // times of the epoch until now, and of earlier epochs
	state           []float32   // state of the heter-trainers' optimizer, on rank 0 of a run that is saved
}

// delegate finds the part of the replica's model, before the model is arranged, and makes
// heter-trainers compute it. It freezes the part's parameters unless the rank sends them.
func (r *Replica) delegate(c Config, o model.Options) error {
	inner, ok := r.params.(*serverParams)
	if !ok {
		return setting.Errorf("heter.count", "%d: heter-trainers need parameters on servers: set %v to one of %s", c.Heter.Count, setting.Path("sync"), strings.Join(Consistencies(), ", "))
	}
	m := c.Model
	cut, err := heter.Find(m, o, func(ps *nn.Params) error { return c.Start.choose(ps, m.PyTorch) })
	if err != nil {
		return err
	}
	if len(cut.Frozen) > 0 && c.Start.From != "" {
		return setting.Errorf("training.init-from", "%s: %s of the heter-trainers' stage would be frozen at values that heter-trainers do not receive: train these parameters, or remove %v", c.Start.From, tensornames.Enumerate(cut.Frozen), setting.Path("heter.count"))
	}
	about := shape{m.Input, m.IDs, m.Labels, m.Targets, m.Classes, m.Slots, o, cut, 0}
	f := &heterParams{serverParams: inner, cut: cut, about: about, stateless: c.sendsParams()}
	inner.prefetch = func(ask func() error) error {
		f.ask = ask // while heter-trainers compute
		return nil
	}
	if r.params, r.split = f, f; f.stateless {
		return nil
	}
	if len(cut.TrainerParams) == 0 {
		standIn(r.Params)
	}
	return cut.Freeze(r.Params, cut.Params)
}

// begin connects to the heter-trainers.
func (f *heterParams) begin(c Config, at beginning) (err error) {
	if err := f.serverParams.begin(c, at); err != nil {
		return err
	}
	r := f.replica
	addrs, ticket := r.job.Heters()
	if len(addrs) != c.Heter.Count {
		return setting.Errorf("heter.count", "%d, and the job has %d heter-trainers: start the whole job with one command, or give the addresses of heter-trainers started by hand (heter.addresses)", c.Heter.Count, len(addrs))
	}
	code, err := c.Heter.code()
	if err != nil {
		return err
	}
	if c.Precision == auto && c.savedKernels == "" {
		f.about.Timed = max(1, c.Batch/c.Heter.Micros)
	}
	about, err := json.Marshal(f.about)
	if err != nil {
		return err
	}
	f.heters, err = client.Dial(r.job.Context(), client.Config{
		Ticket: ticket, Version: ringo.Version, Addrs: addrs, Trainer: int(r.stream), Trainers: r.job.Size() * c.Servers.threads(), Cut: f.cut, About: about, Code: code, Lent: f.stateless, Report: c.Heter.Report, Note: c.Heter.Note,
	})
	if err != nil {
		return err
	}
	if err := f.checkPrecision(c); err != nil {
		return err
	}
	f.at, f.finals = make([][]int32, len(r.Params.Tables())), make([]earlyRows, len(r.Params.Tables()))
	if r.job.Rank() == 0 && c.Checkpoint.Dir != "" && !f.stateless {
		f.state = make([]float32, f.heters.StateLen()-f.heters.Len())
	}
	if err := c.fitsOwn(f.heters.Start()); err != nil {
		return err
	}
	if r.job.Rank() == 0 && !f.stateless { // a run that resumes overwrites the values
		if err := f.giveFirst(c); err != nil {
			return err
		}
	}
	f.pipeline, err = heter.NewTrainer(r.model, f.cut, c.Heter.Micros, overlap{f.heters, f}, nn.TapeConfig{Kernels: r.kernels, Threads: c.threadsEach()})
	if err != nil {
		return err
	}
	f.pipeline.BeforeEach(f.hold)
	if f.stateless {
		return f.pipeline.SetParams(r.Params, f.heters)
	}
	return nil
}

// hold sets the rows of tables by keys for a micro-batch with the keys of samples from; nil means
// the whole batch.
func (f *heterParams) hold(from []int32) {
	for i, t := range f.replica.Params.Tables() {
		if t.Slots == nil {
			continue
		}
		at, held := f.trainer.Rows(i)
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

// backward runs the model over a batch, through the heter-trainers and back. last marks the step's
// last batch.
func (f *heterParams) backward(b model.Batch, seed uint64, last bool) (model.Pass, error) {
	f.replica.Opt.BeginBackward()
	f.inFlight, f.early = 0, nil
	if last && !f.stateless && min(f.cfg.Heter.Micros, b.N) > 1 {
		f.early = f.pushEarly
		defer func() { f.early = nil }()
	}
	return f.pipeline.Backward(b, seed, f.replica.Opt.GradReady)
}

// evaluate runs the model over a batch and discards the times of its stages.
func (f *heterParams) evaluate(b model.Batch) (model.Pass, error) {
	pass, err := f.pipeline.Evaluate(b)
	f.pipeline.Times()
	f.asking = 0
	return pass, err
}

func (f *heterParams) setRate(lr, next float64) {
	f.serverParams.setRate(lr, next)
	f.rate = lr
}

func (f *heterParams) end() error { return errors.Join(f.pipeline.End(f.rate), f.serverParams.end()) }

// takeWaitTime returns the time that the rank waited for servers and heter-trainers, and counts the
// times of the stages.
func (f *heterParams) takeWaitTime() time.Duration {
	pull, t := f.serverParams.takeWaitTime(), f.pipeline.Times()
	t.Back.Starved -= f.asking + f.pushing // the rank worked during these waits
	t.Back.Busy += f.pushing
	f.stages.add(Stages{Pull: Stage{BusyS: f.asking.Seconds(), StarvedS: pull.Seconds()}, Pool: stageOf(t.Pool), Send: stageOf(t.Send), Back: stageOf(t.Back)})
	f.asking, f.pushing = 0, 0
	return pull + t.Back.Starved
}

// spent returns the times of the stages since the last call; nil without heter-trainers.
func (f *heterParams) spent() *Stages {
	if f == nil {
		return nil
	}
	was := f.stages
	f.all.add(was)
	f.stages = Stages{}
	return &was
}

// total returns the times of all epochs; nil without heter-trainers.
func (f *heterParams) total() *Stages {
	if f == nil {
		return nil
	}
	return &f.all
}

// each calls do with the parameters of each replica of the rank.
func (f *heterParams) each(do func(*heterParams) error) error {
	var errs []error
	for _, p := range f.replicas {
		errs = append(errs, do(p.replica.split))
	}
	return errors.Join(errs...)
}

func (f *heterParams) sync() error {
	if err := f.serverParams.sync(); err != nil {
		return err
	}
	return f.each((*heterParams).settle)
}

// settle loads the part's parameters as the last step left them.
func (f *heterParams) settle() error {
	if f.stateless || f.heters.Start() == heter.StartOwn {
		return nil
	}
	all := make([]float32, f.heters.Len())
	if err := f.heters.Values(all); err != nil {
		return err
	}
	return f.cut.Unpack(f.replica.Params, all)
}

func (f *heterParams) leave() error {
	err := f.each(func(p *heterParams) error { return p.heters.Leave() })
	return errors.Join(err, f.serverParams.leave())
}

func (f *heterParams) abort() {
	f.serverParams.abort()
	_ = f.each((*heterParams).disconnect)
}

// disconnect ends the waits of passes, from any goroutine; close releases their memory.
func (f *heterParams) disconnect() error {
	if f.heters != nil {
		f.heters.Abort(cmp.Or(context.Cause(f.replica.job.Context()), errors.New("the run has ended")))
	}
	return nil
}

func (f *heterParams) close() {
	_ = f.disconnect()
	if f.pipeline != nil {
		f.pipeline.Close()
	}
	f.serverParams.close()
}
