package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/tune"
)

// maxRanks bounds what a checkpoint may say of the ranks that wrote it.
const maxRanks = 1 << 16

// checkpointInfo is what rank 0 tells of a checkpoint.
type checkpointInfo struct {
	File        string // "": there is none
	Step        int64
	Epoch, Done int // epochs done, and steps of the next
	NP          int
	Past        runHistory
	Setup       *distopt.Setup
	Tuned       tune.State
	Places      []data.StreamPosition
	Changed     []string // what this run has otherwise

	// About is what the run's data were, Data the beginning of their fingerprint, and Files what it was told to read, if that is known.
	About data.Description
	Data  string
	Files files
	// Servers says which parts of servers belong to it; nil: there are none.
	Servers *ServersPart
	// Params are the parameters that it has by name. Where servers have saved the others they have not these.
	Params []string

	file *checkpoint.File // that rank 0 has opened
}

// resumption is the part of a run that finds, checks and reads the checkpoint that it begins with.
type resumption struct {
	*runEnv
	data    *runData
	reports *reports

	found   checkpointInfo // its File is "" if there is no checkpoint
	resumed string         // found.File, if the run continues from there
}

// find tells all ranks of the folder's last checkpoint, which rank 0 opens: servers are told what follows it
// before anything is restored. It is a collective call.
func (r *resumption) find() error {
	if !r.cfg.Checkpoint.Resume {
		return nil
	}
	r.prepares("resuming")
	if err := r.tellOf(r.open); err != nil {
		return err
	}
	if f := r.found; f.Epoch > r.cfg.Epochs || f.Epoch == r.cfg.Epochs && f.Done > 0 || f.Done > r.data.steps {
		return fmt.Errorf("%s was saved after %s and %s, but this run has %s of %s: give it more epochs",
			f.File, quantity.Count(f.Epoch, "epoch"), quantity.Count(f.Done, "step"), quantity.Count(r.cfg.Epochs, "epoch"), quantity.Count(r.data.steps, "step"))
	}
	return nil
}

// tellOf makes what rank 0 opens known to all ranks. It is a collective call.
func (r *resumption) tellOf(open func() (checkpointInfo, error)) error {
	var head checkpointInfo
	if r.job.Rank() == 0 {
		var err error
		if head, err = open(); err != nil {
			return err
		}
	}
	text, err := json.Marshal(head)
	if err == nil {
		text, err = broadcastBytes(r.job.Group(), text)
	}
	r.found.file = head.file
	if err == nil {
		err = json.Unmarshal(text, &r.found)
	}
	if err != nil {
		return fmt.Errorf("telling all ranks: %w", err)
	}
	return nil
}

// resume restores what find has found on all ranks and returns where it left off; the
// beginning, where there was nothing. It is a collective call.
func (r *resumption) resume() (position, error) {
	head := r.found
	if head.File == "" {
		return position{epoch: 1, tally: r.newTally()}, r.replica.Tuner.Resumed(tune.State{})
	}
	if head.Setup != nil {
		if err := r.replica.Opt.Restore(*head.Setup); err != nil {
			return position{}, fmt.Errorf("resuming: %s: %w", head.File, err)
		}
	}
	p := position{epoch: head.Epoch + 1, step: head.Done, places: head.Places, tally: r.newTally()}
	r.reports.past, r.resumed = head.Past, head.File
	if err := r.load(head, &p.tally); err != nil {
		return position{}, fmt.Errorf("resuming: %w", err)
	}
	return p, r.replica.Tuner.Resumed(head.Tuned)
}

// open opens the last checkpoint, if there is one, and checks that it is of this
// run. After an epoch another number of ranks may go on.
func (r *resumption) open() (checkpointInfo, error) {
	head, err := openSaved(r.cfg.Checkpoint.Dir)
	if errors.Is(err, checkpoint.ErrNone) {
		return checkpointInfo{}, nil
	}
	if err != nil {
		return checkpointInfo{}, err
	}
	h := head.file.Header
	if err := errors.Join(head.resumable(r.cfg.Checkpoint.Dir), r.cfg.sameSplit(head.File, h)); err != nil {
		return checkpointInfo{}, errors.Join(err, head.file.Close())
	}
	if head.Changed, err = r.compareSettings(h); err != nil {
		_ = head.file.Close()
		err = fmt.Errorf("%s is of a run with other settings: %w", head.File, err)
		if h.Position > 0 && h.NP != r.job.Size() {
			err = fmt.Errorf("%w; another number of ranks may go on after a whole epoch alone: let %d ranks finish epoch %d first", err, h.NP, h.Epoch+1)
		}
		return checkpointInfo{}, err
	}
	return head, nil
}

// openSaved opens a checkpoint, or a folder's last one.
func openSaved(path string) (checkpointInfo, error) {
	path, err := checkpoint.Of(path)
	if err != nil {
		return checkpointInfo{}, err
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		return checkpointInfo{}, err
	}
	h := f.Header
	part, err := ServerParts(h, path)
	if err != nil {
		return checkpointInfo{}, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	head := checkpointInfo{Servers: part, File: path, Step: h.Step, Epoch: int(h.Epoch), Done: int(h.Position), NP: h.NP, Params: paramsIn(f), file: f}
	if h.NP < 1 || h.NP > maxRanks || h.Epoch < 0 || h.Position < 0 || h.Epoch > math.MaxInt32 || h.Position > math.MaxInt32 {
		err = fmt.Errorf("%s says that %d ranks did %d epochs and %d steps, which cannot be", path, h.NP, h.Epoch, h.Position)
	} else {
		err = head.read(h.More)
	}
	if err != nil {
		_ = f.Close()
		return checkpointInfo{}, err
	}
	return head, nil
}

// read takes what a header holds besides.
func (s *checkpointInfo) read(more map[string]string) error {
	var told []setting.Assignment
	for _, part := range []struct {
		name, what string
		into       any
	}{
		{morePast, "the figures so far", &s.Past}, {moreTuned, "what was chosen", &s.Tuned},
		{morePlaces, "where the streams were", &s.Places}, {moreExchange, "the strategy and the plan", &s.Setup},
		{moreSet, "what its data were", &s.About}, {moreTold, "what the run was told", &told},
	} {
		text, ok := more[part.name]
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(text), part.into); err != nil {
			return fmt.Errorf("%s: %s cannot be read: %w", s.File, part.what, err)
		}
	}
	s.Data, s.Files = more[moreData], filesOf(told)
	if err := s.About.Validate(); err != nil {
		return fmt.Errorf("%s: %w", s.File, err)
	}
	return nil
}

// files are what a run reads, as its settings name them.
type files struct{ Dir, Train, Eval string }

// absolute are the same files with names that hold wherever one is.
func (f files) absolute() files {
	for _, path := range []*string{&f.Dir, &f.Train, &f.Eval} {
		if *path == "" || *path == data.Synthetic {
			continue
		}
		if whole, err := filepath.Abs(*path); err == nil { // else it is compared as it is
			*path = whole
		}
	}
	return f
}

// filesOf are those of what a run was told.
func filesOf(told []setting.Assignment) (f files) {
	for _, a := range told {
		switch a.Path {
		case "data.dir":
			f.Dir = a.Text
		case "data.train-file":
			f.Train = a.Text
		case "data.eval-file":
			f.Eval = a.Text
		}
	}
	return f
}

// What a checkpoint's header holds besides: JSON of past, of distopt.Setup, of
// tune.State, of the ranks' []data.StreamPosition and of ServersPart, and the data's fingerprint.
const (
	moreData     = "data"
	morePast     = "past"
	moreExchange = "exchange"
	morePlaces   = "places"
	moreTuned    = "tuned"
	moreServers  = "servers" // which parts servers have
	moreTold     = "told"    // JSON of Checkpoint.Assignments
	moreSet      = "set"     // JSON of data.Description
)

// load fills every rank's memory from the file that rank 0 has opened.
func (r *resumption) load(head checkpointInfo, t *epochCounters) error {
	means := make([]float32, len(r.replica.Params.Buffers()))
	var tallies []uint64
	if head.NP == r.job.Size() { // else each rank begins anew
		tallies = make([]uint64, head.NP*len(t.values()))
	}
	lengths, err := r.keptLengths(head.file, head.NP)
	if err != nil {
		return err
	}
	if r.job.Rank() == 0 {
		kept, err := r.distribute(lengths)
		if err != nil {
			return err
		}
		if err := head.file.Read(slices.Concat(r.arrays(means), r.tallyArrays(tallies), kept)...); err != nil {
			return err
		}
	} else if err := r.receiveLocal(lengths); err != nil {
		return err
	}
	if err := r.restore(t, tallies, means); err != nil {
		return err
	}
	for _, w := range r.workers {
		w.replica.passes = uint64(head.Step)*uint64(r.accumulation()) - uint64(head.Epoch+head.Done/r.data.steps)*r.data.spared()
		if err := w.replica.Opt.SetSteps(head.Step); err != nil {
			return err
		}
	}
	return r.loaded()
}

// loaded makes the parameters of all ranks and workers those that rank 0 has read. It is a collective call.
func (r *resumption) loaded() error {
	if err := r.replica.params.resumed(); err != nil {
		return err
	}
	for _, p := range r.replica.Params.Frozen() {
		if err := collective.Broadcast(r.job.Group(), p.Data, 0); err != nil {
			return fmt.Errorf("handing out frozen parameters: %w", err)
		}
	}
	for _, w := range r.workers[1:] {
		for i, p := range r.replica.Params.Frozen() {
			copy(w.replica.Params.Frozen()[i].Data, p.Data)
		}
	}
	return nil
}

// restore hands out what rank 0 has read of the tallies of as many ranks or, where they were others, the means of the running
// statistics.
func (r *resumption) restore(t *epochCounters, tallies []uint64, means []float32) error {
	if tallies == nil {
		if err := collective.Broadcast(r.job.Group(), means, 0); err != nil {
			return fmt.Errorf("handing out the running statistics: %w", err)
		}
		for _, w := range r.workers {
			copy(w.replica.Params.Buffers(), means)
		}
		return nil
	}
	bits := make([]int64, len(tallies))
	for i, v := range tallies {
		bits[i] = int64(v)
	}
	if err := collective.Broadcast(r.job.Group(), bits, 0); err != nil {
		return fmt.Errorf("handing out the ranks' figures: %w", err)
	}
	fields := t.values()
	for i, f := range fields {
		*f = math.Float64frombits(uint64(bits[r.job.Rank()*len(fields)+i]))
	}
	return nil
}

// maxTold bounds what rank 0 tells of a checkpoint: more than a header can hold.
const maxTold = 64 << 20

// broadcastBytes gives every rank rank 0's bytes, whose number the others need
// not know.
func broadcastBytes(g *collective.Group, own []byte) ([]byte, error) {
	size := []int64{int64(len(own))}
	if err := collective.Broadcast(g, size, 0); err != nil {
		return nil, err
	}
	if size[0] < 0 || size[0] > maxTold {
		return nil, fmt.Errorf("rank 0 tells %d bytes, at most %d make sense", size[0], maxTold)
	}
	if g.Rank() != 0 {
		own = make([]byte, size[0])
	}
	return own, collective.Broadcast(g, own, 0)
}
