package runlog

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// RunSet is a set of runs that differ in the seed alone.
type RunSet struct {
	// Label is unique among the sets: the settings that differ, or the file's name.
	Label string
	Runs  []*Run
}

// seeds are the settings that can differ within a RunSet.
var seeds = []string{"training.seed", "training.seeds"}

// settings returns a run's settings without its seed.
func (r *Run) settings() map[string]string {
	out := map[string]string{}
	if r.Job == nil {
		return out
	}
	maps.Copy(out, r.Job.Settings)
	for _, path := range seeds {
		delete(out, path)
	}
	return out
}

// machine returns the machine of a run, as names and values.
func (r *Run) machine() [][2]string {
	i := r.Info
	out := [][2]string{}
	add := func(name, value string) { out = append(out, [2]string{name, value}) }
	if r.Job != nil {
		m := r.Job.Machine
		add("ringo", r.Job.Ringo)
		add("host", m.Host)
		add("system", m.System)
		add("processor", m.CPU)
		add("hardware threads", fmt.Sprint(m.CPUs))
		add("memory", quantity.Bytes(m.MemoryBytes))
		add("Go", m.Go)
	}
	if !r.older() {
		add("kernels", i.Kernels)
		add("ranks", fmt.Sprint(i.NP))
		add("threads of a rank", fmt.Sprint(i.Threads))
		add("servers", fmt.Sprint(i.Servers))
		add("transport", i.Transport)
		add("placement", i.Placement)
	}
	return out
}

// key returns equal text for runs that differ in the seed alone, on machines of one kind.
func (r *Run) key() string {
	if r.Job == nil { // no settings are recorded: the runs of a file belong together
		return r.Source
	}
	var b strings.Builder
	all := r.settings()
	for _, path := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%q=%q ", path, all[path])
	}
	for _, m := range r.machine() {
		if m[0] != "host" {
			fmt.Fprintf(&b, "%q=%q ", m[0], m[1])
		}
	}
	return b.String()
}

// GroupsOf groups runs that differ in the seed alone, in order of first appearance. Settings,
// version, number of ranks and kind of machine must agree: otherwise unrelated rates and times
// would be averaged. The host's name can differ.
func GroupsOf(all []*Run) []RunSet {
	var out []RunSet
	at := map[string]int{}
	for _, r := range all {
		i, known := at[r.key()]
		if !known {
			i = len(out)
			at[r.key()] = i
			out = append(out, RunSet{})
		}
		out[i].Runs = append(out[i].Runs, r)
	}
	label(out)
	return out
}

// label assigns a unique label to each group.
func label(all []RunSet) {
	differ := Differences(all)
	const most = 3 // more make labels too long for a legend
	for i := range all {
		var parts []string
		for _, d := range differ {
			_, short, _ := strings.Cut(d.Name, ".")
			if v := d.Values[i]; len(differ) <= most && v != "" {
				parts = append(parts, cmp.Or(short, d.Name)+"="+v)
			}
		}
		if all[i].Label = strings.Join(parts, " "); len(parts) == 0 {
			name := filepath.Base(all[i].Runs[0].Source)
			all[i].Label = strings.TrimSuffix(name, filepath.Ext(name))
		}
	}
	seen := map[string]int{}
	for i := range all {
		if seen[all[i].Label]++; seen[all[i].Label] > 1 {
			all[i].Label = fmt.Sprintf("%s (%d)", all[i].Label, seen[all[i].Label])
		}
	}
}

// Row is a row of a report's table: a name, such as a setting's path, and a value per group. An
// unknown value is "".
type Row struct {
	Name   string
	Values []string // one per group
}

// Differences returns the settings that differ among groups, sorted; an unknown value is "".
func Differences(all []RunSet) []Row {
	byGroup := make([]map[string]string, len(all))
	paths := map[string]bool{}
	for i, g := range all {
		byGroup[i] = g.Runs[0].settings()
		for path := range byGroup[i] {
			paths[path] = true
		}
	}
	return rows(slices.Sorted(maps.Keys(paths)), byGroup, true)
}

// Machines returns the machines of the groups' runs.
func Machines(all []RunSet) []Row {
	byGroup := make([]map[string]string, len(all))
	var names []string
	for i, g := range all {
		byGroup[i] = map[string]string{}
		for _, m := range g.Runs[0].machine() {
			byGroup[i][m[0]] = m[1]
			if !slices.Contains(names, m[0]) {
				names = append(names, m[0])
			}
		}
	}
	return rows(names, byGroup, false)
}

// rows returns the values of names by group, in that order. differing omits rows with equal values.
func rows(names []string, byGroup []map[string]string, differing bool) (out []Row) {
	for _, name := range names {
		row := Row{Name: name}
		same := true
		for i := range byGroup {
			row.Values = append(row.Values, byGroup[i][name])
			same = same && byGroup[i][name] == byGroup[0][name]
		}
		if !differing || !same {
			out = append(out, row)
		}
	}
	return out
}

// Spread summarizes a value over several runs: mean, sample standard deviation, minimum and
// maximum. N is the number of runs with the value. If N is 0, the mean, minimum and maximum are
// NaN.
type Spread struct {
	Mean, SD, Low, High float64
	N                   int
}

// SpreadOf returns the spread of some values. NaN values are ignored.
func SpreadOf(values []float64) Spread {
	values = slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(values) == 0 {
		return Spread{Mean: math.NaN(), Low: math.NaN(), High: math.NaN()}
	}
	out := Spread{N: len(values), Low: slices.Min(values), High: slices.Max(values)}
	for _, v := range values {
		out.Mean += v
	}
	out.Mean /= float64(out.N)
	for _, v := range values {
		out.SD += (v - out.Mean) * (v - out.Mean) / max(1, float64(out.N-1))
	}
	out.SD = math.Sqrt(out.SD)
	return out
}

// Point is a point of a curve: the runs of a group with a record there.
type Point struct {
	Done  int64
	Epoch int
	WallS float64 // mean over these runs
	Spread
}

// Curve returns a field of the group's epoch or step records, at each step where any run has a
// value.
func (g RunSet) Curve(table func(*Run) *Table, field string) []Point {
	type place struct {
		values, walls []float64
		epoch         int
	}
	// Runs of one group are evaluated after the same steps, but some can end earlier: a place has
	// only the runs with a value.
	at := map[int64]*place{}
	for _, r := range g.Runs {
		t := table(r)
		for i, v := range t.Column(field) {
			if math.IsNaN(v) {
				continue
			}
			p := at[t.Done[i]]
			if p == nil {
				p = &place{epoch: t.Epoch[i]}
				at[t.Done[i]] = p
			}
			p.values, p.walls = append(p.values, v), append(p.walls, t.WallS[i])
		}
	}
	out := make([]Point, 0, len(at))
	for _, done := range slices.Sorted(maps.Keys(at)) {
		p := at[done]
		out = append(out, Point{done, p.epoch, SpreadOf(p.walls).Mean, SpreadOf(p.values)})
	}
	return out
}

// OfSteps returns a run's table of steps, for Curve.
func OfSteps(r *Run) *Table { return &r.Steps }

// OfEpochs returns a run's table of epochs, for Curve.
func OfEpochs(r *Run) *Table { return &r.Epochs }

// Thin reduces points to at most n. Each result merges neighbours: the mean of their means, and
// their whole range.
func Thin(points []Point, n int) []Point {
	if len(points) <= n {
		return points
	}
	out := make([]Point, 0, n)
	for i := range n {
		some := points[i*len(points)/n : (i+1)*len(points)/n]
		p := some[len(some)-1] // the last neighbour, so that the curve ends where the run ends
		p.Mean = 0
		for _, s := range some {
			p.Mean += s.Mean / float64(len(some))
			p.Low, p.High = min(p.Low, s.Low), max(p.High, s.High)
		}
		out = append(out, p)
	}
	return out
}
