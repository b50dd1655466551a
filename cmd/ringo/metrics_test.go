package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/httpguard"
)

// An address that is not to be had is a fault before anything is trained, with one process and with several.
func TestMetricsNeedTheirAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, line := range []string{"train mlp " + small + "--np 1", "train mlp " + small + "--np 2"} {
		checkRefused(t, exitFailed, line+" --http "+l.Addr().String(), "--http", l.Addr().String(), "address already in use")
	}
	for _, bad := range []string{"9400", "host:", "host:99999", "127.0.0.1:http"} {
		checkRefused(t, exitUsage, "train mlp "+small+"--http "+bad, "--http", "want HOST:PORT")
	}
}

// Flags of earlier versions are names of --http, which has one value.
func TestFormerAddressesAreOne(t *testing.T) {
	checkRefused(t, exitUsage, "train mlp "+small+"--page :8080 --metrics :9400", "--metrics: 0.0.0.0:9400 with --page :8080: both are --http now, which has one value: give that")
	checkRefused(t, exitUsage, "train mlp "+small+"--page :8080 --set output.pprof=:0", "output.pprof: :0 with --page :8080")
	p := start(t, "train mlp "+small+"--np 1 --page :0 --set output.pprof=:0")
	p.checkEnd(0)
	checkHolds(t, "what is printed", p.errs.String(), "ringo: names of earlier versions, accepted until 1.0: --page is --http; output.pprof is output.http\n", "ringo: dashboard: http://127.0.0.1:")
}

// metricsOf is what is answered at an address, "" before there is anybody.
func metricsOf(address string) string {
	w, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer w.Body.Close()
	text, _ := io.ReadAll(w.Body)
	return string(text)
}

// holdsAll says that a text has all lines that match.
func holdsAll(text string, lines ...string) bool {
	for _, line := range lines {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(text) {
			return false
		}
	}
	return true
}

// A launcher answers for its ranks, and nothing is left when the job has ended.
func TestMetricsOfAJob(t *testing.T) {
	t.Parallel()
	at := freeport.Address(t)
	p := start(t, "train mlp --data synthetic --epochs 1000 --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none --np 2 --strategy topk --http "+at)
	text := ""
	eventually(t, "figures of both ranks", func() bool {
		text = metricsOf(at)
		return holdsAll(text, `ringo_up\{rank="0"\} 1`, `ringo_up\{rank="1"\} 1`, `ringo_samples_total\{rank="0"\} [1-9].*`, `ringo_samples_total\{rank="1"\} [1-9].*`,
			`ringo_sent_bytes_total\{link="tcp",rank="1"\} [1-9].*`, `ringo_sent_bytes_total\{link="shm",rank="1"\} [1-9].*`, `ringo_overlap_ratio\{rank="0"\} [01].*`,
			`ringo_queue_depth\{queue="batches",rank="1"\} [0-9]+`, `ringo_resident_memory_bytes\{rank="1"\} [1-9].*`, `ringo_residual_norm\{rank="0"\} .*`)
	})
	if !holdsAll(text, "ringo_ranks 2", `ringo_density_ratio\{rank="0"\} 0\..*`, `ringo_step_duration_seconds_count\{rank="1"\} [1-9].*`) {
		t.Errorf("the answer is\n%s", text)
	}
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	p.wait()
	checkHolds(t, "what is told", p.errs.String(), ", metrics: http://"+at+"/metrics\n")
	if left := metricsOf(at); left != "" {
		t.Errorf("when the job has ended, the address answers %s", left)
	}
}

// A real Prometheus reads a job of 8 ranks and 2 servers, of which it goes on without one rank that is killed.
func TestPrometheusReadsAJob(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("SKIPPED: there is no prometheus to read a job with (Debian: apt-get install prometheus)")
	}
	ranks := freeport.Address(t)
	p := start(t, "train mlp --data synthetic --epochs 100000 --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none --np 3 --servers 2 --sync async --ps-failure-policy continue --http "+ranks)
	dir, asked := t.TempDir(), freeport.Address(t)
	config := fmt.Sprintf("global: {scrape_interval: 200ms}\nscrape_configs:\n- job_name: ringo\n  static_configs: [{targets: [%q]}]\n- job_name: servers0\n  metrics_path: /servers/0/metrics\n  static_configs: [{targets: [%q]}]\n- job_name: servers1\n  metrics_path: /servers/1/metrics\n  static_configs: [{targets: [%q]}]\n", ranks, ranks, ranks)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	peer := exec.Command(tool, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+asked)
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = peer.Process.Kill()
		_ = peer.Wait()
	}()
	is := func(query string, want float64) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s to be %v", query, want), func() bool { return ask(asked, query) == want })
	}
	is("sum(up)", 3)
	is("count(ringo_samples_total > 0)", 3)
	is("sum(ringo_ps_up)", 2)
	is("count(ringo_ps_pulls_total > 0)", 2)
	is(`count(rate(ringo_samples_total[2s]) > 0)`, 3)
	_ = syscall.Kill(p.worker(2), syscall.SIGKILL)
	is("sum(ringo_up)", 2)
	is(`ringo_up{rank="2"}`, 0)
	is(`count(ringo_samples_total{rank="2"} > 0)`, 1)
	is(`count(rate(ringo_samples_total[2s]) > 0)`, 2)
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	p.wait()
}

// ask is the value that a query to Prometheus gives, -1 for none.
func ask(at, query string) float64 {
	w, err := http.Get("http://" + at + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return -1
	}
	defer w.Body.Close()
	var out struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if json.NewDecoder(w.Body).Decode(&out) != nil || len(out.Data.Result) != 1 {
		return -1
	}
	text, _ := out.Data.Result[0].Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return -1
	}
	return v
}

// The addresses that are printed are those of this host, and a token that the user has chosen is not printed.
func TestPlaceOf(t *testing.T) {
	for _, c := range []struct{ given, shown, want string }{
		{"127.0.0.1:0", "", "dashboard: http://AT/secret/, metrics: http://AT/metrics"},
		{"localhost:0", "$X", "dashboard: http://AT/$X/, metrics: http://AT/metrics"},
		{":0", "$X", "dashboard: http://AT/$X/, metrics: http://AT/metrics"},
		{"0.0.0.0:0", "$X", "dashboard: http://AT/$X/, metrics: http://AT/metrics, and at this host's other addresses (other hosts can reach them; all but /metrics and /healthz needs the token)"},
	} {
		site, err := httpguard.NewSite(c.given, "secret", nil)
		if err == nil {
			err = site.Listen()
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := placeOf(c.given, c.shown, site); got != strings.ReplaceAll(c.want, "AT", site.At()) {
			t.Errorf("%s: %s, want %s", c.given, got, c.want)
		}
		site.Close()
	}
}
