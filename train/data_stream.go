package train

import (
	"encoding/json"
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// batches are a rank's training batches, in equal number on all ranks.
type batches interface {
	Steps() int
	Start(epoch int)
	Seek(step int)
	Next() (*data.Batch, bool, error)
	Close()
}

// usualWindow is the default number of batches of a stream that are shuffled together.
const usualWindow = 128

func (c Config) validateStream(f *setting.Faults) {
	f.Add(c.Stream && c.Batch > 0 && c.Window > 0 && c.Window%c.Batch != 0, "data.shuffle-window", "%d: want a multiple of %v %d; 0 for %d batches, or -1 for none", c.Window, setting.Path("training.batch"), c.Batch, usualWindow)
	f.Add(c.Stream && c.Partition == PartitionFixed, settingPartition, "%s: a stream's ranks share blocks of its files (%s), or whole files (%s)", c.Partition, PartitionShuffled, PartitionFiles)
	f.Add(!c.Stream && c.Partition == PartitionFiles, settingPartition, "%s has no effect: it needs %v", c.Partition, setting.Path("data.stream"))
	f.Add(c.Interleave < 0, "Interleave", "%d: want at least 0", c.Interleave)
	f.Add(c.Interleave != 0 && !c.Stream, "Interleave", "has no effect: it needs %v", setting.Path("data.stream"))
}

func (c Config) window() int {
	switch {
	case c.Window < 0:
		return 0
	case c.Window == 0:
		return usualWindow * c.Batch
	}
	return c.Window
}

// streamed is a stream cut to the steps that all ranks can make.
type streamed struct {
	*data.ClickStream
	steps int
	rows  int64   // rows of all ranks
	each  []int64 // rows by rank; 0 for a lost one
}

// Steps returns the number of batches per epoch, equal on all ranks.
func (s *streamed) Steps() int { return s.steps }

// Seek makes step the next one. An error appears in Next.
func (s *streamed) Seek(step int) { _ = s.ClickStream.Seek(step) }

// openStream opens this rank's share of the files. agreeSteps then counts the steps.
func (d *runData) openStream() (*streamed, error) {
	cfg := data.ClickStreamConfig{
		Files: d.set.Files, Batch: d.cfg.Batch, Layout: d.set.Layout, Window: d.cfg.window(), Seed: d.cfg.Seed,
		Rank: d.job.Rank(), Size: d.job.Size(), ByFile: d.cfg.Partition == PartitionFiles, Interleave: d.cfg.Interleave, SkipBad: d.cfg.SkipBad, Threads: d.cfg.Threads, Remainder: true,
	}
	if cfg.Layout == nil {
		cfg.Rows, cfg.Keys = d.idRows(), len(d.spec.Slots) > 0
	}
	stream, err := data.OpenClickStream(cfg)
	if err != nil {
		return nil, err
	}
	return &streamed{ClickStream: stream}, nil
}

// idRows returns the number of rows for ids; 0 means that the model takes keys.
func (d *runData) idRows() int {
	if len(d.spec.Slots) > 0 {
		return 0
	}
	return d.set.Rows
}

// agreeSteps determines the number of steps for which every rank has rows. Each rank counts rows in
// a pass over its files. All ranks call it.
func (d *runData) agreeSteps(s *streamed) error {
	d.prepares("counting the rows of the training files")
	rows, left, err := s.Rows(d.job.Context())
	if err != nil {
		return err
	}
	if left, err = gatherLeft(d.peers, nil, left); err != nil {
		return err
	}
	if err := fewBad(addLeft(d.shares.excluded, left), d.cfg.SkipBad); err != nil {
		return err
	}
	all, err := gatherNumbers(d.peers, rows)
	if err != nil {
		return fmt.Errorf("comparing the ranks' rows: %w", err)
	}
	least, who := rows, d.job.Rank()
	s.each = make([]int64, len(all))
	for rank, counts := range all {
		if counts == nil {
			continue // lost
		}
		s.each[rank] = counts[0]
		s.rows += counts[0]
		if counts[0] < least || counts[0] == least && rank < who {
			least, who = counts[0], rank
		}
	}
	s.steps = int((least + int64(d.cfg.Batch) - 1) / int64(d.cfg.Batch))
	s.SetSteps(int64(s.steps))
	if least < int64(d.cfg.Batch) {
		return fmt.Errorf("rank %d has %s of %s: less than a batch of %d: use fewer ranks, a smaller batch or more rows",
			who, quantity.Count(least, "row"), quantity.Count(len(d.set.Files), "file"), d.cfg.Batch)
	}
	d.samples = int(s.rows)
	return d.countSteps()
}

// leftOut returns the numbers of excluded samples, by reason. With a stream all ranks call it.
func (d *runData) leftOut() ([]data.LeftOut, error) {
	s, ok := d.order.(*streamed)
	if !ok {
		return d.shares.excluded, nil
	}
	left, err := gatherLeft(d.peers, nil, s.LeftOut())
	return addLeft(d.shares.excluded, left), err
}

// places returns the positions of all ranks' streams as JSON, for a checkpoint in the middle of an
// epoch; "" without a stream. All ranks call it.
func (d *runData) places() (string, error) {
	s, ok := d.order.(*streamed)
	if !ok {
		return "", nil
	}
	p := s.Position()
	own := []int64{int64(p.Epoch), p.Step, p.First, p.Block, int64(p.Row), int64(p.Bad)}
	all := make([]int64, len(own)*d.job.Size())
	if err := collective.AllGather(d.job.Group(), all, own); err != nil {
		return "", fmt.Errorf("gathering where the streams are: %w", err)
	}
	positions := make([]data.StreamPosition, d.job.Size())
	for i := range positions {
		v := all[i*len(own):][:len(own)]
		positions[i] = data.StreamPosition{Epoch: int(v[0]), Step: v[1], First: v[2], Block: v[3], Row: int(v[4]), Bad: int(v[5])}
	}
	text, err := json.Marshal(positions)
	return string(text), err
}

// seek continues within an epoch, at the step where an earlier run stopped.
func (d *runData) seek(at *position) error {
	step := at.step * d.accumulation()
	s, ok := d.order.(*streamed)
	if !ok || len(at.places) != d.job.Size() {
		d.order.Seek(min(step, d.order.Steps()))
		return nil
	}
	p := at.places[d.job.Rank()]
	if p.Epoch != at.epoch || p.Step != min(int64(step), int64(d.order.Steps())) {
		return fmt.Errorf("the checkpoint of epoch %d, batch %d has a stream at epoch %d, batch %d", at.epoch, step, p.Epoch, p.Step)
	}
	// Settings and files equal the checkpoint's: resume compared them.
	p.Fingerprint = s.Position().Fingerprint
	return s.Resume(p)
}
