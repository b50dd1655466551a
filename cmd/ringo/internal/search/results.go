package search

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/runlog"
)

// Plan is the identity of a search, stored in the folder: another search cannot use the folder.
type Plan struct {
	Ringo string   `json:"ringo"` // version
	Model string   `json:"model"`
	Base  []string `json:"settings"` // settings of all trials, as PATH=VALUE
	Try   []string `json:"try"`      // the texts of --try
	// Random reports whether trials are drawn. The number of random trials may grow.
	Random bool `json:"random"`
}

// difference describes the first difference from the plan of a folder, or "".
func (p Plan) difference(stored Plan) string {
	for _, d := range [][3]string{
		{"the version of ringo", stored.Ringo, p.Ringo},
		{"the model", stored.Model, p.Model},
		{"--try", strings.Join(stored.Try, " --try "), strings.Join(p.Try, " --try ")},
		{"the kind of search", kind(stored.Random), kind(p.Random)},
	} {
		if d[1] != d[2] {
			return fmt.Sprintf("%s was %s, and is %s", d[0], d[1], d[2])
		}
	}
	for _, s := range stored.Base {
		if !slices.Contains(p.Base, s) {
			return fmt.Sprintf("the settings had %s", s)
		}
	}
	for _, s := range p.Base {
		if !slices.Contains(stored.Base, s) {
			return fmt.Sprintf("the settings have %s, which is new", s)
		}
	}
	return ""
}

func kind(random bool) string {
	if random {
		return "random, with --trials"
	}
	return "a grid, without --trials"
}

// Outcome is the end of a trial's process, as stored in result.json. The metric's values are in the
// trial's records.
type Outcome struct {
	Event  string `json:"event"` // "trial"
	Number int    `json:"trial"`
	// Settings are the trial's values by path.
	Settings map[string]string `json:"settings"`
	// Error is the reason of a failed trial, else "".
	Error string  `json:"error,omitempty"`
	WallS float64 `json:"wall_s"`
}

// Result is a finished trial with its evaluation. The values of a failed trial are zero.
type Result struct {
	Outcome
	// Metric is the name of the compared metric, and Value the value after Epoch epochs: the last
	// evaluation, or with training.monitor the best. Over several seeds both are means.
	Metric string  `json:"metric,omitempty"`
	Value  float64 `json:"value"`
	Epoch  float64 `json:"epoch"`

	log *runlog.Log
}

// Failed reports whether the trial has no value.
func (r Result) Failed() bool { return r.Error != "" }

// maxFile limits search.json and result.json, which may be damaged.
const maxFile = 4 << 20

// folder is a search's folder, locked by this process.
type folder struct {
	path string
	lock *dirlock.Lock
}

// openFolder creates or locks the folder of a search, and rejects the folder of another one.
func openFolder(path string, plan Plan) (*folder, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	file := filepath.Join(path, "search.json")
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	text, err := pathname.Read(file, maxFile)
	fresh := errors.Is(err, fs.ErrNotExist)
	if others := slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "LOCK" }); fresh && len(others) > 0 {
		return nil, fmt.Errorf("--out %s: the folder has files, and no search.json of a search: name a new or an empty folder", path)
	}
	lock, err := dirlock.Take(path)
	if err != nil {
		return nil, fmt.Errorf("--out %s: %w", path, err)
	}
	f := &folder{path, lock}
	if fresh {
		return f, f.orRelease(writeJSON(file, plan))
	}
	var stored Plan
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, f.orRelease(fmt.Errorf("--out: %s: %w: name another folder", file, err))
	}
	if d := plan.difference(stored); d != "" {
		return nil, f.orRelease(fmt.Errorf("--out %s: the folder belongs to another search: %s: name another folder, or repeat the search's command to continue it", path, d))
	}
	return f, nil
}

// orRelease unlocks the folder if err is not nil.
func (f *folder) orRelease(err error) error {
	if err != nil {
		err = errors.Join(err, f.lock.Release())
	}
	return err
}

// trial returns the folder of a trial.
func (f *folder) trial(number int) string {
	return filepath.Join(f.path, fmt.Sprintf("trial-%04d", number))
}

// records returns the file of a trial's --json records.
func (f *folder) records(number int) string { return filepath.Join(f.trial(number), "run.jsonl") }

// stored returns the result of a finished trial, and whether there is one.
func (f *folder) stored(t Trial, space Space) (r Result, done bool, err error) {
	file := filepath.Join(f.trial(t.Number), "result.json")
	text, err := pathname.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r.Outcome)
	}
	if err != nil {
		return r, false, fmt.Errorf("--out: %s: %w: delete the trial's folder to repeat the trial", file, err)
	}
	for i, a := range space {
		if r.Number != t.Number || r.Settings[string(a.Path)] != t.Values[i] {
			return r, false, fmt.Errorf("--out: %s: trial %d with %v, want trial %d with %s=%s: name another folder", file, r.Number, r.Settings, t.Number, a.Path, t.Values[i])
		}
	}
	if !r.Failed() {
		r.log, err = ReadRecords(f.records(t.Number))
	}
	return r, err == nil, err
}

func writeJSON(path string, v any) error {
	return dirlock.WriteFile(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	})
}

// ReadRecords reads a regular file of --json, up to the current end if the file is growing.
func ReadRecords(path string) (*runlog.Log, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return runlog.Read(path, f)
}

// measure reads a trial's value of a metric from its records. name "" is the model's main metric.
// best takes a run's best evaluation, not the last.
func (r *Result) measure(name string, best bool) (m runlog.Metric, err error) {
	runs := r.log.Runs()
	if len(runs) == 0 {
		return m, errors.New("the run has written no records")
	}
	groups := runlog.GroupsOf(runs)
	if m = runlog.Metrics(groups)[0]; name != "" {
		if m, err = runlog.MetricNamed(groups, name); err != nil {
			return m, fmt.Errorf("--metric %w", err)
		}
	}
	evaluation := (*runlog.Run).Latest
	if best {
		evaluation = (*runlog.Run).Best
	}
	var values, epochs []float64
	for _, run := range runs {
		v, epoch := evaluation(run, m)
		if math.IsNaN(v) {
			return m, fmt.Errorf("no evaluation has a value of %s", m.Name)
		}
		values, epochs = append(values, v), append(epochs, float64(epoch))
	}
	r.Metric, r.Value, r.Epoch = m.Name, runlog.SpreadOf(values).Mean, runlog.SpreadOf(epochs).Mean
	return m, nil
}

// Sort orders results from the best to the worst, failed ones last, equal ones by number.
func Sort(all []Result, m runlog.Metric) {
	cost := func(r Result) float64 {
		switch {
		case r.Failed():
			return math.Inf(1)
		case m.Lower:
			return r.Value
		}
		return -r.Value
	}
	slices.SortFunc(all, func(a, b Result) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(a.Number, b.Number))
	})
}
