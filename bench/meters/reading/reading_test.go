package reading

import (
	"bytes"
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

const (
	readFields     = "bench stage files threads mb_s rows_s file_mb_s cached median_ms min_ms iterations"
	pipelineFields = readFields + " batch window interleave keys bad share_of_disk share_of_parsing limit share_of_limit"
)

// clickFolder has a plain file of rows, with a bad line at its end, and the same
// compressed.
func clickFolder(t *testing.T, bad string) (dir string, size int) {
	t.Helper()
	text, err := os.ReadFile(commandtest.ClickRows(t, 3000))
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, bad...)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(text); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, content := range map[string][]byte{"plain/a.tsv": text, "packed/a.tsv.gz": packed.Bytes(), "packed/b.tsv.gz": packed.Bytes()} {
		path := filepath.Join(dir, name)
		if os.MkdirAll(filepath.Dir(path), 0o777) != nil || os.WriteFile(path, content, 0o666) != nil {
			t.Fatal(path)
		}
	}
	return dir, len(text)
}

func TestBenchRead(t *testing.T) {
	dir, size := clickFolder(t, "bad\n")
	for _, c := range []struct {
		line   string
		stages []string
		files  int
		fields string
	}{
		{"plain --threads 2 --batch 100 --shuffle-window 500", []string{"disk", "parse", "pipeline"}, 1, pipelineFields},
		{"packed --interleave 2 --rows 1000 --cached", []string{"disk", "unpack", "parse", "pipeline"}, 2, pipelineFields + " share_of_unpack"},
	} {
		status, out, errs := commandtest.Run(Command(), ""+filepath.Join(dir, c.line)+" --skip-bad 2 --repeat 2 --json -")
		if status != 0 || strings.Count(errs, " rows/s ") != len(c.stages) {
			t.Fatalf("%s: status %d, stderr %s", c.line, status, errs)
		}
		fields := make([]string, len(c.stages))
		for i := range fields {
			fields[i] = readFields
		}
		fields[len(fields)-1] = c.fields
		for i, got := range commandtest.JSON(t, out, fields...) {
			if got["bench"] != "read" || got["stage"] != c.stages[i] || got["files"] != float64(c.files) || got["iterations"] != 2. {
				t.Errorf("%s: %v", c.line, got)
			}
			if got["mb_s"].(float64) <= 0 || got["rows_s"].(float64) <= 0 || got["min_ms"].(float64) > got["median_ms"].(float64) {
				t.Errorf("%s: %v", c.line, got)
			}
			// A row of text has as many bytes in every stage.
			if per := 1e6 * got["mb_s"].(float64) / got["rows_s"].(float64); math.Abs(per-float64(size)/3000) > 0.01*per {
				t.Errorf("%s: %.1f bytes a row, want %.1f", c.line, per, float64(size)/3000)
			}
			if got["stage"] == "pipeline" {
				if got["bad"] != float64(c.files) || got["share_of_limit"].(float64) <= 0 || got["keys"] != (c.files == 1) {
					t.Errorf("%s: %v", c.line, got)
				}
				if want := float64(size*c.files) / got["median_ms"].(float64) / 1e3; math.Abs(got["mb_s"].(float64)-want) > 1e-6*want {
					t.Errorf("%s: %v MB/s, want %v", c.line, got["mb_s"], want)
				}
			}
		}
	}
}

func TestBenchReadRefuses(t *testing.T) {
	dir, _ := clickFolder(t, "bad\n")
	commandtest.Refused(t, Command(), cli.UsageError, "", "needs files or folders")
	commandtest.Refused(t, Command(), cli.UsageError, ""+dir+"/plain --threads -1 --repeat 0", "--threads -1", "--repeat 0")
	commandtest.Refused(t, Command(), cli.UsageError, ""+dir+"/plain --batch 3 --shuffle-window 4 --interleave 0 --rows 1", "multiple of the batch", "table of 1 rows")
	commandtest.Refused(t, Command(), cli.Failed, "/nowhere", "/nowhere")
	commandtest.Refused(t, Command(), cli.Failed, ""+t.TempDir(), "has no .tsv")
	commandtest.Refused(t, Command(), cli.Failed, ""+dir+"/plain", "line 3001", "a.tsv", "data.max-bad-records")
}
