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
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo/internal/launch"
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

// TestServeReadsRunningServers: with --live answers follow the training on parameter servers, a
// hung and a lost server are a 503 with its name, and answers return with the server and with the
// resumed job.
func TestServeReadsRunningServers(t *testing.T) {
	t.Parallel()
	run := filepath.Join(t.TempDir(), "run")
	job := start(t, "train ctr-dnn --data synthetic --sync async --servers 2 --np 1 --train-limit 2000 --eval-limit 100 --epochs 100000 --heartbeat-timeout 100s --checkpoint "+run+" --checkpoint-every 10")
	awaitSteps(job, run, 1)
	p := start(t, "serve "+run+" --live --http 127.0.0.1:0 --watch 0 --timeout 8s")
	p.await(&p.errs, "metrics: http://")
	address := serveAddress.FindStringSubmatch(p.errs.String())[1]
	row := []string{}
	for i := range 39 {
		kind, value := "I", "1"
		if i >= 13 {
			kind, value = "C", `"a"`
		}
		row = append(row, fmt.Sprintf(`"%s%d":%s`, kind, i%13+1+i/26*13, value))
	}
	body := "{" + strings.Join(row, ",") + "}"
	ask := func() (status int, text string) {
		res, err := http.Post(address+"/predict", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(b)
	}
	last := ""
	awaitStatus := func(what string, want int, parts ...string) {
		t.Helper()
		eventually(t, what, func() bool {
			var status int
			status, last = ask()
			return status == want && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(last, part) })
		})
	}
	awaitStatus("an answer", 200)
	eventually(t, "another answer of the same version", func() bool { status, now := ask(); return status == 200 && now != last })

	server := job.process(launch.TableVar, 1)
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitStatus("an error of the hung server", 503, "server 1 (127.0.0.1:", "no answer within 4s")
	if err := syscall.Kill(server, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	awaitStatus("answers of the server that continues", 200)

	if err := job.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	job.wait()
	awaitStatus("an error after the job", 503, "parameter server")
	again := start(t, "train ctr-dnn --resume --checkpoint "+run)
	awaitStatus("answers of the resumed job", 200)
	for _, p := range []*program{again, p} {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	again.wait()
	p.checkEnd(0)
	checkRefused(t, 1, "serve "+run+" --live --http 127.0.0.1:0", "no parameter servers of `ringo train --servers N --checkpoint` are running")
	checkRefused(t, 1, "serve "+servable(t)+" --live", "its run had no parameter servers to read from")
}
