package scrape

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a board with two ranks, of which the second has died, and who answers for it.
func site(t *testing.T) (*metrics.Dir, *Answerer) {
	t.Helper()
	b, err := metrics.Open(filepath.Join(t.TempDir(), "board"))
	must(t, err)
	for rank := range 2 {
		f, err := b.Rank(rank, 2)
		must(t, err)
		f.Step(metrics.Step{Whole: 30 * time.Millisecond, Samples: 64, Epoch: 1, Loss: 2, Density: 1})
		f.Spent(metrics.WaitTime, 1-rank, time.Second)
		if rank == 1 {
			must(t, f.Close())
		} else {
			t.Cleanup(func() { must(t, f.Close()) })
		}
	}
	s, err := b.Aggregator(0, 2)
	must(t, err)
	s.Put(metrics.AggregatorExchanges, 0, 7)
	t.Cleanup(func() { must(t, s.Close()) })
	a, err := Start(Config{Site: at(t, "127.0.0.1:0"), Board: b, Version: `1.0 "beta"`})
	must(t, err)
	t.Cleanup(a.Close)
	return b, a
}

// at is a site that does not listen yet.
func at(t *testing.T, address string) *httpguard.Site {
	t.Helper()
	s, err := httpguard.NewSite(address, "0123456789abcdef", nil)
	must(t, err)
	return s
}

// ask is what is answered.
func ask(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	w, err := http.DefaultClient.Do(r)
	must(t, err)
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	must(t, err)
	return w.StatusCode, string(text)
}

func TestAnswer(t *testing.T) {
	_, a := site(t)
	url := "http://" + a.cfg.Site.At() + Path
	status, text := ask(t, url)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	for _, line := range []string{
		`ringo_build_info{version="1.0 \"beta\""} 1`, "ringo_ranks 2", `ringo_up{rank="0"} 1`, `ringo_up{rank="1"} 0`, `ringo_samples_total{rank="1"} 64`,
		`ringo_step_duration_seconds_bucket{rank="0",le="0.025"} 0`, `ringo_step_duration_seconds_bucket{rank="0",le="0.05"} 1`,
		`ringo_step_duration_seconds_sum{rank="0"} 0.03`, `ringo_wait_seconds_total{peer="0",rank="1"} 1`,
		`ringo_aggregator_up{server="0"} 1`, `ringo_aggregator_exchanges_total{server="0"} 7`, `ringo_queue_depth{queue="batches",rank="0"} 0`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("there is no line %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, "residual") || strings.Contains(text, "NaN") {
		t.Error("what nobody knows is told")
	}
	lint(t, text)
}

// lint finds nothing wrong with an answer, nor does promtool where there is one.
func lint(t *testing.T, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("Prometheus's linter says %v: %v", problems, err)
	}
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("SKIPPED in part: there is no promtool to check the answer with (Debian: apt-get install prometheus)")
		return
	}
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// Every row of the table is told as it says, those of servers, too.
func TestAllRows(t *testing.T) {
	all := func() (out []Sample) {
		for _, role := range []metrics.Role{metrics.OfHost, metrics.OfRank, metrics.OfAggregator, metrics.OfParameterServer, metrics.OfServing} {
			for _, id := range metrics.OfRole(role) {
				out = append(out, Sample{metrics.Value{ID: id, Value: 1}, make([]string, len(id.Row().Labels()))})
			}
		}
		return out
	}
	server := http.Server{Handler: Handler(all, metrics.OfHost, metrics.OfRank, metrics.OfAggregator, metrics.OfParameterServer, metrics.OfServing), ReadHeaderTimeout: time.Second}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	status, text := ask(t, "http://"+l.Addr().String())
	for _, r := range metrics.Table() {
		if !strings.Contains(text, "# TYPE "+r.Name+" "+string(r.Type)+"\n") {
			t.Errorf("status %d: %s is not told", status, r.Name)
		}
	}
	lint(t, text)
}

// Whoever comes from a page of another site, or asks for another name, is refused.
func TestOthersAreRefused(t *testing.T) {
	_, a := site(t)
	url := "http://" + a.cfg.Site.At() + Path
	for _, header := range [][]string{{"Host", "evil.example"}, {"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		if status, text := ask(t, url, header...); status != http.StatusForbidden || strings.Contains(text, "ringo_") {
			t.Errorf("%q: status %d", header, status)
		}
	}
	if status, _ := ask(t, "http://"+a.cfg.Site.At()+"/"); status != http.StatusForbidden {
		t.Errorf("another page: status %d", status)
	}
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	b, err := metrics.Open(filepath.Join(t.TempDir(), "board"))
	must(t, err)
	_, err = Start(Config{Site: at(t, l.Addr().String()), Board: b})
	if err == nil || !strings.Contains(err.Error(), "cannot listen at "+l.Addr().String()) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("error %v", err)
	}
	a, err := Start(Config{Site: at(t, "127.0.0.1:0"), Board: b}) // the right to answer was given back
	must(t, err)
	if !a.First() {
		t.Error("nobody answers")
	}
	a.Close()
}

// When who answers has ended, the next one does.
func TestTakeOver(t *testing.T) {
	b, first := site(t)
	address := first.cfg.Site.At()
	second, err := Start(Config{Site: at(t, address), Board: b, every: time.Millisecond})
	must(t, err)
	defer second.Close()
	if second.First() {
		t.Error("two answer")
	}
	first.Close()
	for until := time.Now().Add(5 * time.Second); ; {
		c, err := net.Dial("tcp", address)
		if err == nil {
			must(t, c.Close())
			break
		}
		if time.Now().After(until) {
			t.Fatal("nobody answers any more")
		}
	}
	if status, _ := ask(t, "http://"+address+Path); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}
