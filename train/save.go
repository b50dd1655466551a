package train

import (
	"cmp"
	"encoding/json"
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

// Checkpoint sets where and when a run is saved. Only rank 0 needs the folder, and parameter
// servers their part of it (Servers.Start).
//
// A resumed run has the bits of an uninterrupted run, including metrics of an interrupted epoch,
// except for times. Under distopt.PartialUpdate each save makes the replicas equal, as Sync does:
// the bits are those of a run with the same saves.
//
// After a whole epoch the number of ranks may change: residuals (unsent gradients) are divided
// among the new ranks, and running statistics are the means of the old ranks'.
//
// With parameters on servers, all ranks push pending updates, the servers save their parts at that
// moment, and rank 0's file names the parts. The number of servers may change on resumption. In bsp
// the bits equal an uninterrupted run's. In geo ranks exchange their copies at each save, and save
// the state of their optimizers; the number of ranks cannot change. In async and ssp the order of
// updates, and so the result, differs between runs.
type Checkpoint struct {
	// Dir is the folder, "" for no checkpoints.
	Dir string
	// Every is the number of steps between saves. 0 means after each epoch. A run is always saved
	// at its end.
	Every int
	// Keep is the number of latest checkpoints that remain, in addition to the best and the last
	// healthy one. 0 means checkpoint.DefaultKeep.
	Keep int
	// Resume resumes from the folder's last checkpoint, if any.
	Resume bool
	// DiskFullWait is the longest wait for space on a full disk for the run's last checkpoint. 0
	// means DefaultFullWait, a negative value no wait. A full disk does not stop a run before its
	// end: see Summary.DiskFullCheckpoints.
	DiskFullWait time.Duration
	// Assignments are the settings given to the program. Checkpoints store them for FindPrevious;
	// they have no effect on the run.
	Assignments []setting.Assignment

	create func(path string) (checkpoint.WriteFile, error) // checkpoint.State.Create, for tests
}

// Validate reports all errors of c.
func (c Checkpoint) Validate() error {
	var f setting.Faults
	f.Add(c.Every < 0, "checkpoint.every", "%d: want at least 1 step, or 0 for each epoch", c.Every)
	f.Add(c.Keep < 0, "", "%d checkpoints to keep: want at least 1, or 0 for %d", c.Keep, checkpoint.DefaultKeep)
	return f.Err()
}

// Prepare makes the folder and reports a folder that is not writable, that another job uses, or
// that has another run's checkpoints without Resume. Run does so on rank 0, and locks the folder
// until the end; a launcher may call Prepare to report errors once.
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

	hold      *checkpoint.Hold // lock of the folder, on rank 0
	finishing *pendingCheckpoint
	room      diskState
	saved     epochStep // position of the last checkpoint
	snapshots snapshots
}

// takeFolder locks the folder on rank 0, which writes the checkpoints.
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

// position is an epoch and step of a run.
type position struct {
	// epoch is from 1; step is the number of its finished steps.
	epoch, step int
	// tally has this rank's counters of the epoch's finished steps.
	tally  epochCounters
	places []data.StreamPosition // positions of all ranks' streams in a checkpoint
}

// runHistory is the state of the finished epochs.
type runHistory struct {
	Last Epoch `json:"last"`
	// TrainS is the training time in seconds, the mean over ranks.
	TrainS float64 `json:"train_s"`
	// Samples and Terms count the training of all ranks.
	Samples int64 `json:"samples"`
	Terms   int64 `json:"terms"`
	// Start is the loss of the first step, the mean over ranks.
	Start float64 `json:"start_loss,omitempty"`
	// Best is the best epoch by Config.Best.
	Best *BestEpoch `json:"best,omitempty"`
	health
	skips
	overfit
}

// due reports whether to save after a number of steps of the run: in the middle of an epoch or, if
// ended, after a whole epoch and its evaluation.
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

// write writes a checkpoint on rank 0. All ranks call it. If rank 0's disk is full, rank 0 alone
// returns an error, after all ranks have sent their values.
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

// collect gathers a checkpoint on rank 0, except for values that ranks send during the write. The
// call is collective.
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
	state.Arrays = slices.Concat(s.replica.arrays(means), s.replica.tallyArrays(tallies), kept)
	if b := s.reports.past.Best; b != nil {
		state.Spare = []int64{b.Step}
	}
	state.Keep, state.Create = cmp.Or(s.cfg.Checkpoint.Keep, checkpoint.DefaultKeep), s.cfg.Checkpoint.create
	state.Header = checkpoint.Header{
		Model: s.spec.Name, Step: s.resumption.stepsDone(p), Epoch: int64(p.epoch - 1), Position: int64(p.step),
		NP: s.virtual(), Strategy: string(s.replica.Opt.Strategy()), Shapes: s.shapes(),
	}
	if state.Header.Settings, err = s.values(setting.JobFixed, setting.JobMutable); err != nil {
		return state, err
	}
	if state.Header.More, err = s.more(p, places); err == nil {
		maps.Copy(state.Header.More, elsewhere)
	}
	return state, err
}

// files returns the paths of the best epoch's checkpoint and of the last one; "" without.
func (s *saver) files() (best, last string) {
	dir := s.cfg.Checkpoint.Dir
	if dir == "" {
		return "", ""
	}
	if b := s.reports.past.Best; b != nil && b.Metric == s.cfg.Best.Metric && !slices.Contains(s.room.missing, b.Step) {
		best = checkpoint.PathOf(dir, b.Step)
	}
	return best, checkpoint.PathOf(dir, s.resumption.stepsDone(position{epoch: s.saved.epoch, step: s.saved.step}))
}

// more returns the header's further entries. places are the positions of streams, or "".
func (s *saver) more(p position, places string) (map[string]string, error) {
	more := map[string]string{moreData: s.data.dataName(), moreSet: s.data.description, moreKernels: s.replica.Kernels()}
	for _, part := range []struct {
		name, content string
		value         any
	}{
		{morePast, fmt.Sprintf("the metrics of epoch %d", p.epoch), s.reports.past}, {moreExchange, "the strategy", s.replica.Opt.Setup()},
		{moreTuned, "the choices of tuning", s.replica.Tuner.State()}, {moreAssignments, "the settings of the run", s.cfg.Checkpoint.Assignments},
	} {
		text, err := json.Marshal(part.value)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be saved: %w", part.content, err)
		}
		more[part.name] = string(text)
	}
	if s.cfg.Checkpoint.Assignments == nil {
		delete(more, moreAssignments)
	}
	if s.data.digest != "" {
		more[moreDigest] = s.data.digest
	}
	if places != "" && p.step > 0 {
		more[morePlaces] = places
	}
	return more, nil
}

// stepsDone returns the steps of the run at a position.
func (r *resumption) stepsDone(p position) int64 {
	f := r.found // epochs of another number of ranks may have had other steps
	return f.Step + int64((p.epoch-1-f.Epoch)*r.data.steps+p.step-f.Done)
}

// arrays names the values that all ranks share. buffers is the memory for the running statistics.
func (r *Replica) arrays(buffers []float32) []checkpoint.Array {
	out := r.params.arrays()
	for _, b := range r.Params.BufferList() {
		out = append(out, checkpoint.Floats(bufferName(b.Name), buffers[:len(b.Data)]))
		buffers = buffers[len(b.Data):]
	}
	return out
}

// paramName and the next functions add prefixes that package weights also uses.
func paramName(name string) string  { return "param/" + name }
func tableName(name string) string  { return "table/" + name }
func bufferName(name string) string { return "buffer/" + name }

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

// tallies gathers the bits of the counters of all ranks, or virtual workers, in order. The call is
// collective.
func (s *saver) tallies(own epochCounters) (bits []uint64, err error) {
	var each [][]int64
	for _, t := range append([]epochCounters{own}, own.others...) {
		var numbers []int64
		for _, f := range t.values() {
			numbers = append(numbers, int64(math.Float64bits(*f)))
		}
		each = append(each, numbers)
	}
	all, err := s.gatherEach(each)
	if err != nil {
		return nil, fmt.Errorf("gathering the ranks' counters: %w", err)
	}
	for _, n := range slices.Concat(all...) {
		bits = append(bits, uint64(n))
	}
	return bits, nil
}

// tallyArrays names the bits of all ranks' counters.
func (r *Replica) tallyArrays(bits []uint64) (out []checkpoint.Array) {
	t := r.newTally()
	for own := range slices.Chunk(bits, len(t.values())) {
		out = append(out, checkpoint.Words(checkpoint.RankName(len(out), "tally"), own))
	}
	return out
}

// saveMidEpoch saves a run in the middle of an epoch. The training clock started at start; the
// result is a later start, so that the clock excludes the time of the save.
func (s *saver) saveMidEpoch(p *position, start time.Time, save func(position) error) (time.Time, error) {
	p.tally.trainS += time.Since(start).Seconds()
	s.reports.countTraffic(&p.tally)
	err := save(*p)
	s.job.SetStatus(fmt.Sprintf("training epoch %d", p.epoch))
	return time.Now(), err
}

// saveLast saves a stopped run, unless this step is saved, and returns why. Ranks that join again
// need only a snapshot in memory. start is the start of the training clock.
func (s *saver) saveLast(at *position, start time.Time, why error) error {
	if s.saved == (epochStep{at.epoch, at.step}) {
		return why
	}
	var err error
	if rejoins(why) && s.snapshots.at > 0 {
		if start, err = s.saveMidEpoch(at, start, s.snapshot); err == nil && s.snapshots.at > 0 {
			return why
		}
	}
	if err == nil { // no memory
		_, err = s.saveMidEpoch(at, start, s.save)
	}
	return cmp.Or(err, why)
}
