package parquet

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/ringo-ml/ringo/data/table"
)

// documented is the command line of docs/data.md that builds a ringo which reads Parquet.
var documented = regexp.MustCompile(`(?m)^    go (build -C data/parquet .*)$`)

// build runs it, to a folder of the test's.
func build(t *testing.T) (ringo string) {
	t.Helper()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "data.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := documented.FindSubmatch(text)
	if found == nil {
		t.Fatal("docs/data.md does not say how to build")
	}
	args := strings.Fields(string(found[1]))
	at := slices.Index(args, "../../ringo") + 1
	if at == 0 {
		t.Fatalf("%v does not build ringo in the repository's folder", args)
	}
	ringo = filepath.Join(t.TempDir(), "ringo")
	args[at-1] = ringo
	c := exec.Command("go", args...)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	info, err := os.Stat(ringo)
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`That binary has (\d+) MB`).FindSubmatch(text)
	if said == nil {
		t.Fatal("docs/data.md does not say how large that binary is")
	}
	if mb, _ := strconv.ParseFloat(string(said[1]), 64); math.Abs(float64(info.Size())/1e6-mb) > mb/20 {
		t.Errorf("docs/data.md says %v MB, the binary has %d bytes", mb, info.Size())
	}
	return ringo
}

// The command that is built as docs/data.md says trains, evaluates and predicts on Parquet and Arrow as on the same table in CSV.
func TestCommand(t *testing.T) {
	ringo, dir := build(t), t.TempDir()
	run := func(line string) string {
		t.Helper()
		var out, errs bytes.Buffer
		c := exec.Command(ringo, strings.Fields(line)...)
		c.Dir, c.Stdout, c.Stderr = dir, &out, &errs
		if err := c.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, errs.String())
		}
		return out.String()
	}
	const n = 400
	if err := os.Rename(write(t, compress.Codecs.Snappy, cut(n, 50)...), filepath.Join(dir, "x.parquet")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.csv"), []byte(asText(n)), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(writeArrow(t, true, cut(n, 50), ipc.WithZstd()), filepath.Join(dir, "x.arrows")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(writeArrow(t, false, cut(n, 50)), filepath.Join(dir, "x.arrow")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"x.parquet", "x.csv"} {
		run("train mlp --data " + file + " --set data.target=kind --set data.schema=list=ignore --np 2 --batch 32 --epochs 2 --progress none --checkpoint saved-" + file)
	}
	found := run("predict saved-x.csv --data x.csv --progress none")
	if got := run("predict saved-x.parquet --data x.parquet --progress none --np 2"); got != found || strings.Count(got, "\n") != n {
		t.Errorf("predictions: %.300s\nwant %.300s", got, found)
	}
	const columns = " --columns town,area --progress none --format "
	text := run("predict saved-x.csv --data x.csv" + columns + "csv")
	first := run("predict saved-x.csv --data x.csv" + columns + "parquet")
	if got := run("predict saved-x.csv --data x.csv --np 2 --out p.parquet" + columns + "parquet"); got != "" {
		t.Errorf("to stdout: %.100q", got)
	}
	if file, err := os.ReadFile(filepath.Join(dir, "p.parquet")); err != nil || string(file) != first {
		t.Errorf("two ranks write %d bytes, one %d, %v", len(file), len(first), err)
	}
	run("predict saved-x.parquet --data x.arrow --np 2 --out p.arrow" + columns + "arrow")
	for name, open := range map[string]func(string) (table.Reader, error){"p.parquet": Open, "p.arrow": OpenArrow} {
		r, err := open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := asCSV(t, r); got != text {
			t.Errorf("predictions in %s are %.300s\nwant %.300s", name, got, text)
		}
	}
	clickFiles(t, dir)
	trained := map[string]string{}
	for _, file := range []string{"clicks.csv", "clicks.parquet", "clicks.arrow"} {
		out := run("train din --layout clicks.yaml --train-file " + file + " --eval-file " + file + " --set data.table-rows=100 --np 2 --batch 16 --epochs 1 --progress none --json - --checkpoint saved-" + file)
		trained[file] = parameters.FindString(out) + run("predict saved-clicks.csv --data "+file+" --progress none")
	}
	if want := trained["clicks.csv"]; parameters.FindString(want) == "" || trained["clicks.parquet"] != want || trained["clicks.arrow"] != want {
		t.Errorf("clicks: %.300q", trained)
	}
	figures := accuracy.FindString(run("eval saved-x.csv --data x.csv --progress none --json -"))
	for _, file := range []string{"x.parquet", "x.arrow", "x.arrows"} {
		if got := accuracy.FindString(run("eval saved-x.parquet --data " + file + " --progress none --json -")); got != figures || got == "" {
			t.Errorf("figures of %s: %s, want %s", file, got, figures)
		}
	}
}

// parameters is the sum of a training's parameters.
var parameters = regexp.MustCompile(`"params_sha256":"[0-9a-f]+"`)

// accuracy is the figure of an evaluation.
var accuracy = regexp.MustCompile(`"[a-z_]*accuracy":[0-9.]+`)
