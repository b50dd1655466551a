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

// Previous is what a folder's last checkpoint says of how its run was started.
type Previous struct {
	// File is the checkpoint, "" where there is none.
	File string
	// Assignments is Checkpoint.Assignments of the run.
	Assignments []setting.Assignment

	values setting.Values // those that the run had
	gone   error          // its settings that do not exist any more, and changed something
}

// FindPrevious reads what a checkpoint, or a folder's last one, says of how its run was started. No
// folder and no checkpoint are no error, but a damaged one is, a *checkpoint.DamageError.
func FindPrevious(path string) (Previous, error) {
	path, err := checkpoint.Of(path)
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
	p.values, p.gone = f.Header.Settings.Current()
	if text, ok := f.Header.More[moreTold]; ok {
		if err = json.Unmarshal([]byte(text), &p.Assignments); err != nil {
			err = fmt.Errorf("%s: what the run was told cannot be read: %w", path, err)
		}
	}
	p.Assignments = p.current(p.Assignments)
	return p, errors.Join(err, f.Close())
}

// current returns assignments with the names of this version, without the settings that do not
// exist any more.
func (p *Previous) current(told []setting.Assignment) (out []setting.Assignment) {
	for _, a := range told {
		now, _, exists, err := setting.Current(a)
		if exists {
			out = append(out, now)
		}
		if err != nil && p.gone == nil { // of scope Local, which the values are without
			p.gone = err
		}
	}
	return out
}

// CheckChanges reports every setting that a run would have when it goes on, otherwise than the
// checkpoint, and that cannot change, with both values: before anything else is looked at, as one
// change may make the others senseless. now are the values of scope setting.JobFixed. How many
// ranks there may be, and whether the data are the same, is for Run to say.
func (p Previous) CheckChanges(now setting.Values) error {
	known := maps.Clone(p.values)
	maps.DeleteFunc(known, func(path setting.Path, _ string) bool { _, ok := now[path]; return !ok || path == ranksPath })
	now = maps.Clone(now)
	maps.DeleteFunc(now, func(path setting.Path, _ string) bool { _, ok := known[path]; return !ok })
	if err := errors.Join(p.gone, unlike(now, known)); err != nil {
		return fmt.Errorf("resuming: %s is of a run with other settings: %w; leave these out, or name another folder", p.File, err)
	}
	return nil
}

// ranksPath may be another after a whole epoch.
const ranksPath setting.Path = "job.ranks"

// unlike reports every setting that a run has otherwise than a checkpoint.
func unlike(now, saved setting.Values) error {
	var faults setting.ErrorList
	for _, d := range now.Differences(saved) {
		faults = append(faults, setting.Errorf(d.Path, "%s: the checkpoint has %s", shown(d.Mine), shown(d.Theirs)))
	}
	return faults.Err()
}

// compareSettings tells what a run has otherwise than its checkpoint: changed, which it may have,
// such as "training.lr 0.1 instead of 0.05" (from there on it is another experiment, which the
// summary's reader must know of, but what was computed still means the same), and as an error what
// cannot change.
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
	if h.Position == 0 && r.cfg.Servers.geoSteps() == 0 { // what ranks keep of copies is their own
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
	if !r.ownLoop && h.More[moreData] != r.data.dataName() {
		err = errors.Join(err, fmt.Errorf("the data are others: their fingerprint is %s, the checkpoint has %s", r.data.dataName(), shown(h.More[moreData])))
	}
	return changed, err
}

// dataName is the beginning of the data's fingerprint.
func (d *runData) dataName() string { return nameOf(d.fingerprint) }

func nameOf(fingerprint [sha256.Size]byte) string { return fmt.Sprintf("%x", fingerprint[:8]) }
