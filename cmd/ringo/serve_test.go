package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// servable trains a model on a table with the columns of docs/serving.md, and returns the folder.
func servable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path, run := filepath.Join(dir, "people.csv"), filepath.Join(dir, "run")
	var text strings.Builder
	text.WriteString("age,city,income,bought\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "%d,%s,%d.5,%s\n", 20+i*7%60, []string{"Oslo", "Rome", "Bern"}[i%3], i*13%100, []string{"no", "yes", "no", "no", "yes"}[i*i%5])
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := command(t, "train mlp --data "+path+" --checkpoint "+run+" --epochs 1"); status != 0 {
		t.Fatal(errs)
	}
	return run
}

var serveAddress = regexp.MustCompile(`form: (http://127\.0\.0\.1:\d+)/`)

// serving starts `ringo serve` at a free port, and returns the address.
func serving(t *testing.T, flags string, env ...string) (p *program, address string) {
	t.Helper()
	p = start(t, "serve "+servable(t)+" --http 127.0.0.1:0 "+flags, env...)
	p.await(&p.errs, "metrics: http://")
	return p, serveAddress.FindStringSubmatch(p.errs.String())[1]
}

// TestServePageIsReal: the requests of docs/serving.md have the answers of the page, except for the
// digits.
func TestServePageIsReal(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("SKIPPED: no curl here: the examples of docs/serving.md are not run")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "serving.md"))
	if err != nil {
		t.Fatal(err)
	}
	p, address := serving(t, "")
	digits := regexp.MustCompile(`-?\d+(\.\d+)?(e-\d+)?`)
	lines, examples := strings.Split(string(page), "\n"), 0
	for i, line := range lines {
		line, is := strings.CutPrefix(line, "    curl ")
		if !is {
			continue
		}
		examples++
		line = strings.ReplaceAll(line, "http://127.0.0.1:8080", address)
		got, err := exec.Command("sh", "-c", "curl --silent --show-error "+line).CombinedOutput()
		normal := func(text string) string {
			text = strings.NewReplacer(`"yes"`, "CLASS", `"no"`, "CLASS").Replace(strings.TrimSpace(text))
			return digits.ReplaceAllString(text, "N")
		}
		if want := normal(lines[i+1]); err != nil || normal(string(got)) != want {
			t.Errorf("%s\n%s, %v\nwant\n%s", line, got, err, lines[i+1])
		}
	}
	if examples < 4 {
		t.Errorf("%d examples", examples)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(0, "finishing the accepted requests")
}

// TestServeTakesNewerCheckpoints: a checkpoint that appears in the folder replaces the model, and a
// damaged one does not.
func TestServeTakesNewerCheckpoints(t *testing.T) {
	run := servable(t)
	files, err := filepath.Glob(filepath.Join(run, "step-*.ringo"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	p := start(t, "serve "+run+" --http 127.0.0.1:0 --watch 20ms")
	p.await(&p.errs, "metrics: http://")
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, text []byte) {
		t.Helper()
		new := filepath.Join(run, name+".new")
		if err := os.WriteFile(new, text, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(new, filepath.Join(run, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("step-000000998.ringo", text)
	p.await(&p.errs, "step-000000998.ringo of step ")
	put("step-000000999.ringo", text[:len(text)/2])
	p.await(&p.errs, "cannot replace "+filepath.Join(run, "step-000000998.ringo")+", which continues: ")
	checkHolds(t, "stderr", p.errs.String(), "step-000000999.ringo")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(0)
}

// TestServeNeedsItsToken: with a token in the environment, predictions need it and health does not,
// and an address of other hosts needs a token.
func TestServeNeedsItsToken(t *testing.T) {
	const token = "0123456789abcdef"
	p, address := serving(t, "--name m", "RINGO_HTTP_TOKEN="+token)
	for _, c := range []struct {
		method, path, header string
		status               int
	}{
		{"GET", "/v2/health/ready", "", 200}, {"GET", "/metrics", "", 200}, {"GET", "/v2/models/m", "", 403}, {"POST", "/predict", "", 403}, {"GET", "/", "", 403},
		{"GET", "/v2/models/m", token, 200}, {"GET", "/" + token + "/v2/models/m", "", 200}, {"GET", "/" + token + "/", "", 200}, {"GET", "/v2/models/mlp", token, 404},
	} {
		r, err := http.NewRequest(c.method, address+c.path, bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		if c.header != "" {
			r.Header.Set("Authorization", "Bearer "+c.header)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, res.StatusCode, text, c.status)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(0)
}

// TestServeRejectsFlags: impossible limits, addresses and files are errors before a port is open.
func TestServeRejectsFlags(t *testing.T) {
	run := servable(t)
	for line, want := range map[string]string{
		"serve": "needs one checkpoint", "serve " + run + " --batch 0": "--batch 0: want at least 1", "serve " + run + " --queue 5": "--queue 5: want at least the rows of a request",
		"serve " + run + " --http 0.0.0.0:0": "other hosts can reach this address: set RINGO_HTTP_TOKEN", "serve " + run + " --http 8080": "want HOST:PORT",
		"serve " + run + " --timeout 1h": "--timeout 1h0m0s: want 1ms to", "serve " + run + " --max-memory 5": "--max-memory 5: want at least",
	} {
		checkRefused(t, exitUsage, line, want)
	}
	if status, _, errs := command(t, "serve "+filepath.Join(run, "none")); status == 0 || !strings.Contains(errs, "none") {
		t.Errorf("no folder: %d %s", status, errs)
	}
}
