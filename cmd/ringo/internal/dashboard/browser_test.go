package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/runlog"
	"github.com/ringo-ml/ringo/internal/steptrace"
)

// browser is a Chromium without a window, told what to do over pipes by its DevTools protocol.
type browser struct {
	t       *testing.T
	to      io.Writer
	from    io.Reader
	buf     []byte
	calls   int
	session string
	asked   []string // addresses that the page has asked for
	said    []string // by its console, and what failed
}

// open starts one and opens a page. It skips the test where there is none.
func open(t *testing.T, address string) *browser {
	t.Helper()
	name := ""
	for _, known := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(known); err == nil {
			name = path
			break
		}
	}
	if name == "" {
		t.Skip("SKIPPED: no chromium here: the page is not looked at in a browser")
	}
	theirs, to, err := os.Pipe()
	must(t, err)
	from, ends, err := os.Pipe()
	must(t, err)
	profile, err := os.MkdirTemp("", "ringo-browser")
	must(t, err)
	cmd := exec.Command(name, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, ends} // descriptors 3 and 4
	must(t, cmd.Start())
	must(t, errors.Join(theirs.Close(), ends.Close()))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = errors.Join(to.Close(), from.Close(), os.RemoveAll(profile)) // its other processes may still write there
	})
	must(t, from.SetReadDeadline(time.Now().Add(90*time.Second)))
	b := &browser{t: t, to: to, from: from}
	var target struct {
		ID string `json:"targetId"`
	}
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		ID string `json:"sessionId"`
	}
	b.call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	b.session = attached.ID
	for _, domain := range []string{"Runtime", "Log", "Page", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	return b
}

// call calls a method and returns what it answers.
func (b *browser) call(method string, params map[string]any, answer any) {
	b.t.Helper()
	b.calls++
	if params == nil {
		params = map[string]any{}
	}
	m := map[string]any{"id": b.calls, "method": method, "params": params}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	must(b.t, err)
	_, err = b.to.Write(append(text, 0))
	must(b.t, err)
	for {
		var got struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		must(b.t, json.Unmarshal(b.message(), &got))
		switch {
		case got.ID == b.calls && got.Error != nil:
			b.t.Fatalf("%s: %s", method, got.Error)
		case got.ID == b.calls:
			if answer != nil {
				must(b.t, json.Unmarshal(got.Result, answer))
			}
			return
		}
		b.hear(got.Method, got.Params)
	}
}

// message is the next one of the browser's.
func (b *browser) message() []byte {
	for {
		if text, rest, whole := bytes.Cut(b.buf, []byte{0}); whole {
			b.buf = rest
			return text
		}
		part := make([]byte, 64<<10)
		n, err := b.from.Read(part)
		must(b.t, err)
		b.buf = append(b.buf, part[:n]...)
	}
}

// hear notes what the page does by itself.
func (b *browser) hear(method string, params json.RawMessage) {
	switch method {
	case "Network.requestWillBeSent":
		var r struct {
			Request struct {
				URL string `json:"url"`
			} `json:"request"`
		}
		if json.Unmarshal(params, &r) == nil {
			b.asked = append(b.asked, r.Request.URL)
		}
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
		b.said = append(b.said, string(params))
	}
}

// eval is what an expression is in the page, as JSON.
func (b *browser) eval(expression string, into any) {
	b.t.Helper()
	var out struct {
		Result struct {
			Value string `json:"value"`
		} `json:"result"`
		Fault json.RawMessage `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": "JSON.stringify(" + expression + ")"}, &out)
	if out.Fault != nil {
		b.t.Fatalf("%s: %s", expression, out.Fault)
	}
	if out.Result.Value != "" {
		must(b.t, json.Unmarshal([]byte(out.Result.Value), into))
	}
}

// until waits for an expression to be true. A page that is on its way has no body, so that expressions fail.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var is bool
		if b.eval("(() => { try { return !!("+expression+"); } catch { return false; } })()", &is); is {
			return
		}
		if time.Now().After(end) {
			var text string
			b.eval("String(document.body?.innerText)", &text)
			b.t.Fatalf("it does not come: %s; the page says %.2000s, and told %q", expression, text, b.said)
		}
	}
}

// text is what a panel shows.
func (b *browser) text(id string) (text string) {
	b.t.Helper()
	b.eval(`document.getElementById("panel-`+id+`").innerText`, &text)
	return strings.Join(strings.Fields(text), " ")
}

// In a real browser every panel shows the figures of --json, text of strangers is shown and not run, nobody else is asked for anything, and
// at the end of the job the report takes the page's place.
func TestInBrowser(t *testing.T) {
	h := scene(t, 3)
	h.servers = []served{{tables: []servedTable{{Name: "ids " + hostile, Rows: 1234, StoredRows: 10, Bytes: 4096, Pulled: 100, Missed: 25}}}, {fault: "it does not answer"}}
	serve(t, h)
	b := open(t, "data:text/html,<p>evil")
	b.refusesOthers(h.url())
	b.call("Page.navigate", map[string]any{"url": h.url()}, nil)
	b.until(`document.getElementById("panel-settings") && document.getElementById("panel-loss").chart`)
	log, err := runlog.Read("json", strings.NewReader(strings.Join(told(t, 3), "\n")))
	must(t, err)
	run := log.Runs()[0]
	for _, c := range []struct {
		panel  string
		at     int // of the chart's data; the first are the steps
		table  *runlog.Table
		field  string
		scaled func(i int, v float64) float64
	}{
		{"loss", 1, &run.Steps, "loss", nil}, {"loss", 2, &run.Epochs, "train_loss", nil}, {"loss", 3, &run.Epochs, "eval_loss", nil},
		{"metric", 1, &run.Epochs, "train_accuracy", nil}, {"metric", 2, &run.Epochs, "eval_accuracy", nil},
		{"rate", 1, &run.Steps, "samples_per_s", nil}, {"rate", 2, &run.Epochs, "samples_per_s", nil},
		{"density", 1, &run.Steps, "density", nil}, {"density", 2, &run.Epochs, "density", nil},
		// Bands lie one above the other: the first is the computation but for its waits, and the highest the sum.
		{"parts", 1, &run.Steps, "compute_ms", func(i int, v float64) float64 { return v - run.Steps.Column("data_wait_ms")[i] }},
		{"parts", 2, &run.Steps, "compute_ms", nil},
		{"parts", 5, &run.Steps, "exposed_comm_ms", func(_ int, v float64) float64 { return 6 + 0.5 + v + 0.5 }},
	} {
		var data [][]*float64
		b.eval(`document.getElementById("panel-`+c.panel+`").chart.data`, &data)
		found := 0
		for i, want := range c.table.Column(c.field) {
			if c.scaled != nil {
				want = c.scaled(i, want)
			}
			for k, x := range data[0] {
				if y := data[c.at][k]; *x == float64(c.table.Done[i]) {
					if found++; y == nil || math.Abs(*y-want) > 1e-9*math.Abs(want) {
						t.Errorf("%s %d at step %v: %v, want %v", c.panel, c.at, *x, y, want)
					}
				}
			}
		}
		if found != c.table.Len() || found == 0 {
			t.Errorf("%s %d: %d of %d records are shown", c.panel, c.at, found, c.table.Len())
		}
	}
	escaped := strings.Join(strings.Fields(hostile), " ")
	for panel, words := range map[string][]string{
		"loss": {"a batch of rank 0 0.1667", "test 0.4167", "step 12"}, "metric": {"Accuracy", "test 90.03%"}, "rate": {"1012 samples/s", "1234 samples/s"}, "progressive": {"the model predicts no clicks"},
		"cause": {"30%rank 1 holds up the others"},
		"parts": {"forward and backward 5 ms", "exposed exchange 15 ms"}, "density": {"steps 12%"}, "bytes": {"by a rank in a step 4.1 kB", "on the wire 235 kB"},
		"ranks": {"rank 0", "10 ms", "rank 1 holds up the others: its step takes 3.00 ms of its own more than theirs; it computes 3.00 ms longer"}, "layers": {"fc1" + escaped, "25%", "0.125", "4"},
		"faults": {"a remark: " + escaped}, "choices": {"dlgs fixed (2 buckets) 9.50 ms"}, "machine": {"host " + escaped}, "settings": {"training.batch 64", "data.dir " + escaped, "1 setting with default values"},
		"metric-2": {"Top-5 accuracy", "test 90%"}, "evaluation": {"no" + escaped + " 6 1", "yes 0 3"}, "worst": {"cats/" + escaped + ".png", "predicted no, true yes; loss 4.5"}, "columns": {"age" + escaped, "number; 2 missing", "category: 2 words: Bern, Zug"},
		"waits": {"others wait longest for rank 1: 3 ms of a step", "all 1 looks", "most: rank 0, waited for rank 1: 3 ms"}, "buckets": {"Step 2 of rank 0", "predicted 9.5 ms a step, this one 10"},
		"layer-times": {"share sent", "threshold", "norm of the residual", "most: fc1" + escaped + ", step 12: 4"},
		"servers":     {"0 ids " + escaped + " 1,234", "75%", "1 it does not answer"},
	} {
		for _, word := range words {
			if text := b.text(panel); !strings.Contains(text, word) {
				t.Errorf("panel %s shows %q, want %q", panel, text, word)
			}
		}
	}
	b.sameAsRecords(h, run)
	if len(panels) != 25 {
		t.Errorf("%d panels: look at the new ones here, too", len(panels))
	}
	b.until(`document.querySelector("#panel-worst img").naturalWidth == 1`)
	var bars []string
	b.eval(`[...document.querySelectorAll("#panel-columns .bars span")].map((s) => s.title + " " + s.firstChild.style.height)`, &bars)
	if got := strings.Join(bars, "|"); got != "16 to 24: 3 60%|24 to 32: 0 0%|32 to 40: 5 100%|Bern: 7 100%|Zug: 3 42.8571%" {
		t.Errorf("the bars of columns are %s", got)
	}
	var folded, missing string
	b.eval(`document.querySelector("#panel-settings details").textContent`, &folded)
	b.eval(`document.querySelector("#panel-columns .missing").title`, &missing)
	if folded != "1 setting with default valuestraining.seed1" || missing != "20% of the rows have no value" {
		t.Errorf("folded %q, missing %q", folded, missing)
	}
	// The same figures by keys.
	b.eval(`(document.querySelector("#panel-loss .chart").focus(), document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "Home"})))`, new(bool))
	b.until(`document.getElementById("panel-loss").innerText.includes("step 1") && document.getElementById("panel-loss").innerText.includes("a batch of rank 0 2")`)
	h.AddEvent("rank 1 has ended")
	b.until(`document.getElementById("panel-faults").innerText.includes("rank 1 has ended")`)
	for _, width := range []int{320, 1920, 3840} {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
		b.until(fmt.Sprintf(`innerWidth == %d && document.documentElement.scrollWidth <= %[1]d && [...document.querySelectorAll(".chart")].every((c) => c.querySelector("canvas").clientWidth <= c.clientWidth)`, width))
	}
	h.Identify("", "", nil) // nobody looks any more
	h.mu.Lock()
	for i := range 64 * mostBeats {
		h.beat(stepStats{Rank: i % 64, SendsSteps: true, Steps: 1, StepMS: 10, ComputeMS: number(6 + i%64/63*3), ExposedCommMS: 1}, nil)
	}
	h.looks.lastStep, h.looks.step, h.looks.last, h.looks.whole, h.looks.count = 0, steptrace.Step{}, nil, nil, 0
	var many []steptrace.RankWait
	for i := range 64 * 64 {
		many = append(many, steptrace.RankWait{Rank: i / 64, For: i % 64, MS: 0.1 + float64(i%64)/63})
	}
	h.waited(many)
	h.mu.Unlock()
	b.eval(`(document.querySelectorAll("#panel-waits canvas").forEach((c) => c.dispatchEvent(new Event("blur"))), true)`, new(bool))
	b.until(`document.querySelector("#panel-waits .told")?.textContent.includes("waited for rank 63: 1.1 ms") && document.getElementById("panel-waits").innerText.includes("others wait longest for rank 63")`)
	b.until(`document.querySelectorAll("#panel-ranks canvas").length == 64 && document.querySelectorAll("#panel-ranks .slow").length == 1`)
	if text := b.text("ranks"); !strings.Contains(text, "rank 63 holds up the others") {
		t.Errorf("of 64 ranks: %s", text)
	}
	var took float64 // of drawing all panels anew, as a resynchronised browser does
	b.eval(`(() => { const begun = performance.now(); dispatchEvent(new Event("resize")); return performance.now() - begun; })()`, &took)
	t.Logf("64 ribbons are drawn in %.1f ms", took)
	go h.Close(errors.New("it failed: " + hostile))
	b.until(`document.title.includes("ringo report") && document.body.innerText.includes("it failed: <script>")`)
	b.until(`document.querySelectorAll("#charts figure canvas").length >= 4 && document.querySelectorAll("#charts .legend b").length >= 4 && document.querySelectorAll("#charts .heat td").length == 4 && document.querySelectorAll("#charts .card").length == 3 && document.querySelector("#charts img").naturalWidth == 1`)
	var saved []string
	b.eval(`(() => { const out = []; HTMLAnchorElement.prototype.click = function () { out.push(this.download, this.href.slice(0, 22), String(this.href.length > 5000)); }; document.querySelector("#charts button").click(); return out; })()`, &saved)
	if got := strings.Join(saved, " "); got != "step-loss.png data:image/png;base64, true" {
		t.Errorf("the report saves a chart as %q", got)
	}
	var ran bool
	if b.eval("window.ran == 1", &ran); ran {
		t.Error("a stranger's text was run")
	}
	for _, address := range b.asked {
		if u, err := url.Parse(address); err != nil || u.Host != h.site.web.At() && u.Scheme != "data" && u.Scheme != "about" {
			t.Errorf("the page asks for %s", address)
		}
	}
	if len(b.said) > 0 {
		t.Errorf("the browser tells of faults: %q", b.said)
	}
}

// sameAsRecords compares what pictures tell, part by part, with records of --json.
func (b *browser) sameAsRecords(h *Collector, run *runlog.Run) {
	b.t.Helper()
	parts := func(panel string, picture int) (texts []string) {
		b.eval(fmt.Sprintf(`(() => { const c = document.querySelectorAll("#panel-%s canvas")[%d], out = []; c.dispatchEvent(new KeyboardEvent("keydown", {key: "Home"}));
			for (let last; ; ) { const text = c.parentElement.querySelector(".told").textContent; if (out.length && text === out[out.length - 1]) return out; out.push(text); c.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"})); } })()`, panel, picture), &texts)
		return texts
	}
	same := func(what string, got, want []string) {
		if strings.Join(got, "|") != strings.Join(want, "|") {
			b.t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	w, ok := h.Waits()
	if !ok {
		b.t.Fatal("nobody waits")
	}
	for picture := range 2 {
		var want []string
		for i, row := range w.WaitMS {
			for k, ms := range row {
				want = append(want, fmt.Sprintf("rank %d, waited for rank %d: %v ms", w.Ranks[i], w.Ranks[k], ms))
			}
		}
		same("waits", parts("waits", picture), want)
	}
	step, ok := steptrace.StepOf(0, recorded(0, 3).Glance(steptrace.WholeStepEvents))
	if !ok {
		b.t.Fatal("no step")
	}
	var want []string
	for _, lane := range []struct{ label, phases string }{{"data and servers", "data wait"}, {"forward, backward", "forward backward"}, {"codecs", "compress"}, {"exchange", "exchange"}, {"update", "update"}} {
		now := -1.
		for _, x := range step.Bars {
			if x.Phase == "wait" || !strings.Contains(lane.phases, x.Phase) {
				continue
			}
			ready := ""
			if lane.label == "exchange" && x.StartMS < now {
				ready = fmt.Sprintf(", ready at %v ms", x.StartMS)
				x.StartMS = now
			}
			now = x.EndMS
			want = append(want, fmt.Sprintf("%s, %s: %v to %v ms%s", lane.label, cmp.Or(x.Name, x.Phase), x.StartMS, x.EndMS, ready))
		}
	}
	want = append(want, "predicted: forward, backward, forward: 0 to 2 ms", "predicted: forward, backward, backward: 2 to 5 ms", "predicted: codecs, bucket 0: 3 to 3.5 ms",
		"predicted: exchange, bucket 0: 3.5 to 6 ms", "predicted: exchange, bucket 1: 6 to 8.5 ms")
	same("buckets", parts("buckets", 0), want)
	want = nil
	for _, name := range []string{"fc1" + hostile, "fc2"} {
		for epoch := range 3 {
			norm := 2.5 + float64(epoch+1)/2
			if name == "fc2" {
				norm = 1
			}
			want = append(want, fmt.Sprintf("%s, step %d: %v", name, run.Epochs.Done[epoch], norm))
		}
	}
	same("layers", parts("layer-times", 2), want)
}

// refusesOthers looks from the page of another site, which can read nothing of ours. Whatever it does, the browser tells.
func (b *browser) refusesOthers(ours string) {
	b.t.Helper()
	b.until(`document.body.innerText.includes("evil")`)
	b.eval(`(window.got = [], ["state", "events", "page.js"].forEach((p) => fetch("`+ours+`" + p).then((r) => r.text()).then((x) => got.push(x), () => got.push("refused"))), true)`, new(bool))
	b.eval(`(window.script = document.createElement("script"), script.src = "`+ours+`page.js", script.onload = () => got.push("run"), script.onerror = () => got.push("refused"), document.body.append(script), true)`, new(bool))
	b.until(`got.length == 4`)
	var got []string
	if b.eval("got", &got); strings.Join(got, " ") != "refused refused refused refused" {
		b.t.Errorf("another site reads %.300q", got)
	}
	b.asked, b.said = nil, nil
}
