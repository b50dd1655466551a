package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/setting"
	"github.com/ringo-ml/ringo/trace"
)

// Checkpoint says where and when a run is saved. Only rank 0 needs the folder, and servers that keep parameters, in
// Servers.Start's part of it.
//
// A resumed run has the same bits as one that never stopped, the figures of an
// epoch that was cut in two among them, times apart. Under
// distopt.PartialUpdate saving brings the replicas together, as Sync does: there
// the bits are those of a run that saved as often.
//
// After an epoch another number of ranks may go on: what codecs keep of the
// gradients is shared out among them, and running statistics are the means.
//
// Where parameters lie on servers, all ranks bring in what is under way, the servers save their parts at this very
// moment, and the file that rank 0 then writes names these. There are as many servers as one likes when a run goes on.
// In sync the bits are those of a run that never stopped; in geo copies are exchanged when the run is saved,
// and ranks keep the state of their optimizers: it goes on as it would have. In async and ssp it goes on in no
// certain order, as always. Geo does not go on with another number of ranks.
type Checkpoint struct {
	// Dir is the folder, empty for no checkpoints.
	Dir string
	// Every is after how many steps the run is saved; 0: after each epoch. It is
	// saved at its end in any case.
	Every int
	// Keep is how many checkpoints remain, those of the highest steps; 0:
	// checkpoint.DefaultKeep.
	Keep int
	// Resume goes on from the folder's last checkpoint, where there is one.
	Resume bool
	// FullWait is how long the run waits at its end for room on a full disk for its last checkpoint: without it the
	// run fails. 0: DefaultFullWait; negative: it does not wait. Before the end a full disk stops nothing: see
	// Summary.NoRoom.
	FullWait time.Duration
	// Told is what the program that starts the run was told. Checkpoints have it for a later start, which finds it by
	// FindPrevious; it has no effect on the run.
	Told []setting.Assignment

	create func(path string) (checkpoint.WriteFile, error) // for tests: checkpoint.State.Create
}

// Validate reports every fault of c at once.
func (c Checkpoint) Validate() error {
	var f faults
	f.add(c.Every < 0, "checkpoint.every", "%d: want at least 1 step, or 0 for each epoch", c.Every)
	f.add(c.Keep < 0, "", "%d checkpoints to keep: want at least 1, or 0 for %d", c.Keep, checkpoint.DefaultKeep)
	return errors.Join(f...)
}

// Prepare makes the folder and reports one that cannot be written to, that another job saves to, or that
// holds another run's checkpoints although this one does not resume. Run does so
// on rank 0, which has the folder to itself until it ends; a launcher may, to say it once.
func (c Checkpoint) Prepare() error {
	if c.Dir == "" {
		return nil
	}
	return checkpoint.Prepare(c.Dir, !c.Resume)
}

// takeFolder makes rank 0, which writes the checkpoints, the only one that saves to the folder, however the run
// was started.
func (r *run) takeFolder() error {
	c := r.cfg.Checkpoint
	if c.Dir == "" || r.job.Rank() != 0 {
		return nil
	}
	hold, warning, err := checkpoint.Take(c.Dir, !c.Resume)
	if err != nil {
		return err
	}
	if r.hold = hold; warning != "" {
		r.remark(0, "%s", warning)
	}
	return nil
}

// remark tells what a person should know. Other ranks than 0 tell nobody.
func (r *run) remark(epoch int, format string, args ...any) {
	m := Remark{Event: "remark", Epoch: epoch, Text: fmt.Sprintf(format, args...)}
	if r.replica != nil && r.replica.Opt != nil { // else it is before the first step
		m.Step = r.replica.Opt.Steps()
	}
	r.obs.Remark(m)
}

// position is where in its data a run is.
type position struct {
	epoch int   // from 1
	step  int   // steps of this epoch that are done
	tally tally // of this rank, over these steps

	places []data.StreamPosition // of all ranks, where a checkpoint has them
}

// past is what a run keeps of the epochs that are done.
type past struct {
	Last    Epoch   `json:"last"`
	TrainS  float64 `json:"train_s"` // spent in training, mean over ranks
	Samples int64   `json:"samples"` // trained on, all ranks
	Terms   int64   `json:"terms"`
	Start   float64 `json:"start_loss,omitempty"` // loss of the first step, mean over ranks
}

// due reports whether a checkpoint is to be written after so many steps of the
// run, which are in the middle of an epoch or, with ended, a whole number of
// epochs that were evaluated.
func (r *run) due(step int, ended bool) bool {
	c := r.cfg.Checkpoint
	switch {
	case c.Dir == "":
		return false
	case ended && step == r.steps*r.cfg.Epochs:
		return true
	case r.room.again > 0: // the disk was full
		return step >= r.room.again
	case c.Every == 0:
		return ended
	}
	return !ended && step%c.Every == 0
}

// write writes a checkpoint on rank 0. It is a collective call. Where rank 0's disk is full, its error is the only one, and all
// ranks have sent what they had to send.
func (r *run) write(p position) error {
	r.job.SetStatus("saving a checkpoint")
	if p.step > 0 {
		r.reach("saving a checkpoint", p.epoch, p.step)
	} else {
		r.reach("saving a checkpoint", p.epoch-1, r.steps)
	}
	r.saved = place{p.epoch, p.step}
	start := r.trace().Now()
	defer func() { r.trace().Span(trace.Checkpoint, "checkpoint", start, r.trace().Now()) }()
	o := r.replica.Opt
	if s := o.Strategy(); s == distopt.PartialUpdate {
		if err := errors.Join(o.SetStrategy(distopt.FP32), o.SetStrategy(s)); err != nil {
			return err
		}
	}
	if err := o.GatherState(0); err != nil {
		return err
	}
	elsewhere, err := r.replica.params.save(r.stepsDone(p))
	if err != nil {
		return err
	}
	kept, err := r.kept()
	if err != nil {
		return err
	}
	own, err := r.gatherOwn(p)
	if err != nil {
		return err
	}
	places, err := r.places()
	if err != nil {
		return err
	}
	means, err := r.meanBuffers()
	if err != nil {
		return err
	}
	if r.job.Rank() != 0 {
		return r.sendKept()
	}
	more, err := r.more(p, places)
	if err != nil {
		return err
	}
	maps.Copy(more, elsewhere)
	settings, err := r.values(setting.Result, setting.Changeable)
	if err != nil {
		return err
	}
	keep := r.cfg.Checkpoint.Keep
	if keep == 0 {
		keep = checkpoint.DefaultKeep
	}
	_, err = checkpoint.Save(r.cfg.Checkpoint.Dir, checkpoint.State{
		Header: checkpoint.Header{
			Model: r.spec.Name, Step: r.stepsDone(p), Epoch: int64(p.epoch - 1), Position: int64(p.step),
			NP: r.job.Size(), Strategy: string(o.Strategy()),
			Settings: settings, More: more,
		},
		Arrays: slices.Concat(r.arrays(means), own.arrays(), kept),
		Keep:   keep, Create: r.cfg.Checkpoint.create,
	})
	if err == nil {
		err = dropStarts(r.cfg.Checkpoint.Dir, r.cfg.Servers.Start)
	}
	return err
}

// more is what a checkpoint holds besides parameters and settings; places is empty where there are none.
func (r *run) more(p position, places string) (map[string]string, error) {
	past, err := json.Marshal(r.past)
	if err != nil {
		return nil, fmt.Errorf("the figures of epoch %d cannot be saved: %w", p.epoch, err)
	}
	setup, err := json.Marshal(r.replica.Opt.Setup())
	if err != nil {
		return nil, fmt.Errorf("the strategy cannot be saved: %w", err)
	}
	tuned, err := json.Marshal(r.replica.Tuner.State())
	if err != nil {
		return nil, fmt.Errorf("what was chosen cannot be saved: %w", err)
	}
	more := map[string]string{moreData: r.dataName(), morePast: string(past), moreExchange: string(setup), moreTuned: string(tuned)}
	if c := r.cfg.Checkpoint; c.Told != nil {
		told, err := json.Marshal(c.Told)
		if err != nil {
			return nil, fmt.Errorf("what the run was told cannot be saved: %w", err)
		}
		more[moreTold] = string(told)
	}
	if places != "" && p.step > 0 {
		more[morePlaces] = places
	}
	return more, nil
}

// stepsDone are those of the run at a position.
func (r *run) stepsDone(p position) int64 {
	f := r.found // of another number of ranks, perhaps, whose epochs had other steps
	return f.Step + int64((p.epoch-1-f.Epoch)*r.steps+p.step-f.Done)
}

// sync makes the replicas equal before they are evaluated, compared or saved: parameters where ranks may have others, and
// running statistics, which become the mean over ranks and workers. It is a collective call.
func (r *run) sync() error {
	if err := r.replica.params.sync(); err != nil {
		return err
	}
	means, err := r.meanBuffers()
	for _, w := range r.workers {
		copy(w.replica.Params.Buffers(), means)
	}
	return err
}

// meanBuffers are the running statistics, the means over ranks and workers. It is a collective call.
func (r *run) meanBuffers() ([]float32, error) {
	means := append([]float32(nil), r.replica.Params.Buffers()...)
	for _, w := range r.workers[1:] {
		r.replica.kernels.Add(means, w.replica.Params.Buffers())
	}
	for i := range means {
		means[i] /= float32(len(r.workers))
	}
	if err := r.peers.mean(means); err != nil {
		return nil, fmt.Errorf("averaging the running statistics: %w", err)
	}
	return means, nil
}

// arrays names what all ranks have in common. buffers is the memory for the
// running statistics.
func (r *run) arrays(buffers []float32) []checkpoint.Array {
	out := r.replica.params.arrays()
	for _, b := range r.replica.Params.BufferList() {
		out = append(out, checkpoint.Floats("buffer/"+b.Name, buffers[:len(b.Data)]))
		buffers = buffers[len(b.Data):]
	}
	return out
}

// perRank is what differs by rank, of all ranks one after the other: the
// running statistics, the carried state and the tally.
type perRank struct {
	ranks             int
	buffers, carried  []float32
	tallies           []uint64
	buffersN, carries int // of one rank
}

// newPerRank makes room for all ranks' parts.
func (r *run) newPerRank() perRank {
	np := r.job.Size()
	o := perRank{ranks: np, buffersN: len(r.replica.Params.Buffers()) * len(r.workers)}
	for _, s := range r.replica.state() {
		o.carries += len(s)
	}
	o.buffers, o.carried = make([]float32, np*o.buffersN), make([]float32, np*o.carries)
	o.tallies = make([]uint64, np*len(new(tally).values()))
	return o
}

// arrays names the parts.
func (o perRank) arrays() []checkpoint.Array {
	var out []checkpoint.Array
	n := len(o.tallies) / o.ranks
	for rank := range o.ranks {
		out = append(out, checkpoint.Words(checkpoint.RankName(rank, "tally"), o.tallies[rank*n:][:n]))
		if o.buffersN > 0 {
			out = append(out, checkpoint.Floats(checkpoint.RankName(rank, "buffers"), o.buffers[rank*o.buffersN:][:o.buffersN]))
		}
		if o.carries > 0 {
			out = append(out, checkpoint.Floats(checkpoint.RankName(rank, "carried"), o.carried[rank*o.carries:][:o.carries]))
		}
	}
	return out
}

// gatherOwn collects what differs by rank.
func (r *run) gatherOwn(p position) (perRank, error) {
	o, g := r.newPerRank(), r.job.Group()
	carried := make([]float32, 0, o.carries)
	for _, s := range r.replica.state() {
		carried = append(carried, s...)
	}
	var buffers []float32
	for _, w := range r.workers {
		buffers = append(buffers, w.replica.Params.Buffers()...)
	}
	var own []int64
	for _, f := range p.tally.values() {
		own = append(own, int64(math.Float64bits(*f)))
	}
	tallies := make([]int64, len(o.tallies))
	err := errors.Join(
		collective.AllGather(g, o.buffers, buffers),
		collective.AllGather(g, o.carried, carried),
		collective.AllGather(g, tallies, own),
	)
	if err != nil {
		return o, fmt.Errorf("gathering what differs by rank: %w", err)
	}
	for i, v := range tallies {
		o.tallies[i] = uint64(v)
	}
	return o, nil
}

// saveMidEpoch saves a run whose training clock started at start and returns
// when it starts again.
func (r *run) saveMidEpoch(p *position, start time.Time) (time.Time, error) {
	p.tally.trainS += time.Since(start).Seconds()
	r.countTraffic(&p.tally)
	err := r.save(*p)
	r.job.SetStatus(fmt.Sprintf("training epoch %d", p.epoch))
	return time.Now(), err
}
