package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/runlog"
)

var pageAddress = regexp.MustCompile(`dashboard: (http://127\.0\.0\.1:\d+/\w+/), `)

// shownPage is what a browser is sent: the last of each panel, by its name, and what the page became at the end.
type shownPage struct {
	heads  []string
	panels map[string]map[string]any
	report string
}

// look looks at a program's page until the job ends.
func look(t *testing.T, p *program) shownPage {
	t.Helper()
	p.await(&p.errs, "dashboard: ")
	url := pageAddress.FindStringSubmatch(p.errs.String())[1]
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out := shownPage{panels: map[string]map[string]any{}}
	lines, event := bufio.NewReader(res.Body), ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the page ends without a report: %v; %s", err, p.errs.String())
		}
		if name, is := strings.CutPrefix(line, "event: "); is {
			event = strings.TrimSpace(name)
		}
		data, is := strings.CutPrefix(line, "data: ")
		if !is {
			continue
		}
		switch event {
		case "head":
			out.heads = append(out.heads, data)
		case "panel":
			var f map[string]any
			if err := json.Unmarshal([]byte(data), &f); err != nil {
				t.Fatal(err)
			}
			out.panels[f["id"].(string)] = f
		case "end":
			if err := json.Unmarshal([]byte(data), &out.report); err != nil {
				t.Fatal(err)
			}
			return out
		}
	}
}

// A job's page shows what --json has, of ranks that are processes and of those that are not, and becomes the report at the end.
func TestPage(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"--np 2 --log-every 1", "--np 2 --transport mem --log-every 2 --set output.layer-stats=true --strategy dlgs"} {
		file := filepath.Join(t.TempDir(), "run.jsonl")
		p := start(t, "train mlp "+small+flags+" --http :0 --json "+file)
		got := look(t, p)
		p.checkEnd(0)
		from, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		log, err := runlog.Read(file, from)
		if from.Close(); err != nil {
			t.Fatal(err)
		}
		r := log.Runs()[0]
		for _, c := range []struct {
			panel, label string
			table        *runlog.Table
			field        string
		}{
			{"loss", "a batch of rank 0", &r.Steps, "loss"}, {"loss", "training", &r.Epochs, "train_loss"}, {"loss", "test", &r.Epochs, "eval_loss"},
			{"metric", "test", &r.Epochs, "eval_accuracy"}, {"rate", "steps", &r.Steps, "samples_per_s"}, {"parts", "exposed exchange", &r.Steps, "exposed_comm_ms"},
		} {
			x, ys := got.panels[c.panel]["x"].([]any), map[string][]any{}
			for i, label := range got.panels[c.panel]["labels"].([]any) {
				ys[label.(string)] = got.panels[c.panel]["data"].([]any)[i].([]any)
			}
			at := map[float64]any{}
			for i := range x {
				at[x[i].(float64)] = ys[c.label][i]
			}
			for i, want := range c.table.Column(c.field) {
				if v := at[float64(c.table.Done[i])]; v != want {
					t.Errorf("%s: %s, %s at step %d: %v, want %v", flags, c.panel, c.label, c.table.Done[i], v, want)
				}
			}
			if c.table.Len() == 0 {
				t.Errorf("%s: no records have %s", flags, c.field)
			}
		}
		sameAsRecords(t, file, got, strings.Contains(flags, "mem"))
		if ranks, _ := got.panels["ranks"]["ribbons"].([]any); len(ranks) != 2 {
			t.Errorf("%s: %d ranks tell", flags, len(ranks))
		}
		if layers := got.panels["layers"]["kind"]; (layers == "table") != strings.Contains(flags, "layer-stats") {
			t.Errorf("%s: layers are %v", flags, layers)
		}
		if !strings.Contains(got.report, "1 run of mlp") || !strings.Contains(got.heads[len(got.heads)-1], `"state":"ended"`) {
			t.Errorf("%s: at the end %s, report %.200s", flags, got.heads[len(got.heads)-1], got.report)
		}
	}
}

// sameAsRecords compares the panels of steps that were looked at with their records. The last look at ranks of this process is after
// their last step; the memory of others is gone by then.
func sameAsRecords(t *testing.T, file string, got shownPage, own bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var timeline struct {
		Done int64            `json:"done"`
		Bars []map[string]any `json:"bars"`
	}
	var waits struct {
		Steps  int     `json:"steps"`
		WaitMS [][]any `json:"wait_ms"`
	}
	for line := range strings.Lines(string(text)) {
		for event, into := range map[string]any{"timeline": &timeline, "waits": &waits} {
			if strings.Contains(line, `{"event":"`+event+`"`) {
				if err := json.Unmarshal([]byte(line), into); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if len(timeline.Bars) < 5 || timeline.Done == 0 {
		t.Errorf("a timeline of %d bars after step %d", len(timeline.Bars), timeline.Done)
	}
	if tracks, _ := got.panels["buckets"]["tracks"].([]any); len(tracks) < 3 {
		t.Errorf("%d lines of a step: %v", len(tracks), got.panels["buckets"])
	}
	if !own {
		return
	}
	grids, _ := got.panels["waits"]["grids"].([]any)
	if len(grids) != 2 || waits.Steps == 0 || !reflect.DeepEqual(grids[1].(map[string]any)["data"], any(sliceOf(waits.WaitMS))) {
		t.Errorf("the page has %v, the record %v of %d steps", grids, waits.WaitMS, waits.Steps)
	}
}

// sliceOf is a matrix as JSON decodes it.
func sliceOf(rows [][]any) (out []any) {
	for _, row := range rows {
		out = append(out, row)
	}
	return out
}

// The page outlives ranks, and says why the job has failed. Ranks of another job do not tell it.
func TestPageOfAFailure(t *testing.T) {
	t.Parallel()
	p := start(t, endless+"--np 2 --http 127.0.0.1:0", pageVar+"=1s /none")
	go func() {
		p.await(&p.out, "epoch")
		_ = syscall.Kill(p.worker(1), syscall.SIGKILL)
	}()
	got := look(t, p)
	p.checkEnd(exitFailed, "killed by signal 9")
	if !strings.Contains(got.report, "killed by signal 9 (SIGKILL)") || got.panels["faults"]["kind"] != "list" {
		t.Errorf("faults %v, report %.500s", got.panels["faults"], got.report)
	}
}
