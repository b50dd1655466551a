package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/server/engine"
)

// saveStart writes a checkpoint whose file says something of servers; "": nothing.
func saveStart(t *testing.T, dir string, step int64, says string) {
	t.Helper()
	h := checkpoint.Header{Step: step, More: map[string]string{}}
	if says != "" {
		h.More[moreServers] = says
	}
	if _, err := checkpoint.Save(dir, checkpoint.State{Header: h}); err != nil {
		t.Fatal(err)
	}
}

// The last checkpoint tells its servers' parts, and folders stay as long as a checkpoint needs them.
func TestStarts(t *testing.T) {
	dir := t.TempDir()
	if _, _, _, err := LastServerParts(dir); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("none: %v", err)
	}
	for _, name := range []string{"start-1", "start-2", "start-3", "start-12", "start-013", "start-x", "start--1", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "server-0"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	starts := func(want ...int) {
		t.Helper()
		if got, err := Attempts(dir); err != nil || !slices.Equal(got, want) {
			t.Errorf("starts %v, %v, want %v", got, err, want)
		}
	}
	starts(1, 2, 3, 12)
	saveStart(t, dir, 10, `{"start": 1, "numbers": [4]}`)
	saveStart(t, dir, 20, `{"start": 3, "numbers": [1, 2]}`)
	file, step, part, err := LastServerParts(dir)
	if err != nil || file != checkpoint.PathOf(dir, 20) || step != 20 || part.Start != 3 || !slices.Equal(part.Numbers, []uint64{1, 2}) {
		t.Errorf("%s, step %d, %+v, %v", file, step, part, err)
	}
	if AttemptDir(dir, 3) != filepath.Join(dir, "start-3") || JobName(3, 20) == JobName(3, 10) || JobName(3, 20) == JobName(4, 20) {
		t.Errorf("%s, %s", AttemptDir(dir, 3), JobName(3, 20))
	}
	for _, c := range []struct {
		current int
		want    []int
	}{{1, []int{1, 2, 3, 12}}, {3, []int{1, 3, 12}}, {13, []int{1, 3}}} {
		if err := dropAttempts(dir, c.current); err != nil {
			t.Error(err)
		}
		starts(c.want...)
	}
	if err := os.Remove(checkpoint.PathOf(dir, 10)); err != nil {
		t.Fatal(err)
	}
	saveStart(t, dir, 30, `{"start": 3}`)
	if err := dropAttempts(dir, 13); err != nil {
		t.Error(err)
	}
	starts(1, 3) // what cannot be read may need them
	for _, c := range [][2]string{
		{`{"start": 3}`, "checkpoints [] of the servers of start 3: out of range"}, {`{"start": 0, "numbers": [1]}`, "start 0"},
		{`{"start": 3, "numbers": [1, 0]}`, "[1 0]"}, {"?", "cannot be read"}, {"", "without parameter servers"},
	} {
		saveStart(t, dir, 30, c[0])
		if _, _, _, err := LastServerParts(dir); err == nil || !strings.Contains(err.Error(), c[1]) || !strings.Contains(err.Error(), "step-000000030.ringo") {
			t.Errorf("%s: %v", c[0], err)
		}
	}
	if err := dropAttempts(dir, 13); err != nil {
		t.Error(err)
	}
	starts(3) // a file that says nothing of servers needs none
	if got, err := Attempts(filepath.Join(dir, "none")); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
}

// TestServersPartIsOfItsRun: a checkpoint whose servers' folder is another run's is rejected with
// both names, and a folder that has none states nothing.
func TestServersPartIsOfItsRun(t *testing.T) {
	dir := t.TempDir()
	for i, folder := range []string{"aaaa", "bbbb"} {
		at := filepath.Join(dir, "start-2", fmt.Sprintf("server-%d", i))
		if err := errors.Join(os.MkdirAll(at, 0o777), os.WriteFile(engine.IdentityPath(at), fmt.Appendf(nil, `{"folder": %q}`, folder), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for step, c := range []struct{ says, want string }{
		{`{"start": 2, "numbers": [4, 4], "folders": ["aaaa", "bbbb"]}`, ""},
		{`{"start": 2, "numbers": [4, 4], "folders": ["aaaa", "cccc"]}`, "step-000000002.ringo is of another run: server 1's folder was cccc when this checkpoint was saved, and " + filepath.Join(dir, "start-2", "server-1") + " is bbbb"},
		{`{"start": 2, "numbers": [4, 4], "folders": ["", "bbbb"]}`, ""},
		{`{"start": 3, "numbers": [4, 4], "folders": ["aaaa", "bbbb"]}`, ""},
	} {
		saveStart(t, dir, int64(step+1), c.says)
		_, _, _, err := LastServerParts(checkpoint.PathOf(dir, int64(step+1)))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.says, err, c.want)
		}
	}
}
