package train

import (
	"cmp"
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
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/tune"
)

// maxRanks limits the number of ranks in a checkpoint's header.
const maxRanks = 1 << 16

// checkpointInfo is the description of a checkpoint that rank 0 broadcasts.
type checkpointInfo struct {
	File    string                `json:"file"` // "" without a checkpoint
	Step    int64                 `json:"step"`
	OnDisk  int64                 `json:"on_disk"` // step of the last file, below a snapshot's
	Epoch   int                   `json:"epoch"`   // complete epochs
	Done    int                   `json:"done"`    // steps of the next epoch
	NP      int                   `json:"np"`
	Past    runHistory            `json:"past"`
	Setup   *distopt.Setup        `json:"setup"`
	Tuned   tune.State            `json:"tuned"`
	Places  []data.StreamPosition `json:"positions"`
	Changed []string              `json:"changed"` // settings that differ in this run
	Kernels string                `json:"kernels"` // kind of the kernels; "" in checkpoints of earlier versions

	// About describes the run's data, Data is the start of a hash of them, and Files are the run's
	// paths, if known.
	About data.Description `json:"about"`
	Data  string           `json:"data"`
	Files files            `json:"files"`
	// Servers has the servers' parts; nil without any.
	Servers *ServersPart `json:"servers"`
	// Params names the parameters in the file; all others are saved by servers.
	Params []string `json:"params"`

	file *checkpoint.File // open on rank 0
}

// resumption is the part of a run that finds, checks and reads the initial checkpoint.
type resumption struct {
	*runEnv
	data    *runData
	reports *reports

	found checkpointInfo // File is "" without a checkpoint
}

// find broadcasts the description of the folder's last checkpoint, which rank 0 opens: servers need
// the number of the next step before any value is restored. All ranks call it.
func (r *resumption) find() error {
	if !r.cfg.Checkpoint.Resume {
		return nil
	}
	r.prepares("resuming")
	if err := r.broadcastInfo(r.open); err != nil {
		return fmt.Errorf("resuming: %w", err)
	}
	r.found.keepPrecision(&r.cfg)
	if err := r.restartEpoch(); err != nil {
		return err
	}
	if f := r.found; f.Epoch > r.cfg.Epochs || f.Epoch == r.cfg.Epochs && f.Done > 0 || f.Done > r.data.steps {
		return fmt.Errorf("resuming: %s was saved after %s and %s, but this run has %s of %s: give it more epochs",
			f.File, quantity.Count(f.Epoch, "epoch"), quantity.Count(f.Done, "step"), quantity.Count(r.cfg.Epochs, "epoch"), quantity.Count(r.data.steps, "step"))
	}
	return nil
}

// keepPrecision makes auto keep the precision of the checkpoint, if there is one.
func (s *checkpointInfo) keepPrecision(cfg *Config) {
	if s.File != "" {
		cfg.savedKernels = cmp.Or(s.Kernels, simd.Host().Name())
	}
}

// broadcastInfo broadcasts the description of the checkpoint that rank 0 opens. The call is
// collective.
func (r *resumption) broadcastInfo(open func() (checkpointInfo, error)) error {
	var head checkpointInfo
	if r.job.Rank() == 0 {
		var err error
		if head, err = open(); err != nil {
			return err
		}
	}
	var err error
	r.found, err = broadcastJSON(r.job.Group(), head)
	if r.found.file = head.file; err != nil {
		return fmt.Errorf("broadcasting its description: %w", err)
	}
	return nil
}

// resume restores the checkpoint of find on all ranks and returns its position, or the beginning of
// a new run. All ranks call it.
func (r *resumption) resume() (position, error) {
	head, p := r.found, position{epoch: 1, tally: r.replica.newTally()}
	switch {
	case !r.cfg.Checkpoint.Resume:
		return p, nil
	case head.File == "":
		return p, r.replica.Tuner.Resumed(tune.State{})
	}
	if now := r.replica.Kernels(); head.Kernels != "" && !simd.SameBits(head.Kernels, now) {
		r.found.Changed = append(r.found.Changed, fmt.Sprintf("%s kernels instead of %s: the bits differ from an uninterrupted run", now, head.Kernels))
	}
	if head.Setup != nil {
		for _, w := range r.workers {
			if err := w.replica.Opt.Restore(*head.Setup); err != nil {
				return position{}, fmt.Errorf("resuming: %s: %w", head.File, err)
			}
		}
	}
	p.epoch, p.step, p.places = head.Epoch+1, head.Done, head.Places
	r.reports.past = head.Past
	if err := r.load(head, &p.tally); err != nil {
		return position{}, fmt.Errorf("resuming: %w", err)
	}
	if r.data.grown != nil { // the epoch begins again
		p.tally = r.replica.newTally()
	}
	return p, r.replica.Tuner.Resumed(head.Tuned)
}

// open opens the last checkpoint, if any, and checks that this run can resume from it. After a
// whole epoch the number of ranks may differ.
func (r *resumption) open() (checkpointInfo, error) {
	head, err := r.openLast()
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
		switch {
		case r.cfg.Workers > 0 || h.NP == r.job.Size():
		case r.cfg.Servers.Consistency == "geo":
			err = fmt.Errorf("%w; in geo each rank has an optimizer's state: continue with %d ranks, or start another run with the weights (%v)", err, h.NP, setting.Path("training.init-from"))
		case h.Position > 0:
			err = fmt.Errorf("%w; the number of ranks can change only after a whole epoch: let %d ranks finish epoch %d first", err, h.NP, h.Epoch+1)
		}
		return checkpointInfo{}, err
	}
	return head, nil
}

// openSaved opens a checkpoint, or a folder's last one.
func openSaved(path string) (checkpointInfo, error) {
	path, err := checkpoint.Locate(path)
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
	head := checkpointInfo{Servers: part, File: path, Step: h.Step, OnDisk: h.Step, Epoch: int(h.Epoch), Done: int(h.Position), NP: h.NP, Params: paramsIn(f), file: f}
	if h.NP < 1 || h.NP > maxRanks || h.Epoch < 0 || h.Position < 0 || h.Epoch > math.MaxInt32 || h.Position > math.MaxInt32 {
		err = fmt.Errorf("%s: %d ranks, %d epochs and %d steps: out of range: the file is damaged", path, h.NP, h.Epoch, h.Position)
	} else {
		err = head.read(h.More)
	}
	if err != nil {
		_ = f.Close()
		return checkpointInfo{}, err
	}
	return head, nil
}

func (s *checkpointInfo) read(more map[string]string) error {
	var told []setting.Assignment
	for _, part := range []struct {
		name, content string
		into          any
	}{
		{morePast, "the metrics of finished epochs", &s.Past}, {moreTuned, "the choices of tuning", &s.Tuned},
		{morePlaces, "the positions of the streams", &s.Places}, {moreExchange, "the strategy and the plan", &s.Setup},
		{moreSet, "the description of its data", &s.About}, {moreAssignments, "the settings of the run", &told},
	} {
		text, ok := more[part.name]
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(text), part.into); err != nil {
			return fmt.Errorf("%s: %s cannot be read: %w", s.File, part.content, err)
		}
	}
	s.Data, s.Files, s.Kernels = more[moreData], filesOf(told), more[moreKernels]
	if err := s.About.Validate(); err != nil {
		return fmt.Errorf("%s: %w", s.File, err)
	}
	return nil
}

type files struct {
	Dir   string `json:"dir"`
	Train string `json:"train"`
	Eval  string `json:"eval"`
}

func (f files) absolute() files {
	for _, path := range []*string{&f.Dir, &f.Train, &f.Eval} {
		if *path == "" || *path == data.Synthetic {
			continue
		}
		if whole, err := filepath.Abs(*path); err == nil { // else compared as it is
			*path = whole
		}
	}
	return f
}

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

// Names of entries of a checkpoint's header. Their values are JSON of runHistory, distopt.Setup,
// tune.State, the ranks' []data.StreamPosition and ServersPart, and the hash of the data.
const (
	moreData        = "data"
	moreKernels     = "kernels" // kind of the kernels
	morePast        = "past"
	moreExchange    = "exchange"
	morePlaces      = "places"
	moreTuned       = "tuned"
	moreServers     = "servers" // parts of servers
	moreAssignments = "told"    // JSON of Checkpoint.Assignments
	moreSet         = "set"     // JSON of data.Description
	moreDigest      = "digest"  // JSON of data.Digest
)

// load fills every rank's memory from rank 0's file.
func (r *resumption) load(head checkpointInfo, t *epochCounters) error {
	means := make([]float32, len(r.replica.Params.Buffers()))
	var tallies []uint64
	if head.NP == r.virtual() { // else counters begin at 0
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
		if err := head.file.Read(slices.Concat(r.replica.arrays(means), r.replica.tallyArrays(tallies), kept)...); err != nil {
			return err
		}
	} else if err := r.receiveLocal(lengths); err != nil {
		return err
	}
	if tallies != nil {
		err = r.restoreTally(t, tallies)
	} else { // localState has the running statistics of as many ranks
		err = r.restoreMeans(means)
	}
	if err != nil {
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

// loaded broadcasts the parameters that rank 0 has read to all ranks and threads. The call is
// collective.
func (r *resumption) loaded() error {
	if err := r.replica.params.resumed(); err != nil {
		return err
	}
	for _, p := range r.replica.Params.Frozen() {
		if err := collective.Broadcast(r.job.Group(), p.Data, 0); err != nil {
			return fmt.Errorf("broadcasting frozen parameters: %w", err)
		}
	}
	for _, w := range r.workers[1:] {
		for i, p := range r.replica.Params.Frozen() {
			copy(w.replica.Params.Frozen()[i].Data, p.Data)
		}
	}
	return nil
}

// restoreMeans broadcasts the means of running statistics that rank 0 has read.
func (r *resumption) restoreMeans(means []float32) error {
	if err := collective.Broadcast(r.job.Group(), means, 0); err != nil {
		return fmt.Errorf("broadcasting the running statistics: %w", err)
	}
	for _, w := range r.workers {
		copy(w.replica.Params.Buffers(), means)
	}
	return nil
}

// restoreTally broadcasts the bits of all ranks' counters, which rank 0 has read, and sets t to
// this rank's.
func (r *resumption) restoreTally(t *epochCounters, tallies []uint64) error {
	bits := make([]int64, len(tallies))
	for i, v := range tallies {
		bits[i] = int64(v)
	}
	if err := collective.Broadcast(r.job.Group(), bits, 0); err != nil {
		return fmt.Errorf("broadcasting the ranks' counters: %w", err)
	}
	n := len(t.values())
	lo, hi := r.carried(r.job.Rank())
	for i := lo; i < hi; i++ {
		own := t
		if i > lo {
			own = &t.others[i-lo-1]
		}
		for k, f := range own.values() {
			*f = math.Float64frombits(uint64(bits[i*n+k]))
		}
	}
	return nil
}

// maxInfo is the maximum number of bytes that broadcastJSON sends, more than any header has.
const maxInfo = 64 << 20

// broadcastJSON returns rank 0's value on all ranks, with the fields that are in its JSON.
func broadcastJSON[T any](g *collective.Group, own T) (value T, err error) {
	text, err := json.Marshal(own)
	if err != nil {
		return value, err
	}
	size := []int64{int64(len(text))}
	if err := collective.Broadcast(g, size, 0); err != nil {
		return value, err
	}
	if size[0] < 0 || size[0] > maxInfo {
		return value, fmt.Errorf("rank 0 announces %d bytes: must be at most %d", size[0], maxInfo)
	}
	if g.Rank() != 0 {
		text = make([]byte, size[0])
	}
	if err := collective.Broadcast(g, text, 0); err != nil {
		return value, err
	}
	return value, json.Unmarshal(text, &value)
}
