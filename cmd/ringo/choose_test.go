package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFolderMeansTheBest: eval, predict, export and --init-from take the best checkpoint of a run
// with training.monitor and print the choice;
// --resume takes the last one.
func TestFolderMeansTheBest(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	const small = " --data synthetic --set data.train-limit=800 --set data.eval-limit=300 --progress none"
	line := "train mlp" + small + " --lr 0.5 --checkpoint " + dir + " --set training.monitor=accuracy"
	status, out, errs := command(t, line+" --epochs 5 --np 2")
	ends := regexp.MustCompile(`(?m)^checkpoints: (\S+)best is (step-\d+.ringo), (\S+)last is (step-\d+.ringo)$`).FindStringSubmatch(out)
	if status != 0 || ends == nil || ends[1] != dir+"/" || ends[2] >= ends[4] {
		t.Fatalf("status %d, %s%s", status, out, errs)
	}
	best, last := ends[2], ends[4]
	onnx := filepath.Join(t.TempDir(), "m.safetensors")
	for _, c := range []struct{ line, file string }{
		{"eval " + dir, best}, {"eval " + dir + "/best --np 2", best}, {"eval " + dir + "/last", last}, {"eval " + filepath.Join(dir, last), ""},
		{"export " + dir + " --out " + onnx, best}, {"export " + dir + "/last --out " + onnx, last},
	} {
		status, _, errs := command(t, c.line)
		taken := regexp.MustCompile(`taking (\S+), the (best|last) one`).FindStringSubmatch(errs)
		if file := strings.Join(taken[min(1, len(taken)):min(2, len(taken))], ""); status != 0 || file != c.file || strings.Count(errs, "taking") > 1 {
			t.Errorf("%s: status %d, %q, want %q", c.line, status, errs, c.file)
		}
	}
	for from, file := range map[string]string{dir: best, dir + "/last": last} {
		status, out, errs := command(t, "train mlp"+small+" --epochs 1 --init-from "+from)
		if status != 0 || !strings.Contains(out, "begun with "+filepath.Join(dir, file)+" (the ") {
			t.Errorf("--init-from %s: status %d, %s%s", from, status, out, errs)
		}
	}
	status, out, errs = command(t, "train mlp --checkpoint "+dir+" --resume --epochs 6 --progress none")
	if status != 0 || !strings.Contains(out, " from "+filepath.Join(dir, last)) {
		t.Errorf("--resume: status %d, %s%s", status, out, errs)
	}
}

// TestReadersTakeTheAverage: eval repeats the metrics of a run with an average, and a run that
// begins with its checkpoint, or with its export, begins with the average.
func TestReadersTakeTheAverage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	const small = " --data synthetic --set data.train-limit=800 --set data.eval-limit=300 --progress none"
	status, out, errs := command(t, "train mlp"+small+" --lr 0.1 --epochs 2 --np 2 --json - --set training.average=0.95 --checkpoint "+dir)
	if status != 0 {
		t.Fatalf("status %d, %s%s", status, out, errs)
	}
	want := lastObject(t, out)["eval_loss"]
	file := filepath.Join(t.TempDir(), "m.safetensors")
	if status, _, errs := command(t, "export "+dir+" --out "+file); status != 0 {
		t.Fatal(errs)
	}
	if status, out, errs := command(t, "eval "+dir+" --np 2 --json - --progress none"); status != 0 || lastObject(t, out)["eval_loss"] != want {
		t.Errorf("eval: status %d, %s%s, want loss %v", status, out, errs, want)
	}
	for _, from := range []string{dir, file} { // a rate of 1e-30 leaves the weights as they are
		status, out, errs := command(t, "train mlp"+small+" --lr 1e-30 --epochs 1 --np 2 --json - --init-from "+from)
		if status != 0 || lastObject(t, out)["eval_loss"] != want {
			t.Errorf("%s: status %d, %s%s, want loss %v", from, status, out, errs, want)
		}
	}
}

// withoutChoice is the output of a command without the line about the choice of a checkpoint.
func withoutChoice(errs string) string {
	return regexp.MustCompile(`(?m)^ringo: \S+: taking step-\d+.ringo, the last one\n`).ReplaceAllString(errs, "")
}
