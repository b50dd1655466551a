package job_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/job/jobfile"
	"github.com/ringo-ml/ringo/internal/setting"
)

// said makes assignments of "path=text" words.
func said(words ...string) (out []setting.Assignment) {
	for _, w := range words {
		path, text, _ := strings.Cut(w, "=")
		out = append(out, setting.Assignment{Path: setting.Path(path), Text: text, Origin: "test"})
	}
	return out
}

func newJob(t *testing.T, words ...string) (*job.Spec, *setting.Table) {
	t.Helper()
	s, table, err := job.New(said(words...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s, table
}

// A model's defaults come first, then those of another optimizer, then what is said, wherever it stands.
func TestDefaultsAreTheModelsAndThenTheOptimizers(t *testing.T) {
	usual, _ := newJob(t, "model=mnist")
	other, table := newJob(t, "training.weight-decay=0.5", "training.optimizer=adamw", "model=mnist")
	if usual.Train.Optimizer == "adamw" || other.Train.LR == usual.Train.LR || other.Train.WeightDecay != 0.5 {
		t.Errorf("got rates %v and %v, decay %v", usual.Train.LR, other.Train.LR, other.Train.WeightDecay)
	}
	if other.Train.Batch != usual.Train.Batch || table.Origin("training.batch") != "" {
		t.Errorf("batch %d, of the model %d", other.Train.Batch, usual.Train.Batch)
	}
}

// Every row is in a group that is shown, has a sentence, and a value that reads what it writes.
func TestRowsAreWhole(t *testing.T) {
	_, table := newJob(t)
	var groups []string
	for _, g := range job.Groups() {
		groups = append(groups, g.Name)
	}
	for _, r := range table.Rows() {
		if !slices.Contains(groups, job.GroupOf(r.Path)) {
			t.Errorf("%s is in no group that is shown", r.Path)
		}
		if r.About == "" || strings.HasSuffix(r.About, ".") || strings.Contains(r.About, "--") || strings.Contains(r.About, "`") && r.Path != "model" {
			t.Errorf("%s: %q: want one sentence without a full stop, and no flags", r.Path, r.About)
		}
		if err := r.Value.Set(table.Default(r.Path)); err != nil {
			t.Errorf("%s does not take its default, %q: %v", r.Path, table.Default(r.Path), err)
		}
	}
}

func TestPresetsAreJobs(t *testing.T) {
	modes := map[job.Sync]bool{}
	for _, name := range job.Presets() {
		text, ok := job.Preset(name)
		given, err := jobfile.Read(name, strings.NewReader(text))
		if !ok || err != nil {
			t.Fatal(name, err)
		}
		s, table, err := job.New(given...)
		if err == nil {
			err = s.Validate()
		}
		if idle := s.Unused(table).Err(); err != nil || idle != nil {
			t.Errorf("%s: %v, %v", name, err, idle)
		}
		if !strings.HasPrefix(text, "# ") {
			t.Errorf("%s does not begin with what it is", name)
		}
		modes[s.Sync] = true
	}
	for _, sync := range job.Syncs() {
		if !modes[sync] {
			t.Errorf("there is no preset of %s", sync)
		}
	}
	if _, ok := job.Preset("nothing"); ok {
		t.Error("an unknown preset is there")
	}
}

// What a job has decided, written and read, is the same job; and again.
func TestResolvedRoundTrip(t *testing.T) {
	for _, words := range [][]string{
		{"model=mnist", "data.dir=synthetic"},
		{"model=mnist", "data.dir=synthetic", "training.optimizer=adamw", "training.warmup=2epochs", "training.lr-schedule=1:0.5,2:0.1", "job.ranks=3", "job.transport=tcp"},
		{"model=cifar-resnet20", "data.dir=synthetic", "exchange.strategy=dlgs", "exchange.dlgs-every=7", "exchange.warmup-density=0.25,0.1", "training.momentum=0"},
		{"model=ctr-dnn", "data.dir=synthetic", "sync=geo", "servers.count=3", "ps.wire-dtype=fp16", "training.dropout=0"},
		{"model=ctr-dnn", "data.dir=synthetic", "sync=ssp", "ps.staleness=4", "ps.admission=count:3,share:0.5", "ps.durability=wal-fsync", "ps.dir=x y"},
		{"model=mnist", "data.dir=synthetic", "sync=aggregate", "servers.count=2", "output.json=x", "job.rank=0", "job.rendezvous=h:1"},
	} {
		s, table := newJob(t, words...)
		var b bytes.Buffer
		if err := jobfile.Write(&b, s.Resolved(table)...); err != nil {
			t.Fatal(err)
		}
		given, err := jobfile.Read("job.yaml", bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		again, table2, err := job.New(given...)
		if err != nil || again.Validate() != nil || again.Unused(table2) != nil {
			t.Errorf("%q: %v, %v, %v of\n%s", words, err, again.Validate(), again.Unused(table2), b.String())
			continue
		}
		scopes := []setting.Scope{setting.JobFixed, setting.JobMutable}
		var lasting []setting.Difference
		for _, d := range table.Values(scopes...).Differences(table2.Values(scopes...)) {
			if r, _ := table.Row(d.Path); !r.OneStart {
				lasting = append(lasting, d)
			}
		}
		if len(lasting) > 0 {
			t.Errorf("%q comes back with %v", words, lasting)
		}
		var b2 bytes.Buffer
		if err := jobfile.Write(&b2, again.Resolved(table2)...); err != nil || b2.String() != b.String() {
			t.Errorf("%q is written\n%s\nand then, read again,\n%s\n%v", words, b.String(), b2.String(), err)
		}
	}
}

func TestLaunchedRoundTrip(t *testing.T) {
	l := job.LaunchSpec{Command: "ringo train", Settings: said("model=mnist", "ps.dir=a\nb"), Start: &job.Attempt{Number: 2, Dir: "d", Parts: []uint64{1, 9}}}
	text, err := l.Text()
	if err != nil {
		t.Fatal(err)
	}
	got, err := job.ParseLaunched(text)
	if err != nil || got.Command != l.Command || !slices.Equal(got.Settings, l.Settings) || got.Start == nil || !slices.Equal(got.Start.Parts, l.Start.Parts) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := (job.LaunchSpec{Command: strings.Repeat("x", 200<<10)}).Text(); err == nil {
		t.Error("more than a variable can hold: no error")
	}
	for _, bad := range []string{"", "{", `{"Other":1}`, "[]"} {
		if _, err := job.ParseLaunched(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func FuzzParseLaunched(f *testing.F) {
	f.Add(`{"command":"ringo train","settings":[{"Path":"model","Text":"mnist","Origin":"x"}],"attempt":{"number":1}}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := job.ParseLaunched(text)
		if err != nil {
			return
		}
		if _, _, err := job.New(l.Settings...); err == nil {
			return
		}
	})
}

// Each fault by its path, with both values, all of them at once.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  []string
	}{
		{[]string{"job.ranks=0", "job.timeout=0s"}, []string{"job.ranks 0: want 1 to 1024", "job.timeout 0s: want a positive time"}},
		{[]string{"job.ranks=2", "job.rank=2", "job.rendezvous=h"}, []string{"job.rank 2: want 0 to 1, since job.ranks is 2", `job.rendezvous "h": want HOST:PORT`}},
		{[]string{"job.rank=0"}, []string{"job.rank 0 needs job.rendezvous: the HOST:PORT"}},
		{[]string{"training.seeds=0"}, []string{"training.seeds 0: want 1 to 1000"}},
		{[]string{"model=ctr-dnn", "sync=async", "training.seeds=2"}, []string{"training.seeds 2 with sync async: servers hold the parameters of one run"}},
		{[]string{"training.seeds=2", "checkpoint.dir=x"}, []string{`training.seeds 2 with checkpoint.dir "x"`}},
		{[]string{"training.folds=1"}, []string{"training.folds 1: want 2 to 1000, or 0"}},
		{[]string{"training.folds=3", "training.seeds=2"}, []string{"training.folds 3 with training.seeds 2: vary one of the two"}},
		{[]string{"model=ctr-dnn", "sync=async", "training.folds=3"}, []string{"training.folds 3 with sync async: servers keep the parameters of one run"}},
		{[]string{"training.folds=3", "checkpoint.dir=x"}, []string{`training.folds 3 with checkpoint.dir "x"`}},
		{[]string{"training.folds=3", "data.eval-split=0.5"}, []string{"training.folds 3 with data.eval-split 0.5: each part is held out once"}},
		{[]string{"model=ctr-dnn", "sync=async", "job.transport=mem"}, []string{"sync async needs ranks that are processes: leave job.transport mem out"}},
		{[]string{"model=ctr-dnn", "sync=async", "checkpoint.dir=x", "ps.dir=y", "ps.durability=checkpoint", "ps.failure-policy=continue"},
			[]string{`ps.dir "y" with checkpoint.dir "x"`, "ps.durability checkpoint with checkpoint.dir", "checkpoint.dir with ps.failure-policy continue"}},
		{[]string{"job.collective-algorithm=exchange", "job.ranks=3"}, []string{"job.collective-algorithm exchange is for two ranks, job.ranks is 3"}},
		{[]string{"sync=async", "ps.addresses=a", "servers.count=2000"},
			[]string{`ps.addresses "a": want HOST:PORT`, "servers.count 2000: want 1 to 1024"}},
	} {
		s, _ := newJob(t, append([]string{"model=mnist", "data.dir=synthetic"}, c.words...)...)
		err := s.Validate()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: want %q in\n%v", c.words, want, err)
			}
		}
	}
}

func TestIdle(t *testing.T) {
	for _, c := range []struct{ words, want []string }{
		{[]string{"servers.count=2"}, []string{"servers.count has no effect: it needs sync aggregate or bsp or ssp or async or geo"}},
		{[]string{"network.interface=lo"}, []string{"network.interface has no effect: ranks that are goroutines of one process make no connections"}},
		{[]string{"job.ranks=2", "network.interface=lo"}, nil},
		{[]string{"sync=aggregate", "exchange.strategy=topk", "exchange.limit-sum=true"}, []string{"exchange.limit-sum has no effect: it needs sync allreduce"}},
		{[]string{"model=ctr-dnn", "sync=async", "ps.failure-policy=continue", "job.collective-algorithm=ring"}, []string{"job.collective-algorithm has no effect: with ps.failure-policy continue"}},
	} {
		s, table := newJob(t, append([]string{"model=mnist", "data.dir=synthetic"}, c.words...)...)
		got := s.Unused(table)
		if len(got) != len(c.want) {
			t.Errorf("%q: got %v, want %q", c.words, got.Err(), c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i].Error(), want) || got[i].Origin != "test" {
				t.Errorf("%q: got %q of %q, want %q", c.words, got[i].Error(), got[i].Origin, want)
			}
		}
	}
}

// Heter-trainers need servers in step: who says nothing of it has them, and who says otherwise is told.
func TestHeterImpliesSync(t *testing.T) {
	for _, c := range []struct {
		given []string
		want  job.Sync
		fault string
	}{
		{[]string{"heter.count=1"}, job.BSP, ""},
		{[]string{"heter.count=0"}, job.AllReduce, "heter.count has no effect: it needs sync bsp or ssp or async or geo"},
		{[]string{"heter.count=2", "heter.count=0"}, job.AllReduce, "heter.count has no effect: it needs sync bsp"},
		{[]string{"sync=async", "heter.count=1"}, job.Async, ""},
		{[]string{"sync=aggregate", "heter.count=1"}, job.Aggregate, "heter.count has no effect: it needs sync bsp"},
	} {
		given := []setting.Assignment{{Path: "model", Text: "dlrm"}}
		for _, text := range c.given {
			path, value, _ := strings.Cut(text, "=")
			given = append(given, setting.Assignment{Path: setting.Path(path), Text: value, Origin: "--" + setting.Origin(path)})
		}
		s, table, err := job.New(given...)
		if err != nil || s.Sync != c.want {
			t.Errorf("%q: sync %s, %v, want %s", c.given, s.Sync, err, c.want)
			continue
		}
		if origin := table.Origin("sync"); c.want == job.BSP && (origin != "--heter.count" || s.ParameterServers() != 1 || s.Train.Servers.Consistency != "bsp") {
			t.Errorf("%q: sync of %q, %d servers, %q", c.given, origin, s.ParameterServers(), s.Train.Servers.Consistency)
		}
		if err := s.Unused(table).Err(); (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: %v", c.given, err)
		}
	}
}

// There are as many servers and heter-trainers as have addresses, unless their number is given.
func TestCountedByAddresses(t *testing.T) {
	given := func(more ...setting.Assignment) []setting.Assignment {
		return append([]setting.Assignment{
			{Path: "model", Text: "dlrm"}, {Path: "sync", Text: "bsp"}, {Path: "data.dir", Text: "synthetic"}, {Path: "job.ranks", Text: "2"}, {Path: "job.rank", Text: "0"},
			{Path: "job.rendezvous", Text: "h:1"}, {Path: "ps.addresses", Text: "h:2,h:3"}, {Path: "heter.addresses", Text: "h:4,h:5,h:6"},
		}, more...)
	}
	s, _, err := job.New(given()...)
	if err != nil || s.Servers.Count != 2 || s.Train.Heter.Count != 3 || s.Validate() != nil {
		t.Errorf("%v, %v: %d servers, %d heter-trainers", err, s.Validate(), s.Servers.Count, s.Train.Heter.Count)
	}
	s, _, err = job.New(given(setting.Assignment{Path: "servers.count", Text: "1"})...)
	if err != nil || s.Validate() == nil || !strings.Contains(s.Validate().Error(), "has 2 addresses, but servers.count is 1") {
		t.Errorf("two addresses for one server: %v, %v", err, s.Validate())
	}
}
