package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/server/export/exporttest"
)

// kept trains a small click model on servers that keep it, and returns their folder.
func kept(t *testing.T, flags string) (dir string, sum map[string]any) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "ps")
	return dir, runSummary(t, fewClicks+"--np 2 --sync bsp --ps-durability checkpoint --ps-dir "+dir+" "+flags)
}

// What two servers have saved is shown and exported, the same in both formats, and jobs of any number of
// servers begin with it and come to the same bits.
func TestSavedByServers(t *testing.T) {
	t.Parallel()
	two, _ := kept(t, "--servers 2")
	status, out, errs := command(t, "ps show "+two)
	if status != 0 || errs != "" {
		t.Fatalf("status %d: %s", status, errs)
	}
	checkHolds(t, "stdout", out, two+": 2 servers of job ", " for 2 trainers, bsp, durability checkpoint\n", "table embedding: ", " rows of 10 weights, adagrad",
		"array dense: ", "\nserver 1: ", ", after step 7\n", "  checkpoint 1, ", ": whole, ")
	_, out, _ = command(t, "ps show --json - "+two)
	var shown struct {
		Tables  []struct{ Rows int64 }
		Servers []struct{ Checkpoints []struct{ Bytes int64 } }
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Servers) != 2 || shown.Tables[0].Rows < 1000 || shown.Servers[0].Checkpoints[0].Bytes < 1000 {
		t.Errorf("%v: %s", err, out)
	}
	binary, text := filepath.Join(t.TempDir(), "rows.bin"), ""
	status, out, errs = command(t, "ps export --format binary --progress plain --out "+binary+" "+two)
	if want := fmt.Sprintf("%s has %s rows of embedding with 10 weights each\n", binary, cli.Grouped(int(shown.Tables[0].Rows))); status != 0 || out != want {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	checkHolds(t, "stderr", errs, "embedding: "+cli.Grouped(int(shown.Tables[0].Rows))+" rows\n")
	if status, text, errs = command(t, "ps export --table embedding --progress none --out - "+two); status != 0 || errs != "" {
		t.Errorf("status %d: %s", status, errs)
	}
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	var again strings.Builder
	if _, _, err := exporttest.Read(bytes.NewReader(b), int64(len(b)), func(key uint64, weights []float32) error {
		fmt.Fprint(&again, key)
		for _, w := range weights {
			fmt.Fprintf(&again, " %v", w)
		}
		fmt.Fprintln(&again)
		return nil
	}); err != nil || again.String() != text || text == "" {
		t.Errorf("%v; the formats differ: %d and %d bytes", err, again.Len(), len(text))
	}
	three, want := kept(t, "--servers 3 --set ps.init-from="+two)
	_, got := kept(t, "--servers 1 --set ps.init-from="+two)
	if got["params_sha256"] != want["params_sha256"] || want["params_sha256"] == nil {
		t.Errorf("sha256 %v and %v", got["params_sha256"], want["params_sha256"])
	}
	_, want = kept(t, "--servers 2 --set ps.init-from="+three)
	if _, got = kept(t, "--servers 1 --set ps.init-from="+three); got["params_sha256"] != want["params_sha256"] || want["params_sha256"] == nil {
		t.Errorf("sha256 %v and %v", got["params_sha256"], want["params_sha256"])
	}
	checkRefused(t, exitFailed, "ps export --table users --out - "+two, `has no table "users": it has "embedding"`)
	checkRefused(t, exitFailed, "ps export --out "+filepath.Join(two, "none", "x")+" "+two, "no such file or directory")
	if err := os.RemoveAll(filepath.Join(two, "server-1")); err != nil {
		t.Fatal(err)
	}
	checkRefused(t, exitFailed, "ps show "+two, "server-1 is missing: the job had 2 servers")
	p := start(t, fewClicks+"--np 2 --sync bsp --set ps.init-from="+two)
	p.checkEnd(exitFailed, "ringo: parameter server 0 failed: ", "server-1 is missing: the job had 2 servers", "; ranks 0 and 1 ended because of it")
}

// A server that is killed more often than it replays its log from the beginning makes progress by its
// checkpoints, and the job comes to the bits of one that nothing has disturbed. What is left of a job whose
// servers were killed is recovered.
func TestKeeperKilledOften(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("TestKeeperKilled, again and again")
	}
	line := "train mlp:20 --data synthetic --epochs 45 --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none --np 2 "
	want := runSummary(t, line+"--transport mem --collective-algorithm naive")["params_sha256"]
	dir := t.TempDir()
	steps := newPipe(t)
	p := start(t, line+"--servers 1 --sync bsp --ps-durability wal --set ps.checkpoint-every=20ms --set job.max-restarts=9 --ps-dir "+dir+" --log-every 1 --json "+steps.Name())
	lines := bufio.NewScanner(steps) // rank 0 waits for it, so that the job cannot end before the kills
	for epochs, kills := 0, 0; kills < 6 && lines.Scan(); {
		if !strings.Contains(lines.Text(), `"event":"epoch"`) {
			continue
		}
		if epochs++; epochs == 2+3*kills {
			kills++
			if err := syscall.Kill(p.keeper(0), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.await(&p.errs, fmt.Sprintf("it is started again (%d of 9)", kills))
		}
	}
	go func() { _, _ = io.Copy(io.Discard, steps) }()
	p.checkEnd(0)
	if got := sha(t, p.out.String()); got != want {
		t.Errorf("sha256 %s, want %s", got, want)
	}
	_, out, _ := command(t, "ps show "+dir)
	if n := regexp.MustCompile(`checkpoint (\d+), `).FindStringSubmatch(out); n == nil || len(n[1]) < 1 || n[1] == "1" || n[1] == "2" {
		t.Errorf("hardly any checkpoints:\n%s", out)
	}
	dir = t.TempDir()
	p = start(t, endless+"--np 1 --sync bsp --ps-durability wal --ps-dir "+dir)
	p.await(&p.out, "epoch       3/")
	if err := syscall.Kill(p.keeper(0), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(exitFailed, "parameter server 0 is lost")
	checkHolds(t, "ringo ps show", second(command(t, "ps show "+dir)), "; its log is ")
	cut := t.TempDir() // to a third
	if err := os.CopyFS(cut, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	segments, _ := filepath.Glob(filepath.Join(cut, "server-0", "log", "segment-*"))
	last := segments[len(segments)-1]
	if info, err := os.Stat(last); err != nil || os.Truncate(last, info.Size()/3) != nil {
		t.Fatal(err)
	}
	checkHolds(t, "ringo ps show", second(command(t, "ps show "+cut)), "; the log has lost its end: it ends with record ")
	checkRefused(t, exitFailed, "ps recover "+cut, "server 0 of 1: the log has lost its end: it ends with record ", "or remove "+filepath.Join(cut, "server-0", "log", "acknowledged"))
	checkHolds(t, "ringo ps recover", second(command(t, "ps recover "+dir)), "server 0 of 1: its log ends with record ", "; it was not closed, and has all records that were acknowledged (up to ",
		"server 0 of 1: checkpoint 2 has ", " records of the log more\n")
	checkHolds(t, "ringo ps recover", second(command(t, "ps recover "+dir)), "server 0 of 1: its checkpoint 2 has all\n")
	checkRefused(t, exitFailed, "ps export --out x "+dir, "has no tables, arrays only")
}

// newPipe returns a named pipe, which holds 64 KiB and has an end when the test has one.
func newPipe(t *testing.T) *os.File {
	path := filepath.Join(t.TempDir(), "pipe")
	err := unix.Mkfifo(path, 0o600)
	f, openErr := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err = errors.Join(err, openErr); err == nil {
		err = f.SetReadDeadline(time.Now().Add(patience))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func second(_ int, out, _ string) string { return out }

// Servers answer and take commands at the job's address.
func TestKeepersOverHTTP(t *testing.T) {
	dir := t.TempDir()
	p := start(t, endless+"--verbose --np 2 --servers 2 --sync async --ps-durability checkpoint --http 127.0.0.1:0 --ps-dir "+dir)
	p.await(&p.out, "epoch       2/")
	url := pageAddress.FindStringSubmatch(p.errs.String())[1]
	for server := range 2 {
		for _, c := range []struct {
			method, path string
			status       int
			want         string
		}{
			{"GET", "/healthz", 200, `"state": "up"`}, {"GET", "/stats", 200, `"mode": "async"`}, {"GET", "/metrics", 200, "ringo_ps_up{server="}, {"POST", "/save?delta=true", 200, `"number": 1`},
			{"GET", "/save", 405, ""}, {"GET", "/shrink", 405, ""}, {"POST", "/shrink", 200, `"deleted_rows": 0`}, {"POST", "/shrink?days=0", 400, "want a number from 1"},
		} {
			req, err := http.NewRequest(c.method, fmt.Sprintf("%sservers/%d%s", url, server, c.path), nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			_, _ = b.ReadFrom(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != c.status || !strings.Contains(b.String(), c.want) {
				t.Errorf("%s %s: %d %s", c.method, c.path, res.StatusCode, &b)
			}
		}
	}
	p.cmd.Process.Signal(os.Interrupt)
	p.checkEnd(exitInterrupted, "[ps 1] ringo: server 1: POST /shrink from the launcher: days passed: 1, rows deleted: 0\n", "[ps 0] parameter server 0 of 2 was told to end: ", "its newest checkpoint is number 3\n")
	checkHolds(t, "ringo ps show", second(command(t, "ps show "+dir)), "2 servers of job", "durability checkpoint")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	name, value, _ := strings.Cut(ticket(), "=")
	t.Setenv(name, value)
	checkRefused(t, exitFailed, "server --index 0 --np 1 --sync bsp --ps-addresses "+busy.Addr().String(), "--ps-addresses has the place of parameter server 0, where it cannot listen: listening on "+busy.Addr().String())
	checkRefused(t, exitFailed, "server --index 0 --np 1 --sync bsp --ps-addresses "+freeport.Address(t)+" --http "+busy.Addr().String(), "--http "+busy.Addr().String()+": cannot listen at "+busy.Addr().String(), "address already in use")
}

func TestKeepUsage(t *testing.T) {
	t.Setenv(launch.AdminTokenVar, "too short")
	checkRefused(t, exitUsage, synthetic+"--np 2 --sync bsp --http 127.0.0.1:0", "RINGO_HTTP_TOKEN has 9 characters: want at least 16")
	dir := t.TempDir()
	checkRefused(t, exitFailed, "ps show "+dir, "has no folder server-0: want the folder of a job's servers")
	checkRefused(t, exitFailed, "ps show "+filepath.Join(dir, "none"), "no such file or directory")
}

// TestRefusedJobLeavesNoServer: a job of more servers than another in the same folder is refused,
// and the other job's folder is as before.
func TestRefusedJobLeavesNoServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := fewClicks + "--np 1 --sync bsp --ps-durability checkpoint --ps-dir " + dir
	runSummary(t, line+" --servers 1")
	status, _, errs := command(t, line+" --servers 2")
	if status != exitFailed {
		t.Errorf("status %d", status)
	}
	checkHolds(t, "stderr", errs, "server-0/JOB: the folder is of another ", "choose another", "ps.init-from")
	status, out, errs := command(t, "ps show "+dir)
	if status != 0 {
		t.Fatal(errs)
	}
	checkHolds(t, "ps show", out, dir+": 1 server of job")
}
