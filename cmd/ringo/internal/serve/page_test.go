package serve

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/train"
)

// pictures names a folder for the picture of TestPageOfATable. That of docs/serving.md is made by
//
//	go test ./cmd/ringo/internal/serve -run TestPageOfATable -pictures ../../../../docs/pictures
var pictures = flag.String("pictures", "", "a folder for a picture of the page")

// picture writes what the browser shows, with RUN for the run's folder, and the checksum of the page
// beside it.
func (b *browser) picture(run string) {
	b.t.Helper()
	var shot struct{ Data string }
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1000, "height": 500, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.eval(fmt.Sprintf(`[...document.querySelectorAll("body *")].filter((e) => !e.children.length).forEach((e) => { e.textContent = e.textContent.replace(%q, "RUN"); })`, run))
	b.until("innerWidth == 1000")
	b.call("Page.captureScreenshot", map[string]any{"format": "webp", "quality": 60}, &shot)
	text, err := base64.StdEncoding.DecodeString(shot.Data)
	err = errors.Join(err, os.WriteFile(filepath.Join(*pictures, "serve.webp"), text, 0o666), os.WriteFile(filepath.Join(*pictures, "serve.sum"), []byte(pageSum()), 0o666))
	if err != nil {
		b.t.Fatal(err)
	}
}

func pageSum() string { return fmt.Sprintf("%x\n", sha256.Sum256(page)) }

// TestPictureIsOfThisPage: the picture in the documents was made from the page as it is.
func TestPictureIsOfThisPage(t *testing.T) {
	sum, err := os.ReadFile("../../../../docs/pictures/serve.sum")
	if err != nil || string(sum) != pageSum() {
		t.Errorf("%v: the page has changed since its picture was made: make it anew with -pictures", err)
	}
	if info, err := os.Stat("../../../../docs/pictures/serve.webp"); err != nil || info.Size() > 100_000 {
		t.Error(info, err)
	}
}

// browser is a Chromium without a window, controlled over pipes by the DevTools protocol.
type browser struct {
	t        *testing.T
	to, from *os.File
	buf      []byte
	calls    int
	session  string
	asked    []string // addresses of the page's requests
	messages []string // of the console
}

// open starts a browser with a page. It skips the test without Chromium.
func open(t *testing.T, address string) *browser {
	t.Helper()
	name, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("SKIPPED: no chromium here: the page is not opened in a browser")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	theirs, to, err := os.Pipe()
	must(err)
	from, ends, err := os.Pipe()
	must(err)
	profile, err := os.MkdirTemp("", "ringo-browser")
	must(err)
	cmd := exec.Command(name, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, ends}
	must(cmd.Start())
	_, _ = theirs.Close(), ends.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_, _, _ = to.Close(), from.Close(), os.RemoveAll(profile)
	})
	must(from.SetReadDeadline(time.Now().Add(2 * time.Minute)))
	b := &browser{t: t, to: to, from: from}
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Runtime", "Log", "Page", "Network"} {
		b.call(domain+".enable", map[string]any{}, nil)
	}
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	return b
}

// call calls a method of the protocol.
func (b *browser) call(method string, params map[string]any, answer any) {
	b.t.Helper()
	b.calls++
	m := map[string]any{"id": b.calls, "method": method, "params": params}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	for err == nil {
		at := bytes.IndexByte(b.buf, 0)
		if at < 0 {
			part := make([]byte, 64<<10)
			var n int
			n, err = b.from.Read(part)
			b.buf = append(b.buf, part[:n]...)
			continue
		}
		var got struct {
			ID     int
			Method string
			Params struct{ Request struct{ URL string } }
			Result json.RawMessage
			Error  json.RawMessage
		}
		message := b.buf[:at]
		b.buf = b.buf[at+1:]
		if err = json.Unmarshal(message, &got); err != nil {
			break
		}
		switch {
		case got.ID == b.calls && got.Error != nil:
			b.t.Fatalf("%s: %s", method, got.Error)
		case got.ID == b.calls:
			if answer != nil {
				err = json.Unmarshal(got.Result, answer)
			}
			if err == nil {
				return
			}
		case got.Method == "Network.requestWillBeSent":
			b.asked = append(b.asked, got.Params.Request.URL)
		case got.Method == "Runtime.exceptionThrown" || got.Method == "Runtime.consoleAPICalled" || got.Method == "Log.entryAdded":
			b.messages = append(b.messages, string(message))
		}
	}
	b.t.Fatalf("%s: %v", method, err)
}

// eval returns the text of an expression in the page.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var out struct {
		Result           struct{ Value string }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")"}, &out)
	return out.Result.Value
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); b.eval("(() => { try { return !!("+expression+"); } catch { return false; } })()") != "true"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("not true: %s; the page has %.2000s, and the console %q", expression, b.eval("document.body?.innerText"), b.messages)
		}
	}
}

// checkQuiet wants requests to the server alone, and an empty console.
func (b *browser) checkQuiet(s *server) {
	b.t.Helper()
	for _, address := range b.asked {
		if !strings.HasPrefix(address, s.at+"/") && !strings.HasPrefix(address, "data:") {
			b.t.Errorf("the page requests %s", address)
		}
	}
	if len(b.messages) > 0 {
		b.t.Errorf("console: %q", b.messages)
	}
}

// TestPageOfATable: the form has an input for each column, and shows the server's prediction,
// errors and unknown words as text.
func TestPageOfATable(t *testing.T) {
	path := people(t, 300, columns)
	run := trained(t, "mlp", path, nil)
	s := serve(t, run, nil)
	b := open(t, s.at+"/")
	b.until(`document.querySelectorAll("#fields select option").length == 5`)
	b.eval(`(document.getElementById("in-age").value = 31, document.getElementById("in-income").value = 12.5, document.getElementById("in-city").value = "2", document.querySelector("button.main").click())`)
	b.until(`document.getElementById("bars").children.length == 2`)
	_, text := s.post("/predict?top=2", `{"age":31,"city":"Rome","income":12.5}`)
	var want struct {
		Predictions []struct {
			Prediction string
			Top        map[string]float64
		}
	}
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	p := want.Predictions[0]
	got := b.eval(`document.getElementById("prediction").innerText + " " + document.getElementById("bars").innerText`)
	if !strings.HasPrefix(got, p.Prediction+" "+p.Prediction) || !strings.Contains(got, fmt.Sprintf("%.2f %%", 100*p.Top[p.Prediction])) {
		t.Errorf("the page has %q, want %s", got, text)
	}
	if *pictures != "" {
		b.picture(run.Checkpoint.Dir)
	}
	if curl := b.eval(`document.getElementById("curl").innerText`); !strings.Contains(curl, `curl --json '{"age":31,"city":"Rome","income":12.5}' '`+s.at+"/predict?top=2'") {
		t.Errorf("curl: %s", curl)
	}
	b.eval(`(document.getElementById("in-city").value = "other", document.getElementById("in-city").onchange(), document.getElementById("in-city-other").value = "<script>window.ran=1</script>", document.querySelector("button.main").click())`)
	b.until(`document.getElementById("note").innerText.includes("<script>")`)
	if b.eval("window.ran") != "undefined" {
		t.Error("a text was run")
	}
	for _, width := range []int{320, 1920} {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
		b.until(fmt.Sprintf("innerWidth == %d && document.documentElement.scrollWidth <= %[1]d", width))
	}
	b.checkQuiet(s)
	b.eval(`(document.getElementById("in-age").value = "1e300", document.querySelector("button.main").click())`)
	b.until(`document.getElementById("error").innerText.includes('column "age"')`)
}

// TestPageOfDigits: a digit drawn with the mouse becomes centred pixels and a prediction.
func TestPageOfDigits(t *testing.T) {
	run := trained(t, "mnist", data.Synthetic, func(c *train.Config) { c.TrainLimit, c.EvalLimit = 256, 64 })
	s := serve(t, run, nil)
	b := open(t, s.at+"/")
	b.until(`document.querySelector("canvas")`)
	var box struct{ X, Y, Width, Height float64 }
	if err := json.Unmarshal([]byte(b.eval(`JSON.stringify(document.querySelector("canvas").getBoundingClientRect())`)), &box); err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // a vertical line at the left edge
		kind := map[int]string{0: "mousePressed", 19: "mouseReleased"}[i]
		if kind == "" {
			kind = "mouseMoved"
		}
		b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "button": "left", "buttons": 1, "clickCount": 1, "x": box.X + 20, "y": box.Y + box.Height*(0.1+0.8*float64(i)/19)}, nil)
	}
	b.until(`document.getElementById("bars").children.length == 5`)
	var pixels []float64
	if err := json.Unmarshal([]byte(b.eval(`JSON.stringify(readers[0]())`)), &pixels); err != nil || len(pixels) != 784 {
		t.Fatal(len(pixels), err)
	}
	mass, x, y := 0.0, 0.0, 0.0
	for i, v := range pixels {
		mass, x, y = mass+v, x+v*float64(i%28), y+v*float64(i/28)
	}
	if x, y = x/mass, y/mass; x < 12.5 || x > 14.5 || y < 12.5 || y > 14.5 || mass < 255*20 {
		t.Errorf("the mass %v of the drawing is at %v, %v", mass, x, y)
	}
	b.checkQuiet(s)
}

// TestPageOfClicks: the form takes numbers and keys, and shows the probability of a click.
func TestPageOfClicks(t *testing.T) {
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"train.txt": datatest.ClickText(400), "test.txt": datatest.ClickText(100)})
	run := trained(t, "ctr-dnn", dir, func(c *train.Config) { c.Batch = 32 })
	s := serve(t, run, nil)
	line := strings.Split(strings.SplitN(string(datatest.ClickText(1)), "\n", 2)[0], "\t")
	path := filepath.Join(t.TempDir(), "one.txt")
	datatest.Write(t, filepath.Dir(path), map[string][]byte{"one.txt": []byte(strings.Join(line, "\t") + "\n")})
	var p struct{ Probability float64 }
	if err := json.Unmarshal([]byte("{"+predicted(t, run, path, 1)[0]), &p); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.at+"/")
	b.until(`document.querySelectorAll("#fields input").length == 39`)
	fields, err := json.Marshal(line[1:])
	if err != nil {
		t.Fatal(err)
	}
	b.eval(fmt.Sprintf(`(%s.forEach((v, i) => { document.querySelectorAll("#fields input")[i].value = v; }), document.querySelector("button.main").click())`, fields))
	b.until(fmt.Sprintf(`document.getElementById("prediction").innerText == "%.3f %%"`, 100*p.Probability))
	b.checkQuiet(s)
}
