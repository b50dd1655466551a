package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/optim/schedule"
)

// settings are what a resumed run must have in common with its checkpoint, as
// the user writes them. The number of epochs only counts where the rates depend
// on it: a run may be made longer.
func (r *run) settings() map[string]string {
	c, x := r.cfg, r.cfg.Exchange
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	out := map[string]string{
		"MODEL": r.spec.Name, "--np": strconv.Itoa(r.job.Size()), "--algorithm": r.job.Group().Algorithm(),
		"--batch": strconv.Itoa(c.Batch), "--optimizer": c.Optimizer, "--lr": number(c.LR),
		"--lr-steps": schedule.FormatDrops(c.Drops), "--lr-cosine": strconv.FormatBool(c.Cosine), "--lr-floor": number(c.Floor),
		"--warmup": c.Warmup.String(), "--momentum": number(c.Momentum), "--eps": number(c.Eps),
		"--weight-decay": number(c.WeightDecay), "--dropout": number(c.Dropout), "--seed": strconv.FormatUint(c.Seed, 10),
		"--strategy": string(r.replica.Opt.Strategy()), "--plan": r.replica.Opt.PlanName(), "--bucket-bytes": strconv.Itoa(x.BucketBytes),
		"--clip-norm": number(x.ClipNorm), "--accumulate": strconv.Itoa(r.accumulation()), "--partitions": strconv.Itoa(x.Partitions),
		"data set": fmt.Sprintf("%x", r.fingerprint[:8]),
	}
	if c.Cosine {
		out["--epochs"] = strconv.Itoa(c.Epochs)
	}
	return out
}

// differ reports every setting that the checkpoint has otherwise.
func differ(saved, own map[string]string) error {
	names := maps.Clone(saved)
	maps.Copy(names, own)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if saved[name] != own[name] {
			errs = append(errs, fmt.Errorf("%s: the checkpoint has %s, this run %s", name, shown(saved[name]), shown(own[name])))
		}
	}
	return errors.Join(errs...)
}

func shown(value string) string {
	if value == "" {
		return "none"
	}
	return value
}

// resume restores the folder's last checkpoint on all ranks and returns where
// it left off; the beginning, where there is none. It is a collective call.
func (r *run) resume() (position, error) {
	r.job.SetStatus("resuming")
	var head struct {
		File        string
		Step        int64
		Epoch, Done int // epochs done, and steps of the next
		Past        past
	}
	own := r.newPerRank()
	if r.job.Rank() == 0 {
		h, path, err := r.read(own)
		if err != nil && !errors.Is(err, checkpoint.ErrNone) {
			return position{}, fmt.Errorf("resuming: %w", err)
		}
		head.File, head.Step, head.Epoch, head.Done = path, h.Step, int(h.Epoch), int(h.Position)
		if text, ok := h.More["past"]; ok {
			if err := json.Unmarshal([]byte(text), &head.Past); err != nil {
				return position{}, fmt.Errorf("resuming: %s: the figures so far cannot be read: %w", path, err)
			}
		}
	}
	text, err := json.Marshal(head)
	if err == nil {
		text, err = broadcastBytes(r.job.Group(), text)
	}
	if err == nil {
		err = json.Unmarshal(text, &head)
	}
	if err != nil {
		return position{}, fmt.Errorf("resuming: telling all ranks: %w", err)
	}
	if head.File == "" {
		return position{epoch: 1}, nil
	}
	if head.Epoch > r.cfg.Epochs || head.Done > r.steps {
		return position{}, fmt.Errorf("resuming: %s was saved after %d epochs and %d steps, but this run has %d epochs of %d steps",
			head.File, head.Epoch, head.Done, r.cfg.Epochs, r.steps)
	}
	p := position{epoch: head.Epoch + 1, step: head.Done}
	r.past, r.resumed = head.Past, head.File
	return p, r.restore(own, &p.tally, head.Step)
}

// read fills this rank's memory and own from the last checkpoint.
func (r *run) read(own perRank) (checkpoint.Header, string, error) {
	path, err := checkpoint.Latest(r.cfg.Checkpoint.Dir)
	if err != nil {
		return checkpoint.Header{}, "", err
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		return checkpoint.Header{}, "", err
	}
	defer f.Close()
	if err := differ(f.Header.Settings, r.settings()); err != nil {
		return f.Header, path, fmt.Errorf("%s is of a run with other settings: %w", path, err)
	}
	means := make([]float32, len(r.replica.Params.Buffers()))
	return f.Header, path, f.Read(append(r.replica.arrays(means), own.arrays()...)...)
}

// restore gives every rank what rank 0 has read.
func (r *run) restore(own perRank, t *tally, step int64) error {
	g := r.job.Group()
	if err := r.replica.Opt.Broadcast(); err != nil {
		return err
	}
	tallies := make([]int64, len(own.tallies))
	for i, v := range own.tallies {
		tallies[i] = int64(v)
	}
	if err := errors.Join(
		collective.Broadcast(g, own.buffers, 0), collective.Broadcast(g, own.carried, 0), collective.Broadcast(g, tallies, 0),
	); err != nil {
		return fmt.Errorf("resuming: handing out what differs by rank: %w", err)
	}
	rank := r.job.Rank()
	copy(r.replica.Params.Buffers(), own.buffers[rank*own.buffersN:])
	carried := own.carried[rank*own.carries:]
	for _, s := range r.replica.state() {
		carried = carried[copy(s, carried):]
	}
	fields := t.values()
	for i, f := range fields {
		*f = math.Float64frombits(uint64(tallies[rank*len(fields)+i]))
	}
	r.replica.passes = uint64(step) * uint64(r.accumulation())
	return r.replica.Opt.SetSteps(step)
}

// broadcastBytes gives every rank rank 0's bytes, whose number the others need
// not know.
func broadcastBytes(g *collective.Group, own []byte) ([]byte, error) {
	size := []int64{int64(len(own))}
	if err := collective.Broadcast(g, size, 0); err != nil {
		return nil, err
	}
	if g.Rank() != 0 {
		own = make([]byte, size[0])
	}
	return own, collective.Broadcast(g, own, 0)
}
