package job_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/setting"
)

var update = flag.Bool("update", false, "write docs/settings.md")

const referenceFile = "../../docs/settings.md"

// The reference page is made of the rows: `go test ./internal/job -run Reference -update` writes it.
func TestReferenceIsWhatTheRowsSay(t *testing.T) {
	text := reference(t)
	if *update {
		if err := os.WriteFile(referenceFile, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil || string(got) != text {
		t.Errorf("%s is not what the rows say: run go test ./internal/job -run Reference -update (%v)", referenceFile, err)
	}
}

func reference(t *testing.T) string {
	_, table, err := job.New()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Settings\n\nAll settings of a training job, by path.\n" +
		"A job file sets them as `group:` and `name: value`; the command line as `--set PATH=VALUE`, or by the setting's flag.\n" +
		"A flag overrides `--set`, and `--set` overrides the job file.\n" +
		"The defaults of batch, epochs, optimizer, learning rate, momentum, weight decay and clipping are the model's: `ringo help train models` lists them.\n\n" +
		"*Equal on* lists the processes that need the same value: all processes, or this process alone.\n" +
		"With *and a resumed run*, the setting affects the result; otherwise a resumed run may change the value.\n" +
		"With *this start*, a resumed run does not repeat the value.\n\n" +
		"*Commands* lists the commands that take the setting.\n" +
		"`ringo server` and `ringo heter` also accept the other settings, since a job file of the ranks may contain them.\n")
	for _, g := range job.Groups() {
		name := g.Name
		if name == "" {
			name = "The whole job"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| path | flag | values | default | equal on | commands | description |\n|---|---|---|---|---|---|---|\n", name, strings.ToUpper(g.About[:1])+g.About[1:])
		for _, r := range table.Rows() {
			if job.GroupOf(r.Path) == g.Name {
				b.WriteString(line(table, r))
			}
		}
	}
	return b.String()
}

func line(table *setting.Table, r setting.Row) string {
	flag, values, about, equal := "", r.Unit, r.About, r.Scope.String()
	if r.OneStart {
		equal += ", this start"
	}
	if r.Flag != "" {
		flag = "`--" + r.Flag + "`"
	}
	if known := setting.Known(r.Value); known != nil {
		values = strings.Join(known, ", ")
	}
	if r.Needs != nil {
		about += "; " + setting.Requirement(r.Needs)
	}
	cell := func(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
	code := func(text string) string {
		if text == "" {
			return ""
		}
		return "`" + cell(text) + "`"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n", code(string(r.Path)), flag, cell(values), code(table.Default(r.Path)), equal, r.Commands, cell(about))
}
