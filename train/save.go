package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/record"
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
	// checkpoint.DefaultKeep. The best one and the last healthy one remain besides.
	Keep int
	// Resume goes on from the folder's last checkpoint, where there is one.
	Resume bool
	// DiskFullWait is how long the run waits at its end for room on a full disk for its last
	// checkpoint: without it the run fails. 0: DefaultFullWait; negative: it does not wait. Before
	// the end a full disk stops nothing: see Summary.DiskFullCheckpoints.
	DiskFullWait time.Duration
	// Assignments is what the program that starts the run was told. Checkpoints have it for a later
	// start, which finds it by FindPrevious; it has no effect on the run.
	Assignments []setting.Assignment

	create func(path string) (checkpoint.WriteFile, error) // for tests: checkpoint.State.Create
}

// Validate reports every fault of c at once.
func (c Checkpoint) Validate() error {
	var f errorList
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

// saver is the part of a run that writes checkpoints.
type saver struct {
	*runEnv
	data       *runData
	reports    *reports
	resumption *resumption

	hold      *checkpoint.Hold // of the folder, on rank 0
	finishing *pendingCheckpoint
	room      diskState
	saved     epochStep // of the last checkpoint
}

// takeFolder makes rank 0, which writes the checkpoints, the only one that saves to the folder, however the run
// was started.
func (s *saver) takeFolder() error {
	c := s.cfg.Checkpoint
	if c.Dir == "" || s.job.Rank() != 0 {
		return nil
	}
	hold, warning, err := checkpoint.Take(c.Dir, !c.Resume)
	if err != nil {
		return err
	}
	if s.hold = hold; warning != "" {
		s.remark(0, "%s", warning)
	}
	return nil
}

// position is where in its data a run is.
type position struct {
	// epoch is from 1, and step how many steps of it are done.
	epoch, step int
	// tally is this rank's, over these steps.
	tally epochCounters
	// places are where the streams of all ranks are, if a checkpoint has them.
	places []data.StreamPosition
}

// runHistory is what a run keeps of the epochs that are done.
type runHistory struct {
	Last Epoch `json:"last"`
	// TrainS is how many seconds were spent in training, the mean over ranks.
	TrainS float64 `json:"train_s"`
	// Samples and Terms are what all ranks have trained on.
	Samples int64 `json:"samples"`
	Terms   int64 `json:"terms"`
	// Start is the loss of the first step, the mean over ranks.
	Start float64 `json:"start_loss,omitempty"`
	// Best is the best epoch by Config.Best.
	Best *BestEpoch `json:"best,omitempty"`
	health
	skips
}

// due reports whether a checkpoint is to be written after so many steps of the
// run, which are in the middle of an epoch or, with ended, a whole number of
// epochs that were evaluated.
func (s *saver) due(step int, ended bool) bool {
	c := s.cfg.Checkpoint
	switch {
	case c.Dir == "":
		return false
	case ended && step == s.data.steps*s.cfg.Epochs:
		return true
	case s.room.retryStep > 0: // the disk was full
		return step >= s.room.retryStep
	case c.Every == 0:
		return ended
	}
	return !ended && step%c.Every == 0
}

// write writes a checkpoint on rank 0. It is a collective call. Where rank 0's disk is full, its error is the only one, and all
// ranks have sent what they had to send.
func (s *saver) write(p position) error {
	s.job.SetStatus("saving a checkpoint")
	if p.step > 0 {
		s.setPosition("saving a checkpoint", p.epoch, p.step)
	} else {
		s.setPosition("saving a checkpoint", p.epoch-1, s.data.steps)
	}
	before := s.resumption.stepsDone(position{epoch: s.saved.epoch, step: s.saved.step})
	healthy := s.reports.confirm(p, before, s.resumption.stepsDone(p))
	s.saved = epochStep{p.epoch, p.step}
	defer s.during(record.Checkpoint)()
	if err := s.finished(p); err != nil {
		return err
	}
	state, err := s.collect(p)
	if healthy > 0 {
		state.Spare = append(state.Spare, healthy)
	}
	if err != nil {
		return err
	}
	if s.job.Rank() != 0 {
		return s.sendLocal()
	}
	w, err := checkpoint.Write(s.cfg.Checkpoint.Dir, state)
	if err != nil {
		return err
	}
	return s.finish(p, w)
}

// collect brings to rank 0 what a checkpoint holds, but for what ranks send while it is written. It is a collective
// call.
func (s *saver) collect(p position) (state checkpoint.State, err error) {
	elsewhere, err := s.replica.params.save(s.resumption.stepsDone(p))
	if err != nil {
		return state, err
	}
	kept, err := s.localArrays()
	if err != nil {
		return state, err
	}
	tallies, err := s.tallies(p.tally)
	if err != nil {
		return state, err
	}
	places, err := s.data.places()
	if err != nil {
		return state, err
	}
	means, err := s.meanBuffers()
	if err != nil || s.job.Rank() != 0 {
		return state, err
	}
	state.Arrays = slices.Concat(s.arrays(means), s.tallyArrays(tallies), kept)
	if b := s.reports.past.Best; b != nil {
		state.Spare = []int64{b.Step}
	}
	state.Keep, state.Create = cmp.Or(s.cfg.Checkpoint.Keep, checkpoint.DefaultKeep), s.cfg.Checkpoint.create
	state.Header = checkpoint.Header{
		Model: s.spec.Name, Step: s.resumption.stepsDone(p), Epoch: int64(p.epoch - 1), Position: int64(p.step),
		NP: s.job.Size(), Strategy: string(s.replica.Opt.Strategy()), Shapes: s.shapes(),
	}
	if state.Header.Settings, err = s.values(setting.JobFixed, setting.JobMutable); err != nil {
		return state, err
	}
	if state.Header.More, err = s.more(p, places); err == nil {
		maps.Copy(state.Header.More, elsewhere)
	}
	return state, err
}

// more is what a checkpoint holds besides parameters and settings; places is empty where there are none.
func (s *saver) more(p position, places string) (map[string]string, error) {
	past, err := json.Marshal(s.reports.past)
	if err != nil {
		return nil, fmt.Errorf("the figures of epoch %d cannot be saved: %w", p.epoch, err)
	}
	setup, err := json.Marshal(s.replica.Opt.Setup())
	if err != nil {
		return nil, fmt.Errorf("the strategy cannot be saved: %w", err)
	}
	tuned, err := json.Marshal(s.replica.Tuner.State())
	if err != nil {
		return nil, fmt.Errorf("what was chosen cannot be saved: %w", err)
	}
	more := map[string]string{moreData: s.data.dataName(), moreSet: s.data.description, morePast: string(past), moreExchange: string(setup), moreTuned: string(tuned)}
	if c := s.cfg.Checkpoint; c.Assignments != nil {
		told, err := json.Marshal(c.Assignments)
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
func (r *resumption) stepsDone(p position) int64 {
	f := r.found // of another number of ranks, perhaps, whose epochs had other steps
	return f.Step + int64((p.epoch-1-f.Epoch)*r.data.steps+p.step-f.Done)
}

// arrays names what all ranks have in common. buffers is the memory for the
// running statistics.
func (e *runEnv) arrays(buffers []float32) []checkpoint.Array {
	out := e.replica.params.arrays()
	for _, b := range e.replica.Params.BufferList() {
		out = append(out, checkpoint.Floats(bufferName(b.Name), buffers[:len(b.Data)]))
		buffers = buffers[len(b.Data):]
	}
	return out
}

// What the names of a checkpoint's weights begin with is known to package weights.
func paramName(name string) string  { return "param/" + name }
func tableName(name string) string  { return "table/" + name }
func bufferName(name string) string { return "buffer/" + name }

// shapes are those of the parameters and tables in a checkpoint.
func (s *saver) shapes() map[string][]int {
	out := map[string][]int{}
	for _, p := range s.replica.Params.List() {
		out[paramName(p.Name)] = p.Shape
	}
	for _, t := range s.replica.Params.Tables() {
		out[tableName(t.Name)] = []int{t.Rows, t.Dim}
	}
	return out
}

// tallies brings the tallies of all ranks to all, as the bits of their figures, one rank's after the other's. It is a
// collective call.
func (s *saver) tallies(own epochCounters) (bits []uint64, err error) {
	var numbers []int64
	for _, f := range own.values() {
		numbers = append(numbers, int64(math.Float64bits(*f)))
	}
	all, err := gatherNumbers(s.peers, numbers...)
	if err != nil {
		return nil, fmt.Errorf("gathering the ranks' figures: %w", err)
	}
	for _, n := range slices.Concat(all...) {
		bits = append(bits, uint64(n))
	}
	return bits, nil
}

// tallyArrays names the bits of tallies.
func (e *runEnv) tallyArrays(bits []uint64) (out []checkpoint.Array) {
	t := e.newTally()
	for own := range slices.Chunk(bits, len(t.values())) {
		out = append(out, checkpoint.Words(checkpoint.RankName(len(out), "tally"), own))
	}
	return out
}

// saveMidEpoch saves a run whose training clock started at start and returns
// when it starts again.
func (s *saver) saveMidEpoch(p *position, start time.Time) (time.Time, error) {
	p.tally.trainS += time.Since(start).Seconds()
	s.reports.countTraffic(&p.tally)
	err := s.save(*p)
	s.job.SetStatus(fmt.Sprintf("training epoch %d", p.epoch))
	return time.Now(), err
}
