package dashboard

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/runlog"
	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/train"
)

var update = flag.Bool("update", false, "write testdata anew")

// hostile is text that a page would run if it were HTML.
const hostile = `<script>window.ran=1</script><img src=x onerror="window.ran=1">`

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// onePixel is a PNG file.
const onePixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// told are lines as a run of 2 ranks tells them, of so many epochs.
func told(t testing.TB, epochs int) (lines []string) {
	t.Helper()
	add := func(v any) {
		b, err := json.Marshal(v)
		must(t, err)
		lines = append(lines, string(b))
	}
	add(runlog.Job{Event: "job", Ringo: "0.1.0", Started: "2026-01-02T03:04:05Z", Settings: map[string]string{"training.batch": "64", "data.dir": hostile, "training.seed": "1"}, Changed: []string{"training.batch", "data.dir"}, Machine: runlog.Machine{Host: hostile, CPU: "X", CPUs: 2}})
	add(runlog.Info{Event: "run", Seed: 1, Model: "mlp", Params: 7, NP: 2, Threads: 1, DataSet: hostile, TrainSamples: 1000, EvalSamples: 10, Epochs: 3, StepsPerEpoch: 4, Strategy: "dlgs", Plan: "fixed", Buckets: 2,
		Transport: "shm", Metrics: []runlog.Metric{{Name: "accuracy", Title: "accuracy", Percent: true}, {Name: "top5", Title: "top-5 accuracy", Percent: true}},
		Columns: []any{map[string]any{"name": "age" + hostile, "kind": "number", "rows": 10, "missing": map[string]int{"NA": 2}, "histogram": map[string]any{"start": 16, "width": 8, "counts": []int{3, 0, 5}}},
			map[string]any{"name": "city", "kind": "category", "detail": "2 words: Bern, Zug", "rows": 10, "frequent": []any{map[string]any{"word": "Bern", "rows": 7}, map[string]any{"word": "Zug", "rows": 3}}}}})
	for epoch := 1; epoch <= epochs; epoch++ {
		for step := 1; step <= 4; step++ {
			done := 4*(epoch-1) + step
			add(map[string]any{"event": "step", "seed": 1, "epoch": epoch, "step": step, "done": done, "wall_s": 0.1 * float64(done), "lr": 0.1, "loss": 2 / float64(done), "step_ms": 10 + done, "compute_ms": 6, "data_wait_ms": 1,
				"compress_ms": 0.5, "exposed_comm_ms": 3 + done, "update_ms": 0.5, "density": 0.01 * float64(done), "samples_per_s": 1000 + done})
			for rank := range 2 {
				add(stepStats{Event: "beat", Rank: rank, SendsSteps: true, Steps: 3, Epoch: epoch, Step: step, Done: int64(done), StepMS: 10, ComputeMS: number(6 + 3*rank), ExposedCommMS: number(3 - 3*rank)})
			}
		}
		add(map[string]any{"event": "epoch", "seed": 1, "epoch": epoch, "done": 4 * epoch, "wall_s": float64(epoch), "train_loss": 1.5 / float64(epoch), "eval_loss": 1.25 / float64(epoch), "train_accuracy": 0.7 + 0.05*float64(epoch),
			"eval_accuracy": 0.75 + 0.0501*float64(epoch), "eval_top5": 0.9, "samples_per_s": 1234, "step_ms": 10, "compute_ms": 6, "exposed_comm_ms": 3, "density": 0.04, "step_bytes_sent": 4096, "bytes_sent": 123456, "wire_bytes": 234567,
			"layers": []map[string]any{{"name": "fc1" + hostile, "density": 0.25, "threshold": 0.125, "residual_norm": 2.5 + float64(epoch)/2}, {"name": "fc2", "density": 0.5, "threshold": 0.5, "residual_norm": 1}}})
	}
	add(map[string]any{"event": "evaluation", "classes": map[string]any{"per_class": []map[string]any{{"class": "no" + hostile, "support": 7}, {"class": "yes", "support": 3}}, "confusion": [][3]int{{0, 0, 6}, {0, 1, 1}, {1, 1, 3}}},
		"worst": []map[string]any{{"sample": 3, "place": "cats/" + hostile + ".png", "prediction": "no", "truth": "yes", "loss": 4.5, "image": onePixel}}})
	add(progress{"progress", "train", epochs, 3, 4, 4})
	add(map[string]any{"event": "choice", "strategy": "dlgs", "plan": "fixed", "buckets": 2, "predicted_ms": 9.5, "why": "it is " + hostile, "predicted_timeline": map[string]any{
		"forward_ms": 2, "compute_end_ms": 5, "step_ms": 9.5, "buckets": []map[string]any{{"bucket": 0, "select_start_ms": 3, "select_end_ms": 3.5, "send_start_ms": 3.5, "send_end_ms": 6}, {"bucket": 1, "select_start_ms": 5, "select_end_ms": 5, "send_start_ms": 6, "send_end_ms": 8.5}}}})
	add(map[string]any{"event": "remark", "text": "a remark: " + hostile})
	add(map[string]any{"event": "of a later version", "x": 1})
	return lines
}

// begun is when the tests' jobs begin.
var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// scene is a hub that has been told those, and whose clock stands still.
func scene(t testing.TB, epochs int) *Collector {
	h := newHub(func() time.Time { return begun })
	for _, line := range told(t, epochs) {
		h.Add([]byte(line))
	}
	h.Identify("", "", ranks(glanceAt(recorded(0, 3)), glanceAt(recorded(1, 3))))
	h.look()
	return h
}

// ranks are seen by these glances.
func ranks(all ...func(int) (*record.Snapshot, error)) func() []launch.ProcessInfo {
	return func() (out []launch.ProcessInfo) {
		for i, glance := range all {
			out = append(out, launch.ProcessInfo{Name: fmt.Sprintf("rank %d", i), Index: i, Glance: glance})
		}
		return out
	}
}

// glanceAt is the glance at a recorder of this process.
func glanceAt(rec *record.Recorder) func(int) (*record.Snapshot, error) {
	return func(n int) (*record.Snapshot, error) { return rec.Glance(n), nil }
}

// recorded are steps of a rank which the other one, rank 1, holds up: it begins bucket 0 at 7 ms, where rank 0 has computed until 4 ms.
// Exchanges end at 8 and 9 ms.
func recorded(rank, steps int) *record.Recorder {
	r := record.New(record.Config{Epoch: begun, Phases: 64, Operations: 64, Open: 8, Lanes: 1, Names: 4096})
	for i := range steps {
		r.BeginStep(int64(i))
		at := func(ms float64) int64 { return int64(1e6 * (20*float64(i) + ms)) }
		late := 4 * float64(rank)
		span := func(p record.Phase, name string, from, to float64) { r.Span(p, r.Name(name), at(from), at(to)) }
		span(record.Data, "", -1, 0)
		span(record.Forward, "", 0, 2)
		span(record.Backward, "", 2, 4+late)
		span(record.Compress, "bucket 0: fc2"+hostile, 2.5, 3)
		span(record.Exchange, "bucket 0: fc2"+hostile, 3+late, 8)
		span(record.Exchange, "bucket 1: fc1", 4+late, 9)
		span(record.Exposed, "", 4+late, 9)
		span(record.Update, "", 9, 10)
	}
	return r
}

// serve has a hub served until the test or benchmark ends.
func serve(t testing.TB, h *Collector) *site {
	t.Helper()
	at, err := httpguard.NewSite(":0", rand.Text(), nil)
	must(t, err)
	h.Serve(at)
	must(t, at.Listen())
	t.Cleanup(func() {
		h.site.mu.Lock()
		ended := h.site.frame.ended
		h.site.mu.Unlock()
		if !ended {
			h.Close(nil)
		}
		at.Close()
	})
	return h.site
}

// url is the address of a hub's page.
func (h *Collector) url() string { return h.site.web.URL("") }

// client is one of a test, which keeps no connections.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get asks for a path below the host, with a change to the request.
func get(t *testing.T, url string, change func(*http.Request)) (status int, body string, header http.Header) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	must(t, err)
	if change != nil {
		change(r)
	}
	res, err := client.Do(r)
	must(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, string(b), res.Header
}

// What a browser is sent: all panels, then those alone that have changed, then the report.
func TestStream(t *testing.T) {
	leakcheck.Check(t)
	h := scene(t, 2)
	s := serve(t, h)
	r, err := http.NewRequest("GET", h.url()+"events", nil)
	must(t, err)
	res, err := client.Do(r)
	must(t, err)
	defer res.Body.Close()
	from := bufio.NewReader(res.Body)
	var got strings.Builder
	next := func() (event, data string) {
		for {
			line, err := from.ReadString('\n')
			must(t, err)
			switch line = strings.TrimSuffix(line, "\n"); {
			case line == "":
				return event, data
			case strings.HasPrefix(line, "event: "):
				event = line[7:]
			default:
				data = strings.TrimPrefix(line, "data: ")
			}
		}
	}
	take := func(n int) {
		for range n {
			event, data := next()
			fmt.Fprintf(&got, "%s\n%s\n\n", event, strings.ReplaceAll(data, `,"`, ",\n\""))
		}
	}
	take(1 + len(panels))
	h.AddEvent("rank 1 is slow")
	s.draw(false)
	got.WriteString("--- a fault is told\n\n")
	take(1)
	s.draw(false) // of which there is nothing to send
	go h.Close(errors.New("it failed"))
	got.WriteString("--- the job ends\n\n")
	take(2)
	event, data := next()
	var report string
	must(t, json.Unmarshal([]byte(data), &report))
	if event != "end" || !strings.Contains(report, "1 run of mlp") || !strings.Contains(report, "03:04:05 it failed") || strings.Count(report, "<script") != 2 || strings.Contains(report, "<img") {
		t.Errorf("%s: %.300s", event, report)
	}
	if _, err := from.ReadByte(); err != io.EOF {
		t.Errorf("behind the end: %v", err)
	}
	golden := filepath.Join("testdata", "stream.txt")
	if *update {
		must(t, os.WriteFile(golden, []byte(got.String()), 0o666))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if got.String() != string(want) {
		t.Errorf("got %s\nwant what %s has: -update writes it", got.String(), golden)
	}
	if strings.Contains(got.String(), "<") {
		t.Error("text is not escaped")
	}
}

// Nothing is shown without the token, nor to another site's page, however it asks.
func TestNobodyElseLooks(t *testing.T) {
	leakcheck.Check(t)
	h := scene(t, 1)
	s := serve(t, h)
	host := "http://" + s.web.At()
	token := path.Base(h.url())
	for _, path := range []string{"/", "/events", "/debug/pprof/", "/ranks/0/debug/pprof/", "/state", "/page.js", "/" + token[1:] + "/state", "/x/" + token + "/state", "/?" + token, "/feed"} {
		if status, body, _ := get(t, host+path, nil); status != http.StatusForbidden || strings.Contains(body, "mlp") {
			t.Errorf("%s: status %d, %q", path, status, body)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"another host":           func(r *http.Request) { r.Host = "evil.example:80" },
		"another origin":         func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
		"another site":           func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"no origin":              func(r *http.Request) { r.Header.Set("Origin", "null") },
		"another one's frame":    func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"rebound, on our port":   func(r *http.Request) { r.Host = strings.Replace(s.web.At(), "127.0.0.1", "evil.example", 1) },
		"with a host of nothing": func(r *http.Request) { r.Host = ":1" },
	} {
		for _, path := range []string{"", "events", "state", "page.js"} {
			if status, body, _ := get(t, h.url()+path, change); status != http.StatusForbidden || strings.Contains(body, "mlp") {
				t.Errorf("%s, /%s: status %d, %q", name, path, status, body)
			}
		}
	}
	for _, path := range []string{"", "page.js", "page.css", "state"} {
		status, body, header := get(t, h.url()+path, nil)
		if status != http.StatusOK || len(body) < 500 || header.Get("Content-Security-Policy") != policy || header.Get("Cache-Control") != "no-store" {
			t.Errorf("/%s: status %d, %d bytes, %v", path, status, len(body), header)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		r, err := http.NewRequest(method, h.url()+"state", nil)
		must(t, err)
		res, err := client.Do(r)
		must(t, err)
		if res.Body.Close(); res.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d", method, res.StatusCode)
		}
	}
	for path, want := range map[string]string{"/healthz": "training", "/" + token + "/healthz": "training"} {
		if status, body, _ := get(t, host+path, nil); status != http.StatusOK || body != want+"\n" {
			t.Errorf("%s: status %d, %q", path, status, body)
		}
	}
	// Who may look may not tell.
	r, err := http.NewRequest("POST", h.url()+"feed", strings.NewReader(`{"event":"remark","text":"mine"}`+"\n"))
	must(t, err)
	res, err := client.Do(r)
	must(t, err)
	res.Body.Close()
	if _, body, _ := get(t, h.url()+"state", nil); res.StatusCode != http.StatusNotFound || strings.Contains(body, "mine") {
		t.Errorf("status %d: a stranger's line is shown", res.StatusCode)
	}
}

// Profiles of ranks that are processes of their own are forwarded, with the token, and longer ones than other answers may take.
func TestServeForwardsProfiles(t *testing.T) {
	leakcheck.Check(t)
	h := NewHub()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "answers"))
	must(t, err)
	h.Answer(l)
	serve(t, h)
	for range 2 { // a restarted rank replaces the socket
		rank, err := AnswerAs(h.Address(), "rank", 1, Profiles())
		must(t, err)
		defer rank.Close()
	}
	for path, want := range map[string]string{"debug/pprof/": "goroutine", "ranks/1/debug/pprof/": "goroutine", "ranks/1/debug/pprof/profile?seconds=1": "\x1f\x8b", "debug/pprof/goroutine?debug=1": "dashboard.Test"} {
		if status, body, _ := get(t, h.url()+path, nil); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("/%s: status %d, %.200q", path, status, body)
		}
		if status, body, _ := get(t, h.url()+path, func(r *http.Request) { r.Host = "evil.example" }); status != http.StatusForbidden || strings.Contains(body, want) {
			t.Errorf("/%s for another host: status %d, %.200q", path, status, body)
		}
	}
	for path, want := range map[string]int{"ranks/2/debug/pprof/": http.StatusBadGateway, "ranks/x/debug/pprof/": http.StatusNotFound, "ranks/1/state": http.StatusNotFound, "ranks/-1/debug/pprof/": http.StatusNotFound} {
		if status, body, _ := get(t, h.url()+path, nil); status != want {
			t.Errorf("/%s: status %d, want %d: %s", path, status, want, body)
		}
	}
}

// All that the page is made of is in the binary, small, and names no other host.
func TestAssets(t *testing.T) {
	sum := 0
	for path, f := range files {
		b, err := assets.ReadFile(f.name)
		must(t, err)
		sum += len(b) + len(f.before)
		for _, word := range []string{"http:", "https:", "//cdn", "@import", "innerHTML", "eval("} {
			if bytes.Contains(b, []byte(word)) {
				t.Errorf("%s holds %s", path, word)
			}
		}
	}
	if sum > 150_000 {
		t.Errorf("%d bytes", sum)
	}
}

// However many ranks and steps there are, a hub keeps so much.
func TestMemory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	h, long := NewHub(), strings.Repeat("x", 100_000)
	steps := 100_000
	if testing.Short() {
		steps = 10_000
	}
	for _, line := range told(t, 1)[:2] {
		h.Add([]byte(line))
	}
	layers := make([]layer, mostLayers)
	var waits []steptrace.RankWait
	for rank := range 64 {
		for by := range 64 {
			waits = append(waits, steptrace.RankWait{Rank: rank, For: by, MS: 1})
		}
	}
	for i := range steps {
		if i%100 == 0 {
			h.passed.add(int64(i), append([]layer(nil), layers...))
			h.waited(append([]steptrace.RankWait(nil), waits...))
		}
		for rank := range 64 * ((i + 1) % 10 / 9) {
			b := stepStats{Event: "beat", Rank: rank, SendsSteps: true, Steps: 1, Done: int64(i + 1), StepMS: 10}
			h.mu.Lock()
			h.beat(b, nil) // what Add does of its line
			h.mu.Unlock()
		}
		if i%10 == 0 {
			h.Add(fmt.Appendf(nil, `{"event":"step","seed":1,"epoch":1,"done":%d,"wall_s":%d,"loss":1,"step_ms":10,"compute_ms":7,"data_wait_ms":1,"exposed_comm_ms":2,"samples_per_s":100}`, i+1, i))
		}
		if i%100 == 0 {
			h.AddEvent(long)
		}
	}
	if grown := int64(heap()) - int64(before); grown > 16<<20 {
		t.Errorf("the hub keeps %d bytes", grown)
	}
	sum := 0
	for _, f := range h.snapshot().Panels {
		sum += len(encoded(f))
	}
	if sum > 2<<20 {
		t.Errorf("a whole frame has %d bytes", sum)
	}
	runtime.KeepAlive(h)
}

// A browser that does not read holds up nobody: frames are made without it, and it gets the newest when it reads.
func TestSlowReader(t *testing.T) {
	leakcheck.Check(t)
	h := scene(t, 1)
	s := serve(t, h)
	c, err := net.Dial("tcp", s.web.At())
	must(t, err)
	defer c.Close()
	_, err = fmt.Fprintf(c, "GET /%s/events HTTP/1.1\r\nHost: %s\r\n\r\n", path.Base(h.url()), s.web.At())
	must(t, err)
	head, err := bufio.NewReaderSize(c, 16).ReadString('\n') // and no more
	must(t, err)
	if !strings.Contains(head, "200") {
		t.Fatal(head)
	}
	for i := range 300 {
		h.AddEvent(fmt.Sprintf("%d %s", i, strings.Repeat("x", 1500)))
		s.draw(false)
	}
	if !s.watched() {
		t.Error("it was put out")
	}
	for n := range mostViewers + 5 {
		if _, err := s.enter(); (err != nil) != (n >= mostViewers-1) {
			t.Fatalf("browser %d: %v", n+2, err)
		}
	}
	s.mu.Lock()
	for wake := range s.viewers {
		if cap(wake) == 1 && len(s.viewers) > 1 {
			delete(s.viewers, wake)
		}
	}
	for range mostViewers - 1 {
		s.streams.Done()
	}
	s.viewers = map[chan struct{}]bool{}
	s.mu.Unlock()
}

// Ranks of other processes tell over a connection. One whose hub is gone, or takes nothing, goes on.
func TestFeed(t *testing.T) {
	leakcheck.Check(t)
	h := NewHub()
	serve(t, h)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "answers"))
	must(t, err)
	h.Answer(l)
	lines := told(t, 1)
	f := Dial(h.Address())
	for _, line := range lines {
		f.Record(json.RawMessage(line))
	}
	f.Record(func() {}) // has no JSON
	f.Close()
	f.Close()
	f.Record("too late")
	if got, want := encoded(h.snapshot().Panels[2]), encoded(scene(t, 1).snapshot().Panels[2]); !bytes.Equal(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	local := h.Feed()
	local.Record(json.RawMessage(`{"event":"remark","text":"of this process"}`))
	local.Close()
	if _, body, _ := get(t, h.url()+"state", nil); !strings.Contains(body, "of this process") {
		t.Errorf("state: %s", body)
	}
	gone := Dial("1s " + filepath.Join(t.TempDir(), "none"))
	for range 3 * queued {
		gone.passing(stepStats{})
	}
	gone.Close()
	var none *Exporter
	none.Record(1)
	none.Close()
	if none.Steps(0, false) != nil || none.Observe(nil) != nil || Dial("") != nil || Dial("1s ") != nil || Dial("/none") != nil || (*Collector)(nil).Feed() != nil {
		t.Error("a nil feed tells something")
	}
}

// Beats are means of the steps since the last one, and of rank 0 the curves, unless it tells of single steps.
func TestBeats(t *testing.T) {
	for _, told := range []bool{false, true} {
		h := NewHub()
		f := h.Feed()
		if f.every != slowBeat || slowBeat <= beatEvery {
			t.Errorf("nobody watches, and a rank tells of its steps every %v", f.every)
		}
		f.every = 50 * time.Millisecond
		step := f.Steps(0, told)
		sum := 0.
		step(train.Step{Done: 1, StepMS: 7})
		for i := range 4 {
			if i == 3 {
				time.Sleep(f.every) // the last one tells of all four
			}
			step(train.Step{Epoch: 1, Step: i + 2, Done: int64(i + 2), Loss: float64(i), StepMS: 10 * float64(i), Progressive: &train.Progressive{Samples: 9, AUC: train.OptionalFloat{Value: 0.5 + float64(i)/10, Known: true}}})
			sum += float64(i)
		}
		f.Close()
		all := h.ranks[0].beats
		b := all[len(all)-1]
		if len(all) != 2 || all[0].Steps != 1 || all[0].StepMS != 7 || b.Steps != 4 || b.Done != 5 || float64(b.Loss) != sum/4 || float64(b.StepMS) != 10*sum/4 {
			t.Errorf("%+v", b)
		}
		if f := h.show(panel{id: "progressive", read: readProgressive, early: true}); !told && (len(f.Data) == 0 || f.Data[0][len(f.Data[0])-1] != 0.8) {
			t.Errorf("the panel of last samples has %v", f.Data)
		}
		if n := h.last().Steps.Len(); (n == 2) == told {
			t.Errorf("told %v: %d records of steps", told, n)
		}
	}
}

// BenchmarkFrame is a frame of 64 ranks after 100,000 steps.
func BenchmarkFrame(b *testing.B) {
	h := NewHub()
	for _, line := range told(b, 1)[:2] {
		h.Add([]byte(line))
	}
	for i := range 20_000 {
		h.Add(fmt.Appendf(nil, `{"event":"step","seed":1,"epoch":1,"done":%d,"wall_s":%d,"loss":%v,"step_ms":10,"compute_ms":7,"data_wait_ms":1,"compress_ms":1,"update_ms":1,"exposed_comm_ms":2,"samples_per_s":100}`, i+1, i, 1/float64(i+1)))
	}
	for i := range 64 * mostBeats {
		h.beat(stepStats{Rank: i % 64, SendsSteps: true, Steps: 1, StepMS: 10, ComputeMS: 7}, nil)
	}
	serve(b, h)
	for b.Loop() {
		h.site.draw(false)
	}
}

// A look counts each step once, passes over ranks that are gone, and looks further back where a step has many phases.
func TestLooks(t *testing.T) {
	h := NewHub()
	h.look()
	if _, ok := h.Waits(); ok {
		t.Error("nobody was looked at")
	}
	var asked []int
	var all []func(int) (*record.Snapshot, error)
	for rank, r := range []*record.Recorder{recorded(0, 3), recorded(1, 3), recorded(2, 3)} {
		all = append(all, func(n int) (*record.Snapshot, error) {
			if rank == 2 {
				return nil, io.ErrClosedPipe
			}
			if asked = append(asked, n); n == steptrace.WholeStepEvents {
				n = 9 // the last step is not whole in them
			}
			return r.Glance(n), nil
		})
	}
	h.Identify("", "", ranks(all...))
	for range 3 {
		h.look()
	}
	w, ok := h.Waits()
	if !ok || w.Steps != 1 || fmt.Sprint(w.Ranks) != "[0 1]" || fmt.Sprint(w.WaitMS) != "[[1.9999999999999998 3] [0 1]]" && fmt.Sprint(w.WaitMS) != "[[2 3] [0 1]]" {
		t.Errorf("%+v", w)
	}
	if fmt.Sprint(asked[:4]) != "[512 512 1024 1024]" || asked[len(asked)-1] != 1024 {
		t.Errorf("asked for %v phases", asked)
	}
	for took, want := range map[time.Duration]time.Duration{0: time.Second, 500 * time.Microsecond: time.Second, 6 * time.Millisecond: 6 * time.Second, time.Second: time.Minute} {
		if got := pause(took, lookShare); got != want {
			t.Errorf("after a look of %v a pause of %v, want %v", took, got, want)
		}
	}
}

// Of many steps whose layers were told every second one is kept, and so on: the first ones are never forgotten.
func TestPassedLayers(t *testing.T) {
	var p layerHistory
	for i := range 1000 {
		p.add(int64(i), []layer{{Name: "fc", Density: number(i)}})
		every := p.done[min(1, len(p.done)-1)] - p.done[0]
		for k, done := range p.done {
			if done != int64(k)*every || float64(p.layers[k][0].Density) != float64(done) {
				t.Fatalf("after %d: %v", i, p.done)
			}
		}
		if n := len(p.done); n > mostPassed || i >= mostPassed && n < mostPassed/2 {
			t.Fatalf("after %d steps %d are kept", i, n)
		}
	}
	if p.add(7, make([]layer, 2)); len(p.done) != 1 {
		t.Errorf("of another model: %v", p.done)
	}
}
