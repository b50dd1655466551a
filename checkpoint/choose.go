package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Names of two checkpoints in a run's folder. They are no files, so that no name can refer to a
// missing checkpoint, and an object store needs no links.
const (
	nameBest = "best"
	nameLast = "last"
)

// Choose returns the checkpoint that a path means for a reader of weights, and the reason as text.
// A file means itself, for no reason. A run's folder means the best checkpoint if the run compares
// epochs (training.monitor), else the last one; if the best one's file is missing, the last one.
// FOLDER/best and FOLDER/last select one of them, unless a file or folder has this name. To
// continue a run always take the last one: [Locate].
//
// The last checkpoint of the folder names the best one, and is checked as by [Latest].
func Choose(path string) (file, why string, err error) {
	path = filepath.Clean(path)
	dir, name := path, ""
	info, err := os.Stat(path)
	switch base := filepath.Base(path); {
	case err == nil && info.Mode().IsRegular():
		return path, "", nil
	case errors.Is(err, fs.ErrNotExist) && (base == nameBest || base == nameLast):
		dir, name = filepath.Dir(path), base
	}
	last, err := Latest(dir)
	if err != nil {
		return "", "", err
	}
	f, err := Load(last)
	if err != nil {
		return "", "", err
	}
	step, best := f.Header.BestStep()
	if err := f.Close(); err != nil {
		return "", "", fmt.Errorf("checkpoint: %w", err)
	}
	file = PathOf(dir, step)
	_, missing := os.Stat(file)
	switch {
	case name == nameLast:
		return last, "the last one", nil
	case best != "" && file == last:
		return last, best + ", and the last one", nil
	case best != "" && missing == nil:
		return file, best, nil
	case name == nameBest && best == "":
		return "", "", fmt.Errorf("checkpoint: %s: the run compares no epochs (training.monitor): take %s", path, filepath.Join(dir, nameLast))
	case name == nameBest:
		return "", "", fmt.Errorf("checkpoint: %s is %s, %s: %w", path, best, filepath.Base(file), missing)
	case best != "":
		return last, fmt.Sprintf("the last one: %s, is missing (%s)", best, filepath.Base(file)), nil
	}
	return last, "the last one", nil
}

// BestStep returns the step of the best checkpoint until this one, and its description; "" if the
// run compares no epochs, or none has ended. Package train writes the entry.
func (h Header) BestStep() (step int64, text string) {
	var past struct {
		Best struct {
			Metric string  `json:"metric"`
			Value  float64 `json:"value"`
			Epoch  int     `json:"epoch"`
			Step   int64   `json:"step"`
		} `json:"best"`
	}
	if err := json.Unmarshal([]byte(h.More["past"]), &past); err != nil {
		return 0, "" // resuming reports the error
	}
	now, _ := h.Settings.Current() // settings that no longer exist are reported elsewhere
	if b := past.Best; b.Metric != "" && b.Metric == now["training.monitor"] {
		return b.Step, fmt.Sprintf("the best one by %s, %s of epoch %d", b.Metric, quantity.FloatDigits(b.Value, 6), b.Epoch)
	}
	return 0, ""
}
