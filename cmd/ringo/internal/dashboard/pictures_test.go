package dashboard

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/steptrace"
)

// pictures names a folder for the pictures of the page: go test ./cmd/ringo/internal/dashboard -run Pictures -pictures ../../../../docs/pictures
// makes those of the documents anew. -widths 320,1920,3840 makes others, to be looked at.
var (
	pictures = flag.String("pictures", "", "a folder for pictures of the page of testdata/job.json")
	widths   = flag.String("widths", "1280", "how wide these are, in px")
	long     = flag.Bool("long", false, "tell a page of 100,000 steps")
)

// docs are the page's pictures in the documents.
const docs = "../../../../docs/pictures"

// The page of a job that was recorded, its /state while it went on, in a real browser: narrow and wide, light and dark.
func TestPictures(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "job.json"))
	must(t, err)
	var job struct {
		Head   json.RawMessage   `json:"head"`
		Panels []json.RawMessage `json:"panels"`
	}
	must(t, json.Unmarshal(text, &job))
	at := 0
	for _, p := range job.Panels { // in the page's order; panels that came later are those of other jobs
		var f panelData
		must(t, json.Unmarshal(p, &f))
		for at < len(panels) && panels[at].id != f.ID {
			at++
		}
		if at == len(panels) || f.Kind != panels[at].kind && f.Kind != "none" {
			t.Fatalf("the page has no panel %q of kind %s there: record testdata/job.json anew, from a job's /state, and the pictures", f.ID, f.Kind)
		}
	}
	if *pictures == "" {
		for _, scheme := range []string{"light", "dark"} {
			info, err := os.Stat(filepath.Join(docs, "page-1280-"+scheme+".webp"))
			must(t, err)
			if info.Size() > 200_000 {
				t.Errorf("%s has %d bytes", info.Name(), info.Size())
			}
		}
		if have, err := os.ReadFile(docs + "/page.sum"); err != nil || string(have) != drawnFrom(t) {
			t.Errorf("the page has changed since its pictures were made (%v): make them anew, see CONTRIBUTING.md", err)
		}
		return
	}
	if at := filepath.Clean(*pictures); at == filepath.Clean(docs) {
		must(t, os.WriteFile(filepath.Join(at, "page.sum"), []byte(drawnFrom(t)), 0o666))
	}
	mux := http.NewServeMux()
	for path, f := range files {
		mux.HandleFunc("GET "+path, (&site{}).file(f.name, f.kind, f.before))
	}
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: head\ndata: %s\n\n", job.Head)
		for _, p := range job.Panels {
			fmt.Fprintf(w, "event: panel\ndata: %s\n\n", p)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	b := open(t, server.URL)
	b.until(`document.getElementById("panel-settings") && document.getElementById("panel-loss").chart`)
	defer server.CloseClientConnections()
	var head head
	must(t, json.Unmarshal(job.Head, &head))
	b.eval(fmt.Sprintf(`(Date.now = () => %d, true)`, head.Begun+270_000), new(bool)) // the job was recorded then
	b.until(`document.getElementById("state").textContent.includes("4:30")`)
	for _, scheme := range []string{"light", "dark"} {
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
		for _, text := range strings.Split(*widths, ",") {
			width, err := strconv.Atoi(text)
			must(t, err)
			b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 1080, "deviceScaleFactor": 1, "mobile": false}, nil)
			b.until(fmt.Sprintf(`innerWidth == %d && document.documentElement.scrollWidth <= %[1]d`, width))
			b.eval(`(dispatchEvent(new Event("resize")), true)`, new(bool))
			b.until(`new Promise((done) => requestAnimationFrame(() => setTimeout(done, 300)))`)
			var high float64
			b.eval(`document.documentElement.scrollHeight`, &high)
			var shot struct {
				Data string `json:"data"`
			}
			b.call("Page.captureScreenshot", map[string]any{"format": "webp", "quality": 25, "captureBeyondViewport": true, "clip": map[string]any{"x": 0, "y": 0, "width": width, "height": min(high, 7000), "scale": 1}}, &shot)
			picture, err := base64.StdEncoding.DecodeString(shot.Data)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(*pictures, fmt.Sprintf("page-%d-%s.webp", width, scheme)), picture, 0o666))
		}
	}
}

// drawnFrom is a sum of all that pictures of the page are drawn from. It lies beside them.
func drawnFrom(t *testing.T) string {
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		b, err := assets.ReadFile(files[path].name)
		must(t, err)
		sum.Write(append([]byte(files[path].before), b...))
	}
	b, err := os.ReadFile(filepath.Join("testdata", "job.json"))
	must(t, err)
	sum.Write(b)
	return fmt.Sprintf("%x\n", sum.Sum(nil))
}

// However long a job of 64 ranks goes on, its page stays small. How long an update takes is told, and not judged: see bench/README.md.
// TestMemory and TestInBrowser hold what is kept of it, and that 64 ranks are shown, without -long.
func TestLongJobInBrowser(t *testing.T) {
	if !*long {
		t.Skip("no -long: 100,000 steps take 8 s")
	}
	h := NewHub()
	for _, line := range told(t, 1)[:2] {
		h.Add([]byte(line))
	}
	serve(t, h)
	b := open(t, h.url())
	b.until(`document.getElementById("panel-settings")`)
	b.call("Performance.enable", nil, nil)
	const steps, updates = 100_000, 20
	var waits []steptrace.RankWait
	for i := range 64 * 64 {
		waits = append(waits, steptrace.RankWait{Rank: i / 64, For: i % 64, MS: float64(i%64) / 64})
	}
	for i := range steps {
		h.mu.Lock()
		_ = h.log.Add(fmt.Appendf(nil, `{"event":"step","seed":1,"epoch":1,"done":%d,"wall_s":%d,"loss":%v,"step_ms":10,"compute_ms":7,"data_wait_ms":1,"compress_ms":1,"update_ms":1,"exposed_comm_ms":2,"samples_per_s":100,"density":0.01}`, i+1, i, 1/float64(i+1)))
		if i%(steps/400) == 0 {
			for rank := range 64 {
				h.beat(stepStats{Rank: rank, SendsSteps: true, Steps: 10, Done: int64(i), StepMS: number(10 + i%7), ComputeMS: number(6 + rank/63*3)}, nil)
			}
			h.waited(waits)
		}
		h.mu.Unlock()
		if i%(steps/updates) == 0 {
			h.site.draw(false)
			b.until(`document.querySelector("#panel-waits h3")`)
		}
	}
	b.until(`document.querySelectorAll("#panel-ranks canvas").length == 64`)
	before := b.measures()
	for i := range updates {
		h.mu.Lock()
		for rank := range 64 {
			h.beat(stepStats{Rank: rank, SendsSteps: true, Steps: 10, StepMS: number(10 + i%7), ComputeMS: 6}, nil)
		}
		h.waited(waits)
		looks := h.looks.count
		h.mu.Unlock()
		h.site.draw(false)
		b.until(fmt.Sprintf(`document.querySelectorAll("#panel-waits h3")[1].textContent == "all %d looks"`, looks))
	}
	b.call("HeapProfiler.collectGarbage", nil, nil)
	after := b.measures()
	t.Logf("64 ranks, %d steps: the page keeps %.1f MB and %v nodes; an update takes %.1f ms of its thread, of which %.1f run its script", steps, after["JSHeapUsedSize"]/1e6, after["Nodes"],
		1e3*(after["TaskDuration"]-before["TaskDuration"])/updates, 1e3*(after["ScriptDuration"]-before["ScriptDuration"])/updates)
	if heap := after["JSHeapUsedSize"]; heap > 200e6 || heap == 0 {
		t.Errorf("the page keeps %v bytes", heap)
	}
}

// measures are what the browser counts of the page: times in seconds, sizes in bytes.
func (b *browser) measures() map[string]float64 {
	b.t.Helper()
	var got struct {
		Metrics []struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
		} `json:"metrics"`
	}
	b.call("Performance.getMetrics", nil, &got)
	out := map[string]float64{}
	for _, m := range got.Metrics {
		out[m.Name] = m.Value
	}
	return out
}
