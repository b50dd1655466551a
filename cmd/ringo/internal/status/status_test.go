package status

import (
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/jobregistry"
)

var update = flag.Bool("update", false, "write the golden files")

// state is that of a job with all that there may be, as --json has it.
func state(t *testing.T) (s dashboard.Status) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "state.json"))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A state is printed as testdata/state.txt has it. go test -update writes it.
func TestPrint(t *testing.T) {
	var b strings.Builder
	Print(&b, state(t))
	golden := filepath.Join("testdata", "state.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || b.String() != string(want) {
		t.Errorf("printed:\n%s\nwant:\n%s(%v)", b.String(), want, err)
	}
}

// Whatever hosts, files and layers are called, nothing but text reaches a terminal.
func TestPrintHostile(t *testing.T) {
	const hostile = "\x1b]0;owned\a\x1b[2J\r\u202e\u200b\u009b31m<b>"
	s := state(t)
	s.Command, s.Model, s.Job, s.Phase, s.State = hostile, hostile, hostile, hostile, hostile
	s.Figures = []dashboard.Figure{{Name: hostile, Text: hostile}}
	s.Processes = []dashboard.ProcessStatus{{Name: hostile, Doing: hostile, WaitsFor: hostile}, {Ended: hostile}}
	s.Stragglers, s.Faults = []dashboard.Straggler{{Cause: hostile}}, []dashboard.FaultAt{{At: hostile, Text: hostile}}
	var b strings.Builder
	Print(&b, s)
	for _, r := range b.String() {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Fatalf("%U reaches the terminal: %q", r, b.String())
		}
	}
	if n := strings.Count(b.String(), "<b>"); n < 10 {
		t.Errorf("of hostile names %d are shown: %q", n, b.String())
	}
}

// enter makes a job below base that answers, or, by nil, does not.
func enter(t *testing.T, base string, h http.HandlerFunc) string {
	t.Helper()
	e, err := jobregistry.Enter(base)
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	if h != nil {
		if l, err = e.Listen(); err != nil {
			t.Fatal(err)
		}
		site := &http.Server{Handler: h}
		go func() { _ = site.Serve(l) }()
		t.Cleanup(func() { _ = site.Close() })
	}
	t.Cleanup(e.Leave)
	return e.Name()
}

// Who asks is told of each job, of those that do not answer, too, and that there is none.
func TestAsk(t *testing.T) {
	base := t.TempDir()
	if all, err := ask(t.Context(), base, ""); err == nil || len(all) > 0 || !strings.Contains(err.Error(), "no job of yours runs") {
		t.Errorf("without a job: %v, %v", all, err)
	}
	text, err := json.Marshal(state(t))
	if err != nil {
		t.Fatal(err)
	}
	enter(t, base, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) })
	mute := enter(t, base, nil)
	broken := enter(t, base, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"state":`)) })
	all, err := ask(t.Context(), base, "")
	if err != nil || len(all) != 3 {
		t.Fatalf("%d jobs, %v", len(all), err)
	}
	states := map[string]string{}
	for _, s := range all {
		states[s.Job] = s.State
	}
	if states["4711-abcd"] != "training" || states[mute] != silent || states[broken] != silent {
		t.Errorf("states %v", states)
	}
	if one, err := ask(t.Context(), base, mute); err != nil || len(one) != 1 || !strings.Contains(one[0].Faults[0].Text, "does not answer yet") {
		t.Errorf("by name: %v, %v", one, err)
	}
	if begin, _, _ := strings.Cut(mute, "-"); begin != "" {
		if some, err := ask(t.Context(), base, begin); err != nil || len(some) != 3 { // all are of this process
			t.Errorf("by the number of the process: %v, %v", some, err)
		}
	}
	if _, err := ask(t.Context(), base, "4"); err == nil || !strings.Contains(err.Error(), `called "4"`) {
		t.Errorf("a name that is none: %v", err)
	}
}
