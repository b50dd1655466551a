package trainjob

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/trainjob/trainjobtest"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

var update = flag.Bool("update", false, "write testdata anew")

// told is a server, and the configuration of who is to tell it.
type told struct {
	*trainjobtest.Server
	cfg  Config
	said chan string // what was reported
}

// newTold starts one that answers by answer, nil for 200.
func newTold(t *testing.T, answer http.HandlerFunc) *told {
	t.Helper()
	s := &told{Server: trainjobtest.New(t, answer), said: make(chan string, 100)}
	s.cfg = Config{Server: s.Where, Read: func() dashboard.Progress { return part }, Report: func(line string) { s.said <- line }, Every: 5 * time.Millisecond, Timeout: 10 * time.Second}
	return s
}

// await waits for something of the requests' tokens.
func (s *told) await(t *testing.T, what string, is func(tokens []string) bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		tokens, _ := s.Took()
		if is(tokens) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

// part is a job of which a part is done.
var part = dashboard.Progress{Known: true, Share: 0.4567, TimeRemaining: 90*time.Second + 1, Figures: []dashboard.Figure{{Name: "epoch", Text: "2"}, {Name: "loss", Text: "0.25"}}}

// The server is told how far the job is, by the token that the system has just written, and how it ends.
func TestTells(t *testing.T) {
	leakcheck.Check(t)
	s := newTold(t, nil)
	teller := Start(s.cfg)
	s.await(t, "request", func(tokens []string) bool { return len(tokens) > 0 && tokens[0] == "Bearer first" })
	trainjobtest.Write(t, s.cfg.Server.Token, "second")
	s.await(t, "new token", func(tokens []string) bool { return tokens[len(tokens)-1] == "Bearer second" })
	teller.Close(Done)
	_, bodies := s.Took()
	for i, body := range bodies {
		got := trainjobtest.Read(t, body)
		percent, left := int32(45), int32(91)
		if i == len(bodies)-1 {
			percent, left = 100, 0
		}
		if *got.ProgressPercentage != percent || *got.EstimatedRemainingSeconds != left || fmt.Sprint(got.Metrics) != "[{epoch 2} {loss 0.25}]" {
			t.Errorf("%d: %s", i, body)
		}
	}
	if len(s.said) > 0 {
		t.Error(<-s.said)
	}
	s.Close() // before goroutines are counted
	(*Reporter)(nil).Close(Done)
}

// Nothing is told before rank 0 tells of a run, and how the job has ended all the same.
func TestTellsNothingUnknown(t *testing.T) {
	s := newTold(t, nil)
	s.cfg.Read = func() dashboard.Progress { return dashboard.Progress{} }
	teller := Start(s.cfg)
	time.Sleep(20 * s.cfg.Every)
	if _, bodies := s.Took(); len(bodies) > 0 {
		t.Errorf("%s", bodies)
	}
	teller.Close(Stopped) // it may go on: what an earlier part told stays
	if _, bodies := s.Took(); len(bodies) > 0 {
		t.Errorf("%s", bodies)
	}
	Start(s.cfg).Close(Failed)
	if _, bodies := s.Took(); len(bodies) != 1 || fmt.Sprint(trainjobtest.Read(t, bodies[0]).Metrics) != "[{failed 1}]" {
		t.Errorf("%s", bodies)
	}
}

// A server that is down, slow, refuses or is another one ends nothing: it is reported once, asked ever less often, and at the end not for long.
func TestFailures(t *testing.T) {
	elsewhere := newTold(t, nil)
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); fmt.Fprint(w, text) }
	}
	for _, c := range []struct {
		name, want string
		answer     http.HandlerFunc
		change     func(*told)
	}{
		{"refuses", `status 403 "Forbidden"`, status(403, `{"kind":"Status","message":"Forbidden"}`), nil},
		{"is at fault", "status 500", status(500, "<html>"), nil},
		{"sends elsewhere", "status 307", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+trainjobtest.Path, http.StatusTemporaryRedirect)
		}, nil},
		{"is slow", "deadline exceeded", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(s *told) { s.cfg.Timeout = 20 * time.Millisecond }},
		{"is down", "connection refused", nil, func(s *told) { s.Close() }},
		{"is another", "certificate signed by unknown authority", nil, func(s *told) { trainjobtest.Write(t, s.cfg.Server.CACert, trainjobtest.Authority(t)) }},
		{"has no authority", "no certificate of an authority", nil, func(s *told) { trainjobtest.Write(t, s.cfg.Server.CACert, "none") }},
		{"has no token", "no such file", nil, func(s *told) { _ = os.Remove(s.cfg.Server.Token) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTold(t, c.answer)
			if c.change != nil {
				c.change(s)
			}
			teller := Start(s.cfg)
			line := <-s.said
			if !strings.Contains(line, "Kubeflow Trainer is not told how far the job is, which goes on without, and it is tried again: ") || !strings.Contains(line, c.want) || strings.Contains(line, "first") {
				t.Errorf("%s\nwant %s", line, c.want)
			}
			time.Sleep(20 * s.cfg.Every)
			began := time.Now()
			teller.Close(Done)
			if took := time.Since(began); took > farewell {
				t.Errorf("the end took %v", took)
			}
			if tokens, _ := s.Took(); len(tokens) > 7 || len(s.said) > 0 { // after 1, 2, 4, 8 and 16 times s.cfg.Every, and at the end
				t.Errorf("%d requests, %d more lines", len(tokens), len(s.said))
			}
		})
	}
	if tokens, _ := elsewhere.Took(); len(tokens) > 0 {
		t.Errorf("another server got %q", tokens)
	}
}

// What is told is within the contract's limits, whatever is known.
func TestStatusOf(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	many := part
	for i := range 300 {
		many.Figures = append(many.Figures, dashboard.Figure{Name: fmt.Sprintf("figure_%d", i), Text: "0.5"})
	}
	many.Figures[3].Name, many.Figures[4].Name, many.Figures[5].Text = strings.Repeat("n", 65), "", strings.Repeat("7", 65)
	with := func(change func(*dashboard.Progress)) dashboard.Progress {
		p := part
		p.Figures = nil
		change(&p)
		return p
	}
	for _, c := range []struct {
		p    dashboard.Progress
		how  End
		want string
	}{
		{part, 0, `"progressPercentage":45,"estimatedRemainingSeconds":91,"metrics":[{"name":"epoch","value":"2"},{"name":"loss","value":"0.25"}]`},
		{part, Failed, `"progressPercentage":45,"metrics":[{"name":"failed","value":"1"},{"name":"epoch","value":"2"},{"name":"loss","value":"0.25"}]`},
		{part, Stopped, `"progressPercentage":45,"metrics":[{"name":"epoch","value":"2"},{"name":"loss","value":"0.25"}]`},
		{with(func(p *dashboard.Progress) { p.TimeRemaining = -1 }), 0, `"progressPercentage":45`},
		{with(func(p *dashboard.Progress) { p.Share = 1 }), 0, `"progressPercentage":99,"estimatedRemainingSeconds":91`},
		{with(func(p *dashboard.Progress) { p.TimeRemaining = math.MaxInt64 }), 0, `"progressPercentage":45,"estimatedRemainingSeconds":2147483647`},
		{dashboard.Progress{}, Done, `"progressPercentage":100,"estimatedRemainingSeconds":0`},
	} {
		body, err := json.Marshal(request{statusOf(c.p, c.how, now)})
		if want := `{"trainerStatus":{` + c.want + `,"lastUpdatedTime":"2026-01-02T02:04:05Z"}}`; err != nil || string(body) != want {
			t.Errorf("%s, %v\nwant %s", body, err, want)
		}
		trainjobtest.Read(t, body)
	}
	body, err := json.Marshal(request{statusOf(many, 0, now)})
	if err != nil {
		t.Fatal(err)
	}
	if got := trainjobtest.Read(t, body); len(got.Metrics) != 256 || strings.Contains(string(body), "nnn") || strings.Contains(string(body), "7777") {
		t.Errorf("%d metrics", len(got.Metrics))
	}
	golden := "testdata/request.json"
	if *update {
		if err := os.WriteFile(golden, append(body, '\n'), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != string(body)+"\n" {
		t.Errorf("%v: %s is another request: -update writes it", err, golden)
	}
}
