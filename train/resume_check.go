package train

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Previous describes how the run of a folder's last checkpoint was started.
type Previous struct {
	// File is the checkpoint, "" without one.
	File string
	// Assignments are the settings with which the run was started (Checkpoint.Assignments).
	Assignments []setting.Assignment

	values  setting.Values // settings of the run
	removed error          // error about settings with an effect that no longer exist
}

// FindPrevious reads from a checkpoint, or a folder's last one, how its run was started. A missing
// folder or checkpoint is no error; a damaged one is a *checkpoint.DamageError.
func FindPrevious(path string) (Previous, error) {
	path, err := checkpoint.Locate(path)
	if errors.Is(err, checkpoint.ErrNone) {
		return Previous{}, nil
	}
	if err != nil {
		return Previous{}, err
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		return Previous{}, err
	}
	p := Previous{File: path}
	p.values, p.removed = f.Header.Settings.Current()
	if text, ok := f.Header.More[moreAssignments]; ok {
		if err = json.Unmarshal([]byte(text), &p.Assignments); err != nil {
			err = fmt.Errorf("%s: the settings of the run cannot be read: %w", path, err)
		}
	}
	p.Assignments = p.current(p.Assignments)
	return p, errors.Join(err, f.Close())
}

// current returns assignments with this version's names of settings, without settings that no
// longer exist.
func (p *Previous) current(told []setting.Assignment) (out []setting.Assignment) {
	for _, a := range told {
		now, _, exists, err := setting.Current(a)
		if exists {
			out = append(out, now)
		}
		if err != nil && p.removed == nil && !setting.Harmless(a.Path) { // settings of scope Local are not in values
			p.removed = err
		}
	}
	return setting.Join(out)
}

// CheckChanges returns an error with all settings of a resumed run that differ from the checkpoint
// and cannot change, with both values. Call it before other checks, because one change may make
// other settings invalid. now are the values of scope setting.JobFixed. Run itself checks the
// number of ranks and the data.
func (p Previous) CheckChanges(now setting.Values) error {
	known := maps.Clone(p.values)
	maps.DeleteFunc(known, func(path setting.Path, _ string) bool { _, ok := now[path]; return !ok || path == ranksPath })
	now = maps.Clone(now)
	maps.DeleteFunc(now, func(path setting.Path, _ string) bool { _, ok := known[path]; return !ok })
	if err := errors.Join(p.removed, unlike(now, known)); err != nil {
		return fmt.Errorf("resuming: %s is of a run with other settings: %w; remove these settings, or choose another folder", p.File, err)
	}
	return nil
}

// ranksPath is the setting of the number of ranks, which may change after a whole epoch.
const ranksPath setting.Path = "job.ranks"

// unlike reports all settings that differ from a checkpoint's.
func unlike(now, saved setting.Values) error {
	var faults setting.ErrorList
	for _, d := range now.Differences(saved) {
		faults = append(faults, setting.Errorf(d.Path, "%s: the checkpoint has %s", shown(d.Mine), shown(d.Theirs)))
	}
	return faults.Err()
}

// compareSettings compares the settings with the checkpoint's. changed lists the differing settings
// that may change, such as "training.lr 0.1 instead of 0.05", for readers of the summary. Settings
// that may not change are an error.
func (r *resumption) compareSettings(h checkpoint.Header) (changed []string, err error) {
	fixed, err := r.values(setting.JobFixed)
	if err != nil {
		return nil, err
	}
	free, err := r.values(setting.JobMutable)
	if err != nil {
		return nil, err
	}
	saved, gone := h.Settings.Current()
	was := setting.Values{}
	// State of geo copies belongs to its rank.
	if r.cfg.Workers > 0 || h.Position == 0 && r.cfg.Servers.geoSteps() == 0 {
		saved[ranksPath] = fixed[ranksPath]
	}
	for path := range free {
		if text, ok := saved[path]; ok {
			was[path] = text
			delete(saved, path)
		}
	}
	for _, d := range free.Differences(was) {
		changed = append(changed, fmt.Sprintf("%s %s instead of %s", d.Path, shown(d.Mine), shown(d.Theirs)))
	}
	err = errors.Join(gone, unlike(fixed, saved))
	if !r.ownLoop && r.data.grown == nil && h.More[moreData] != r.data.dataName() {
		err = errors.Join(err, fmt.Errorf("the data differ: their fingerprint is %s, the checkpoint has %s", r.data.dataName(), shown(h.More[moreData])))
	}
	return changed, err
}

// dataName returns the start of the hash of the data.
func (d *runData) dataName() string { return nameOf(d.fingerprint) }

func nameOf(fingerprint [sha256.Size]byte) string { return fmt.Sprintf("%x", fingerprint[:8]) }

// A resumed run may have more data than before: rows appended to a table or a file of clicks, files
// added to a folder, or a later day in files of another name. The samples keep the encoding of the
// checkpoint, so that the weights keep their meaning. Rows that were held out for evaluation still
// are, because a hash of the row's number decides. The epoch in progress begins again with the
// larger set.

// earlierData are the data of the checkpoint to resume from.
type earlierData struct {
	File   string // "" without a checkpoint
	Name   string // start of the fingerprint
	About  data.Description
	Files  files
	Digest *data.Digest // nil: from an older version, or a set without digest
}

// readEarlier gives all ranks the data of the checkpoint to resume from. The call is collective.
func (r *run) readEarlier() error {
	if !r.cfg.Checkpoint.Resume || r.data.set != nil || r.job.ServersOnly() || r.cfg.Partition == PartitionFixed {
		return nil
	}
	var e earlierData
	if r.job.Rank() == 0 {
		head, err := r.openLast()
		if err != nil && !errors.Is(err, checkpoint.ErrNone) {
			return fmt.Errorf("resuming: %w", err)
		}
		if err == nil {
			e = earlierData{File: head.File, Name: head.Data, About: head.About, Files: head.Files.absolute()}
			err = json.Unmarshal([]byte(head.file.Header.More[moreDigest]), &e.Digest)
			if head.file.Header.More[moreDigest] == "" {
				err = nil
			}
			if err = errors.Join(err, head.file.Close()); err != nil {
				return fmt.Errorf("resuming: %s: the digest of the data cannot be read: %w", head.File, err)
			}
		}
	}
	var err error
	if r.data.earlier, err = broadcastJSON(r.job.Group(), e); err != nil {
		return fmt.Errorf("sending all ranks the digest of the data: %w", err)
	}
	return nil
}

// openContinued opens the set of a run. If a resumed run has other data than its checkpoint, it
// uses the checkpoint's encoding, the earlier samples and the new ones.
func (d *runData) openContinued(cfg Config) (*data.Dataset, error) {
	set, err := d.openOrKept(cfg)
	e := d.earlier
	if e.Digest == nil || err == nil && nameOf(set.Fingerprint()) == e.Name || err != nil && e.About.Encoder == nil {
		return set, err
	}
	var columns []string // without a row in the model
	if e.About.Encoder != nil {
		if err == nil {
			for _, c := range set.Encoder.Columns {
				if !slices.ContainsFunc(e.About.Encoder.Columns, func(has table.Column) bool { return has.Name == c.Name }) {
					columns = append(columns, c.Name)
				}
			}
			if err := set.Close(); err != nil {
				return nil, fmt.Errorf("resuming: %s: %w", e.File, err)
			}
		}
		cfg.encoder = e.About.Encoder
		if set, err = openSet(cfg); err != nil {
			return nil, fmt.Errorf("resuming: %s: %w", e.File, err)
		}
	}
	if err = sameKinds(e.About, set.Description()); err == nil {
		d.grown, err = set.CheckGrowth(e.Digest, e.Files != files{cfg.Data, cfg.TrainFile, cfg.EvalFile}.absolute())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("resuming: %s: the data have changed: %w", e.File, err), set.Close())
	}
	if len(columns) > 0 {
		d.grown = append(d.grown, fmt.Sprintf("columns without use, since the checkpoint has none of the name: %s; a run with --init-from learns them", strings.Join(columns, ", ")))
	}
	d.evalChanged = set.Eval.Len() != e.Digest.Eval.N || slices.ContainsFunc(d.grown, func(line string) bool { return strings.HasPrefix(line, "other ") })
	set.Notes = append(set.Notes, d.grown...)
	return set, nil
}

// makeDigest computes a digest of the data on rank 0, which saves checkpoints.
func (d *runData) makeDigest() error {
	if d.job.Rank() != 0 || d.cfg.Checkpoint.Dir == "" || d.cfg.hasSet || d.cfg.Data == data.Synthetic || d.cfg.Partition == PartitionFixed {
		return nil
	}
	digest := d.set.Digest()
	if digest == nil {
		return nil
	}
	text, err := json.Marshal(digest)
	if err != nil {
		return fmt.Errorf("the digest of the data cannot be saved: %w", err)
	}
	d.digest = string(text)
	return nil
}

// sameKinds returns an error if classes, words or shapes differ from those of the model.
func sameKinds(before, now data.Description) error {
	var faults []string
	if before.Classes != now.Classes || before.Vocabulary != now.Vocabulary || !slices.Equal(before.Words, now.Words) {
		missing := func(from, in []string) (out []string) {
			for _, w := range from {
				if !slices.Contains(in, w) && len(out) < 5 {
					out = append(out, w)
				}
			}
			return out
		}
		faults = append(faults, fmt.Sprintf("the checkpoint has %d classes or words, the data %d; new ones: %q, missing ones: %q",
			max(before.Classes, before.Vocabulary), max(now.Classes, now.Vocabulary), missing(now.Words, before.Words), missing(before.Words, now.Words)))
	}
	if b, n := before.Shape, now.Shape; b.Size() != n.Size() || b.IDs != n.IDs || b.Labels != n.Labels || b.Targets != n.Targets || len(b.Slots) != len(n.Slots) {
		faults = append(faults, fmt.Sprintf("a sample of the checkpoint has %d values, %d ids and %d slots, one of the data %d, %d and %d", b.Size(), b.IDs, len(b.Slots), n.Size(), n.IDs, len(n.Slots)))
	}
	if faults == nil {
		return nil
	}
	return setting.Errorf("training.init-from", "%s: a resumed run has the same model: begin another run with the weights of this one", strings.Join(faults, "; "))
}

// restartEpoch begins the epoch in progress again with more data. The best epoch is forgotten if
// the evaluation samples have changed, because its metric is not comparable.
func (r *resumption) restartEpoch() error {
	f := &r.found
	if r.data.grown == nil || f.File == "" {
		return nil
	}
	if f.Epoch >= r.cfg.Epochs {
		return setting.Errorf("training.epochs", "%d: %s has %s, and none remains for the new samples: raise it", r.cfg.Epochs, f.File, quantity.Count(f.Epoch, "whole epoch"))
	}
	if f.Done > 0 {
		r.remark(f.Epoch+1, "epoch %d begins again with the new samples, after %s", f.Epoch+1, quantity.Count(f.Done, "step"))
	}
	f.Done, f.Places = 0, nil
	if b := f.Past.Best; b != nil && r.data.evalChanged {
		r.remark(f.Epoch+1, "the evaluation samples are others: the best epoch (%s, %s of epoch %d) is forgotten", b.Metric, quantity.FloatDigits(b.Value, 6), b.Epoch)
		f.Past.Best = nil
	}
	return nil
}
