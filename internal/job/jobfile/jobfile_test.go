package jobfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/job/jobfile"
	"github.com/ringo-ml/ringo/internal/setting"
)

func TestRead(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"groups": {"model: mnist\ntraining:\n  batch: 32\n  lr: 0.10\nservers:\n  durability: wal\n",
			"model=mnist@1 training.batch=32@3 training.lr=0.10@4 servers.durability=wal@6"},
		"paths, and text as it stands": {"training.batch: 0x10\nservers: {dir: \"a, b\", fsync: yes, disk: 1_000}\n",
			"training.batch=0x10@1 servers.dir=a, b@2 servers.fsync=yes@2 servers.disk=1_000@2"},
		"lists":         {"servers:\n  addresses:\n    - a:1\n    - b:2\n  none: []\n", "servers.addresses=a:1,b:2@2 servers.none=@5"},
		"empty":         {"", ""},
		"only comments": {"# nothing\n", ""},
		"empty text":    {"dir: \"\"\n", "dir=@1"},
	} {
		given, err := jobfile.Read("job.yaml", strings.NewReader(c.text))
		var got []string
		for _, a := range given {
			got = append(got, fmt.Sprintf("%s=%s@%s", a.Path, a.Text, strings.TrimPrefix(string(a.Origin), "job.yaml:")))
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, %v\nwant %q", name, got, err, c.want)
		}
	}
}

// Each fault with its file and line, and all of them at once.
func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"twice":           {"training:\n  batch: 32\n  lr: 1\n  batch: 64\n", "job.yaml:4: training.batch is given twice: first on line 2"},
		"twice, by path":  {"training:\n  batch: 32\ntraining.batch: 64\n", "job.yaml:3: training.batch is given twice: first on line 2"},
		"no value":        {"training:\n  batch:\n", "job.yaml:2: training.batch: the value is missing; an empty one is written \"\""},
		"a list":          {"- a\n- b\n", "job.yaml:1: the file: want settings as NAME: VALUE"},
		"a word":          {"mnist\n", "job.yaml:1: the file: want settings as NAME: VALUE"},
		"alias":           {"a: &x 1\nb: *x\n", "job.yaml:1: a: anchors and aliases are not read: write the value out\njob.yaml:2: b: anchors and aliases are not read: write the value out"},
		"merge":           {"a: {b: 1}\n<<: {c: 1}\n", "job.yaml:2: the file: want the name of a setting or a group"},
		"tag":             {"a: !!int 3\n", "job.yaml:1: a: !!int: want a plain value without a tag"},
		"nested list":     {"a: [1, [2]]\n", "job.yaml:1: a: want a list of values without commas"},
		"second document": {"a: 1\n---\nb: 2\n", "job.yaml:2: a second document: want one, without a line of ---"},
		"deep":            {strings.Repeat("{a: ", 9) + "1" + strings.Repeat("}", 9), "job.yaml:1: a.a.a.a.a.a.a.a: groups lie more than 8 deep"},
		"no YAML":         {"a: [1\nb: 2\n", ""},
		"tabs":            {"a:\n\tb: 1\n", ""},
		"long":            {strings.Repeat("# a comment that does not end\n", 40000), "job.yaml: it is longer than 1048576 bytes: is it a job file?"},
	} {
		given, err := jobfile.Read("job.yaml", strings.NewReader(c.text))
		var where *jobfile.Error
		if err == nil || given != nil || !errors.As(err, &where) {
			t.Errorf("%s: got %v, %v, want an error with its place", name, given, err)
			continue
		}
		if c.want != "" && err.Error() != c.want {
			t.Errorf("%s: got\n%v\nwant\n%s", name, err, c.want)
		}
		if !strings.HasPrefix(err.Error(), "job.yaml:") || strings.Contains(err.Error(), "yaml: line 0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"a: 1", "a: {b: [1, 2]}", "a: &x 1\nb: *x", "? [a]\n: b", "--- a\n--- b", "a: !!binary x", "\x00", "%YAML 1.1\n---\na: 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		given, err := jobfile.Read("x", bytes.NewReader(text))
		seen := map[setting.Path]bool{}
		for _, a := range given {
			if seen[a.Path] || a.Path == "" || a.Origin == "" || err != nil {
				t.Fatalf("%q gives %v, %v", text, given, err)
			}
			seen[a.Path] = true
		}
	})
}
