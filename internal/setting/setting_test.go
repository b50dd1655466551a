package setting_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
)

// job is a configuration of several packages.
type job struct {
	Batch      int
	LR         float64
	Seed       uint64
	Durability string
	Fsync      bool
	Dir        string
	Memory     int64
	Beat       time.Duration
	Addrs      []string
}

// newJob is one with its defaults, and its table.
func newJob(t *testing.T) (*job, *setting.Table) {
	t.Helper()
	j := &job{Batch: 64, LR: 0.1, Seed: 1, Durability: "none", Beat: time.Second}
	table, err := setting.New(
		setting.Row{Path: "training.batch", Flag: "batch", Unit: "samples", About: "samples per rank and step", Value: setting.Int(&j.Batch)},
		setting.Row{Path: "training.lr", Flag: "lr", About: "learning rate", Scope: setting.JobMutable, Value: setting.Float(&j.LR)},
		setting.Row{Path: "training.seed", Value: setting.Int(&j.Seed)},
		setting.Row{Path: "servers.durability", Flag: "durability", Value: setting.Choice(&j.Durability, "none", "checkpoint", "wal")},
		setting.Row{Path: "servers.fsync", Flag: "fsync", Needs: setting.Equals("servers.durability", "wal"), Value: setting.Bool(&j.Fsync)},
		setting.Row{Path: "servers.dir", Scope: setting.PerProcess, Needs: setting.Any(setting.Enabled("servers.durability"), setting.Enabled("servers.memory")), Value: setting.Text(&j.Dir)},
		setting.Row{Path: "servers.memory", Scope: setting.PerProcess, Value: setting.Bytes(&j.Memory)},
		setting.Row{Path: "job.heartbeat", Scope: setting.PerProcess, Value: setting.Duration(&j.Beat)},
		setting.Row{Path: "servers.addresses", Scope: setting.PerProcess, Value: setting.List(&j.Addrs)},
	)
	if err != nil {
		t.Fatal(err)
	}
	return j, table
}

func TestApplySetsFieldsAndKeepsOrigins(t *testing.T) {
	j, table := newJob(t)
	faults := table.Apply(
		setting.Assignment{Path: "training.batch", Text: "32", Origin: "job.yaml:3"},
		setting.Assignment{Path: "servers.memory", Text: "4GiB", Origin: "--ps-memory"},
		setting.Assignment{Path: "job.heartbeat", Text: "250ms", Origin: "--heartbeat"},
		setting.Assignment{Path: "servers.addresses", Text: "a:1, b:2", Origin: "--set"},
		setting.Assignment{Path: "training.batch", Text: "16", Origin: "--batch"}, // what comes later wins
	)
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	if j.Batch != 16 || j.Memory != 4<<30 || j.Beat != 250*time.Millisecond || !slices.Equal(j.Addrs, []string{"a:1", "b:2"}) {
		t.Errorf("got %+v", *j)
	}
	if o := table.Origin("training.batch"); o != "--batch" {
		t.Errorf("the batch comes from %q", o)
	}
	if o, d := table.Origin("training.lr"), table.Default("training.lr"); o != "" || d != "0.1" {
		t.Errorf("the rate comes from %q, its default is %q", o, d)
	}
	if d := table.Default("training.batch"); d != "64" {
		t.Errorf("the default of the batch is %q once another value is set", d)
	}
}

func TestApplyReportsEveryFaultAndSetsTheRest(t *testing.T) {
	j, table := newJob(t)
	faults := table.Apply(
		setting.Assignment{Path: "training.bacth", Text: "32", Origin: "job.yaml:3"},
		setting.Assignment{Path: "training.batch", Text: "many", Origin: "--batch"},
		setting.Assignment{Path: "servers.durability", Text: "wla", Origin: "--durability"},
		setting.Assignment{Path: "training.lr", Text: "0.5", Origin: "--lr"},
		setting.Assignment{Path: "nothing.like.it", Text: "", Origin: "--set"},
	)
	want := []string{
		"training.bacth is no setting (did you mean \"training.batch\"?)",
		"training.batch many: want a whole number",
		"servers.durability wla: want one of none, checkpoint, wal (did you mean \"wal\"?)",
		"nothing.like.it is no setting",
	}
	if got := setting.Lines(faults.Err(), func(p setting.Path) string { return string(p) }); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if j.LR != 0.5 || j.Batch != 64 {
		t.Errorf("rate %v and batch %d: want the one that is right, and the other as it was", j.LR, j.Batch)
	}
	if faults[0].Origin != "job.yaml:3" {
		t.Errorf("the fault is at %q", faults[0].Origin)
	}
}

func TestLinesNameSettingsAsTheCallerDoes(t *testing.T) {
	_, table := newJob(t)
	table.Apply(setting.Assignment{Path: "servers.fsync", Text: "true", Origin: "--fsync"})
	flag := func(p setting.Path) string { return "--" + string(p[strings.LastIndexByte(string(p), '.')+1:]) }
	cause := fmt.Errorf("job: %w", setting.Errorf("servers.dir", "%q: %w", "/x", fs.ErrNotExist))
	got := setting.Lines(errors.Join(table.Idle().Err(), cause, errors.New("and another")), flag)
	want := []string{
		"--fsync has no effect: it needs --durability wal",
		`job: --dir "/x": file does not exist`,
		"and another",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	several := fmt.Errorf("joining: %w", errors.Join(setting.Errorf("a.x", "1"), errors.New("other"), setting.Errorf("a.y", "2 of %v", setting.Path("a.x"))))
	if got := setting.Lines(several, flag); !slices.Equal(got, []string{"joining: --x 1\nother\n--y 2 of --x"}) {
		t.Errorf("of several that one error wraps: %q", got)
	}
	if !errors.Is(cause, fs.ErrNotExist) {
		t.Error("the cause is not to be found in the fault")
	}
	advice := setting.Errorf("", "leave out bad ones with %v", setting.Path("data.skip-bad"))
	both := fmt.Errorf("job: %w, and not one; %w", cause, advice)
	if got := setting.Lines(both, flag); !slices.Equal(got, []string{`job: job: --dir "/x": file does not exist, and not one; leave out bad ones with --skip-bad`}) {
		t.Errorf("got %q", got)
	}
	if setting.Lines(nil, flag) != nil || (setting.ErrorList{}).Err() != nil {
		t.Error("no faults are no error")
	}
}

func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		given map[setting.Path]string
		idle  string // "" for none
	}{
		{map[setting.Path]string{"servers.fsync": "true", "servers.durability": "wal"}, ""},
		{map[setting.Path]string{"servers.fsync": "false"}, "servers.fsync has no effect: it needs servers.durability wal"}, // said, though it changes nothing
		{map[setting.Path]string{"servers.dir": "x", "servers.memory": "1MiB"}, ""},
		{map[setting.Path]string{"servers.dir": "x", "servers.durability": "checkpoint"}, ""},
		{map[setting.Path]string{"servers.dir": "x", "servers.memory": "0"}, "servers.dir has no effect: it needs servers.durability or servers.memory"},
	} {
		_, table := newJob(t)
		for p, text := range c.given {
			if err := table.Apply(setting.Assignment{Path: p, Text: text, Origin: "test"}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		if err := table.Idle().Err(); err != nil {
			got = err.Error()
		}
		if got != c.idle {
			t.Errorf("%v: got %q, want %q", c.given, got, c.idle)
		}
	}
}

// A program's configuration, whose values have no origins: what differs from all usual ones was given.
func TestIdleByValue(t *testing.T) {
	rows := func(on bool, n, far int) []setting.Row {
		return []setting.Row{
			{Path: "on", Value: setting.Bool(&on)},
			{Path: "n", Needs: setting.Enabled("on"), Value: setting.Int(&n)},
			{Path: "far", Needs: setting.Equals("elsewhere", "x"), Value: setting.Int(&far)}, // of another table
		}
	}
	for _, c := range []struct {
		on   bool
		n    int
		idle bool
	}{{false, 0, false}, {false, 8, false}, {false, 3, true}, {true, 3, false}} {
		faults, err := setting.Unused(append(rows(c.on, c.n, 9), setting.Row{Path: "more", Value: setting.Int(new(int))}), rows(false, 0, 0), rows(true, 8, 0))
		if err != nil || (faults != nil) != c.idle {
			t.Errorf("%+v: %v, %v", c, faults, err)
		}
	}
	if _, err := setting.Unused([]setting.Row{{}}); err == nil {
		t.Error("rows that are no table")
	}
}

// Each pair of joined needs against the truth table.
func TestJoinedNeeds(t *testing.T) {
	for i := range 4 {
		x, y := i&1 != 0, i&2 != 0
		for _, c := range []struct {
			name string
			need setting.Condition
			met  bool
		}{
			{"all", setting.All(setting.Enabled("x"), setting.Enabled("y")), x && y},
			{"any", setting.Any(setting.Enabled("x"), setting.Enabled("y")), x || y},
		} {
			z := false
			table, err := setting.New(setting.Row{Path: "x", Value: setting.Bool(&x)}, setting.Row{Path: "y", Value: setting.Bool(&y)},
				setting.Row{Path: "z", Needs: c.need, Value: setting.Bool(&z)})
			if err != nil {
				t.Fatal(err)
			}
			table.Apply(setting.Assignment{Path: "z", Text: "true", Origin: "test"})
			if idle := table.Idle() != nil; idle == c.met {
				t.Errorf("%s of %v and %v: idle %v", c.name, x, y, idle)
			}
		}
	}
}

func TestNewRefusesRowsThatCollide(t *testing.T) {
	a, b := 1, 2
	for name, rows := range map[string][]setting.Row{
		"one path":        {{Path: "a", Value: setting.Int(&a)}, {Path: "a", Value: setting.Int(&b)}},
		"one flag":        {{Path: "a", Flag: "f", Value: setting.Int(&a)}, {Path: "b", Flag: "f", Value: setting.Int(&b)}},
		"no path":         {{Value: setting.Int(&a)}},
		"without a value": {{Path: "a"}},
	} {
		if _, err := setting.New(rows...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCompareProcesses(t *testing.T) {
	_, one := newJob(t)
	_, two := newJob(t)
	agreed := func(t *setting.Table) setting.Values { return t.Values(setting.JobFixed, setting.JobMutable) }
	two.Apply(setting.Assignment{Path: "servers.dir", Text: "elsewhere", Origin: "test"}) // each has its own
	if agreed(one).Hash() != agreed(two).Hash() {
		t.Error("a setting of one process makes the hashes differ")
	}
	two.Apply(setting.Assignment{Path: "training.lr", Text: "0.2", Origin: "test"}, setting.Assignment{Path: "training.seed", Text: "7", Origin: "test"})
	if agreed(one).Hash() == agreed(two).Hash() {
		t.Error("the hashes are equal, the rates are not")
	}
	want := []setting.Difference{{"training.lr", "0.1", "0.2"}, {"training.seed", "1", "7"}}
	if got := agreed(one).Differences(agreed(two)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := one.Values(setting.JobFixed).Differences(two.Values(setting.JobFixed)); len(got) != 1 || got[0].Path != "training.seed" {
		t.Errorf("of what a resumed run must have as it was: %v", got)
	}
	lacks := setting.Values{"training.seed": "1"}
	if got := lacks.Differences(setting.Values{"training.seed": "1", "new": "x"}); len(got) != 1 || got[0].Theirs != "x" {
		t.Errorf("a setting that one lacks: %v", got)
	}
}

// Each row of a table alone makes the hash another, unless it is of one process.
func TestEveryRowCounts(t *testing.T) {
	other := map[setting.Path]string{
		"training.batch": "1", "training.lr": "3", "training.seed": "9", "servers.durability": "wal", "servers.fsync": "true",
		"servers.dir": "d", "servers.memory": "1", "job.heartbeat": "1h", "servers.addresses": "a",
	}
	_, plain := newJob(t)
	for _, r := range plain.Rows() {
		_, table := newJob(t)
		if err := table.Apply(setting.Assignment{Path: r.Path, Text: other[r.Path], Origin: "test"}).Err(); err != nil {
			t.Fatal(err)
		}
		differs := table.Values(setting.JobFixed, setting.JobMutable).Hash() != plain.Values(setting.JobFixed, setting.JobMutable).Hash()
		if differs == (r.Scope == setting.PerProcess) {
			t.Errorf("%s, of %v: hashes differ: %v", r.Path, r.Scope, differs)
		}
	}
}

// What has no effect is told with what is missing, and not with what is there.
func TestIdleSettingsSayWhatTheyLack(t *testing.T) {
	need := setting.All(setting.Enabled("x"), setting.Any(setting.Enabled("y"), setting.Equals("x", "3")), setting.NotEquals("w", "a", "b"))
	for _, c := range []struct{ x, y, w, want string }{
		{"", "", "a", "z has no effect: it needs x and y or x 3 and w other than a and b"},
		{"1", "", "c", "z has no effect: it needs y or x 3"},
		{"1", "1", "b", "z has no effect: it needs w other than a and b"},
		{"3", "", "", ""},
	} {
		z := 1
		table, err := setting.New(setting.Row{Path: "x", Value: setting.Text(&c.x)}, setting.Row{Path: "y", Value: setting.Text(&c.y)},
			setting.Row{Path: "w", Value: setting.Text(&c.w)}, setting.Row{Path: "z", Needs: need, Value: setting.Int(&z)})
		if err != nil {
			t.Fatal(err)
		}
		table.Apply(setting.Assignment{Path: "z", Text: "2", Origin: "test"})
		got := ""
		if err := table.Idle().Err(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("x %q, y %q, w %q: got %q, want %q", c.x, c.y, c.w, got, c.want)
		}
	}
}
