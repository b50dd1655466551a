package metrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

const (
	page      = "../../../docs/metrics.md"
	dashboard = "../../../docs/grafana/ringo.json"

	tableBegins = "<!-- made of metrics.Table -->\n"
	tableEnds   = "<!-- end -->\n"
)

// The page's table is made of the rows: `go test ./internal/watch/metrics -run Page -update` writes it.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(text), tableBegins)
	_, tail, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s has no %q and %q", page, tableBegins, tableEnds)
	}
	var b strings.Builder
	for _, part := range []struct {
		role  Role
		title string
	}{{OfRank, "Ranks"}, {OfHost, "Serving process"}, {OfAggregator, "Aggregation servers"}, {OfParameterServer, "Parameter servers"}, {OfServing, "Prediction server"}} {
		fmt.Fprintf(&b, "\n### %s\n\n| metric | type | labels | description | source |\n|---|---|---|---|---|\n", part.title)
		for _, id := range OfRole(part.role) {
			r := id.Row()
			labels := strings.Join(r.Labels(), ", ")
			if len(r.Values) > 0 {
				labels += ": " + strings.Join(r.Values, ", ")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Name, r.Type, labels, strings.TrimSuffix(r.Help, "."), r.From)
		}
	}
	b.WriteByte('\n')
	want := head + tableBegins + b.String() + tableEnds + tail
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the rows: run go test ./internal/watch/metrics -run Page -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// notDrawn are metrics that the dashboard leaves out, with the reason.
var notDrawn = map[string]string{
	"ringo_build_info":            "its labels choose what is shown",
	"ringo_ps_checkpoint_number":  "for alerts",
	"ringo_ps_slowest_step":       "for alerts",
	"ringo_ps_connections_total":  "for alerts",
	"ringo_ps_denied_keys_total":  "of jobs with admission",
	"ringo_ps_deleted_rows_total": "of jobs with days",
	"ringo_ps_cpu_seconds_total":  "for alerts",
	"ringo_looked_up_rows_total":  "of jobs with a cache of rows",
	"ringo_cached_rows_total":     "of jobs with a cache of rows",

	"ringo_serve_requests_total":           "of `ringo serve`, which is no job",
	"ringo_serve_request_duration_seconds": "of `ringo serve`, which is no job",
	"ringo_serve_forward_seconds_total":    "of `ringo serve`, which is no job",
	"ringo_serve_rows_total":               "of `ringo serve`, which is no job",
	"ringo_serve_batches_total":            "of `ringo serve`, which is no job",
	"ringo_serve_queue_rows":               "of `ringo serve`, which is no job",
	"ringo_serve_active_requests":          "of `ringo serve`, which is no job",
	"ringo_serve_rejections_total":         "of `ringo serve`, which is no job",
	"ringo_serve_unknown_words_total":      "of `ringo serve`, which is no job",
	"ringo_serve_swaps_total":              "of `ringo serve`, which is no job",
	"ringo_serve_checkpoint_step":          "of `ringo serve`, which is no job",
	"ringo_serve_checkpoint_age_seconds":   "of `ringo serve`, which is no job",
}

var metricName = regexp.MustCompile(`\bringo_[a-z_]+`)

// expressions are all that the dashboard asks for.
func expressions(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Type, Title, Description string
			Targets                  []struct{ Expr, LegendFormat string }
		}
		Templating struct{ List []struct{ Query string } }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		if p.Type != "row" && (p.Title == "" || p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %q has no title, no description or nothing to show", p.Title)
		}
		for _, target := range p.Targets {
			out = append(out, target.Expr)
		}
	}
	if len(out) < 20 {
		t.Fatalf("%d expressions", len(out))
	}
	return out
}

// What the dashboard asks for exists, with these labels, and what exists is drawn or said not to be.
func TestDashboard(t *testing.T) {
	known, drawn := map[string]*Row{}, map[string]bool{}
	for id := range ids {
		r := id.Row()
		known[r.Name] = r
		if r.Type == Histogram {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				known[r.Name+part] = r
			}
		}
	}
	label := regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
	for _, e := range expressions(t) {
		for _, name := range metricName.FindAllString(e, -1) {
			r := known[name]
			if r == nil {
				t.Errorf("%s asks for %s, which there is not", e, name)
				continue
			}
			drawn[r.Name] = true
		}
		for _, selector := range regexp.MustCompile(`(ringo_[a-z_]+)\{([^}]*)\}`).FindAllStringSubmatch(e, -1) {
			for _, l := range label.FindAllStringSubmatch(selector[2], -1) {
				if r := known[selector[1]]; r != nil && l[1] != "instance" && !slices.Contains(r.Labels(), l[1]) {
					t.Errorf("%s: %s has no label %s", e, selector[1], l[1])
				}
			}
		}
	}
	for _, r := range Table() {
		if _, left := notDrawn[r.Name]; drawn[r.Name] == left {
			t.Errorf("%s: drawn is %v, left out is %v", r.Name, drawn[r.Name], left)
		}
	}
	for name := range notDrawn {
		if known[name] == nil {
			t.Errorf("%s is said not to be drawn, and there is no such metric", name)
		}
	}
}

// Prometheus understands the dashboard's expressions.
func TestExpressions(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED: there is no promtool to read expressions (Debian: apt-get install prometheus)")
	}
	var b strings.Builder
	b.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, e := range expressions(t) {
		e = strings.ReplaceAll(e, "$__rate_interval", "1m")
		fmt.Fprintf(&b, "  - record: panel:%d\n    expr: %q\n", i, e)
	}
	rules := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(rules, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "check", "rules", rules).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
