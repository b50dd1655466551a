package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/models"
)

// free are the settings that a run may change when it goes on: from there on it is another experiment, which the
// summary's reader must know of, but what was computed still means the same.
var free = []string{"--lr", "--lr-steps", "--lr-cosine", "--lr-floor", "--warmup", "--epochs"} // never written

// differ reports every setting that the checkpoint has otherwise and that cannot change.
func differ(saved, own map[string]string) error {
	var errs []error
	for _, name := range unequal(saved, own) {
		if !slices.Contains(free, name) {
			errs = append(errs, otherThan(name, saved[name], own[name]))
		}
	}
	return errors.Join(errs...)
}

func otherThan(name, saved, own string) error {
	return fmt.Errorf("%s: the checkpoint has %s, this run %s", name, shown(saved), shown(own))
}

// changes tells of the free settings that a run has otherwise than its checkpoint, such as "--lr 0.1 instead of 0.05".
func changes(saved, own map[string]string) (out []string) {
	for _, name := range free {
		if was, known := saved[name]; known && was != own[name] { // older versions did not save all
			out = append(out, fmt.Sprintf("%s %s instead of %s", name, shown(own[name]), shown(was)))
		}
	}
	return out
}

// Previous is what a folder's last checkpoint says of how its run was started.
type Previous struct {
	// File is the checkpoint, "" where there is none.
	File string
	// Told is Checkpoint.Told of the run.
	Told map[string]string

	settings map[string]string
}

// FindPrevious reads what a folder's last checkpoint says of how its run was started. No folder and no checkpoint are no
// error, but a damaged one is, a *checkpoint.DamageError.
func FindPrevious(dir string) (Previous, error) {
	path, err := checkpoint.Latest(dir)
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
	p := Previous{File: path, settings: f.Header.Settings}
	if text, ok := f.Header.More[moreTold]; ok {
		if err = json.Unmarshal([]byte(text), &p.Told); err != nil {
			err = fmt.Errorf("%s: what the run was told cannot be read: %w", path, err)
		}
	}
	return p, errors.Join(err, f.Close())
}

// lateKnown are settings of which a flag alone does not tell whether they differ; Run does.
var lateKnown = []string{settingNP, "--stream", "--ps-click", "--warmup-density"} // never written

// Refuse reports all of what a program is told now that the run cannot change when it goes on, with both values:
// before anything else is looked at, as one change may make the others senseless. Run finds the rest. model is a name or alias,
// told are flags by their names, without those that have their usual value.
func (p Previous) Refuse(model string, told map[string]string) error {
	var errs []error
	if spec, err := models.Lookup(model); err == nil {
		model = spec.Name
	}
	if was := p.settings[settingModel]; p.File != "" && was != model {
		errs = append(errs, otherThan(settingModel, was, model))
	}
	for _, name := range slices.Sorted(maps.Keys(told)) {
		flag := "--" + name
		was, known := p.settings[flag]
		if first, ok := p.Told[name]; ok && (known || name == "mode") {
			was, known = first, true
		}
		if known && !same(was, told[name]) && !slices.Contains(free, flag) && !slices.Contains(lateKnown, flag) {
			errs = append(errs, otherThan(flag, was, told[name]))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("resuming: %s is of a run with other settings: %w; leave these out, or name another folder", p.File, errors.Join(errs...))
}

// same tells whether two texts are one value.
func same(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return a == b || errX == nil && errY == nil && x == y
}
