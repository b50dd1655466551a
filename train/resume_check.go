package train

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Previous describes the start of the run of a folder's last checkpoint.
type Previous struct {
	// File is the checkpoint, "" without one.
	File string
	// Assignments is Checkpoint.Assignments of the run.
	Assignments []setting.Assignment

	values  setting.Values // settings of the run
	removed error          // error about settings with an effect that no longer exist
}

// FindPrevious reads the start of a run from a checkpoint, or from a folder's last one. A missing
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

// current returns assignments by this version's names, without settings that no longer exist.
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
	return out
}

// CheckChanges reports all settings of a resumed run that differ from the checkpoint and cannot
// change, with both values, before other checks: one change may make other settings invalid. now
// are the values of scope setting.JobFixed. Run checks the number of ranks and the data.
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

// ranksPath may change after a whole epoch.
const ranksPath setting.Path = "job.ranks"

// unlike reports all settings that differ from a checkpoint's.
func unlike(now, saved setting.Values) error {
	var faults setting.ErrorList
	for _, d := range now.Differences(saved) {
		faults = append(faults, setting.Errorf(d.Path, "%s: the checkpoint has %s", shown(d.Mine), shown(d.Theirs)))
	}
	return faults.Err()
}

// compareSettings returns the settings that differ from the checkpoint's: as changed the mutable
// settings, such as "training.lr 0.1 instead of 0.05" (readers of the summary should know of the
// other experiment; the saved state keeps its meaning), as an error the fixed settings.
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
	if h.Position == 0 && r.cfg.Servers.geoSteps() == 0 { // state of geo copies belongs to its rank
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

// dataName returns the start of the data's fingerprint.
func (d *runData) dataName() string { return nameOf(d.fingerprint) }

func nameOf(fingerprint [sha256.Size]byte) string { return fmt.Sprintf("%x", fingerprint[:8]) }
