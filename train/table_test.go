package train

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/weights"
)

// houses writes a table whose last column is a function of two others, and says where.
func houses(t *testing.T, rows int) string {
	t.Helper()
	var b strings.Builder
	r := rand.New(rand.NewPCG(1, 2))
	b.WriteString("area,town,price\n")
	for range rows {
		area, town := 20+80*r.Float64(), r.IntN(3)
		fmt.Fprintf(&b, "%.1f,%s,%.0f\n", area, []string{"Bern", "Zug", "Chur"}[town], 2000*area+90000*float64(town))
	}
	path := filepath.Join(t.TempDir(), "houses.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// evaluated is what becomes of a checkpoint on a table.
func evaluated(t *testing.T, dir, path, held string) (e SavedEvaluation, rec *recorder, err error) {
	t.Helper()
	rec = new(recorder)
	err = ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		cfg := Defaults(zoo("mlp"), path)
		cfg.Checkpoint.Dir, cfg.Batch, cfg.EvalFile, cfg.Observer = dir, 32, held, rec
		e, err = Evaluate(context.Background(), job, cfg.Model, nil, cfg)
		return err
	})
	return e, rec, err
}

// A checkpoint has the encoding of its table: on the run's rows an evaluation gives the run's figures, wherever they lie; of
// another file, with columns in another order, all rows are evaluated; what has other columns is refused.
func TestTablesAreEvaluatedByTheRunsEncoding(t *testing.T) {
	path, dir := houses(t, 600), filepath.Join(t.TempDir(), "saved")
	cfg := Defaults(zoo("mlp"), path)
	cfg.Epochs, cfg.Batch, cfg.LR, cfg.Checkpoint.Dir = 4, 32, 0.05, dir
	sum, _ := onRanks(t, 1, cfg)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		p := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(p, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return p
	}
	moved := write("moved.csv", string(text))
	for _, p := range []string{path, moved} {
		e, rec, err := evaluated(t, dir, p, "")
		if err != nil || e.EvalLoss != sum.EvalLoss || e.Samples == 600 || len(rec.remarks) > 0 {
			t.Errorf("%s: %+v, %v, want the run's loss %v", p, e, err, sum.EvalLoss)
		}
	}
	other := "price,more,town,area\n"
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:101] {
		f := strings.Split(line, ",")
		if i == 0 {
			f[1] = "Genf" // which training has not seen
		}
		other += f[2] + ",x," + f[1] + "," + f[0] + "\n"
	}
	swapped := write("other.csv", other)
	for _, held := range []string{"", swapped} {
		e, rec, err := evaluated(t, dir, swapped, held)
		if err != nil || e.Samples != 100 || !(e.Eval["r2"] > 0.5) || len(rec.remarks) != 1 || !strings.Contains(rec.remarks[0].Text, "evaluating all 100 rows of "+swapped) {
			t.Errorf("%+v, %v, %+v", e, err, rec.remarks)
		}
	}
	for text, want := range map[string]string{"area,price\n1,2\n": `column "town": no such column`, "area,town,price\n1,Zug,x\n": `line 2: column "price"`, "area,town,price\n": "no rows"} {
		if e, _, err := evaluated(t, dir, write("bad.csv", text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, e, err, want)
		}
	}
	if _, _, err := evaluated(t, dir, "synthetic", ""); err == nil || !strings.Contains(err.Error(), "table: ") {
		t.Errorf("what is no table: %v", err)
	}
}

// A description that cannot be is refused before anything is built by it.
func TestDescriptionsOfDamagedCheckpoints(t *testing.T) {
	for text, want := range map[string]string{
		`{"classes":-1}`: "out of range", `{"rows":9999999999}`: "out of range", `{"shape":{"ids":-5}}`: "want none below 0", `{"shape":{"values":[65536,65536]}}`: "product",
		`{"encoder":{"columns":[{"name":"a","kind":"nix"}]}}`: "kind", `[`: "cannot be read",
	} {
		s := checkpointInfo{File: "f.ringo"}
		if err := s.read(map[string]string{moreSet: text}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f.ringo") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A file is the same however it is named.
func TestFilesAreComparedWhole(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := (files{Dir: "x.csv", Eval: data.Synthetic}).absolute(), (files{Dir: filepath.Join(dir, "x.csv"), Eval: data.Synthetic}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A set whose classes have other names, or that is no table, is not the one that a model was trained on.
func TestSetsOfAnotherMeaning(t *testing.T) {
	pets := data.Description{Words: []string{"cat", "dog"}}
	for _, c := range []struct {
		d    data.Description
		s    data.Dataset
		want string
	}{
		{pets, data.Dataset{Words: []string{"cat", "dog"}}, ""}, {pets, data.Dataset{}, ""}, {data.Description{}, data.Dataset{Words: []string{"a"}}, ""},
		{pets, data.Dataset{Words: []string{"dog", "cat"}}, "the names of the classes"}, {pets, data.Dataset{Encoder: new(table.Encoder)}, "trained on no table, but these data are a table"},
		{data.Description{Encoder: new(table.Encoder)}, data.Dataset{}, "trained on a table"},
	} {
		if err := sameMeaning(c.d, &c.s); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v and %v: %v, want %q", c.d, c.s, err, c.want)
		}
	}
}

// Names that a checkpoint has no room for are refused before the first step.
func TestTooManyNames(t *testing.T) {
	r := compose(new(runEnv), &data.Dataset{Words: []string{strings.Repeat("x", maxDescription)}})
	if err := r.data.describe(); err != nil {
		t.Errorf("a run that saves nothing: %v", err)
	}
	r.cfg.Checkpoint.Dir = "somewhere"
	if err := r.data.describe(); err == nil || !strings.Contains(err.Error(), "checkpoints have room for") {
		t.Errorf("got %v", err)
	}
}

// A table trains what it has: a regression where a number is to be found, and classes where words are.
func TestTablesTrain(t *testing.T) {
	path := houses(t, 1500)
	spec, err := models.Lookup("mlp")
	if err != nil {
		t.Fatal(err)
	}
	for target, figure := range map[string]string{"": "r2", "town": "accuracy"} {
		err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
			cfg := Defaults(spec, path)
			cfg.Target, cfg.Epochs, cfg.Batch, cfg.LR, cfg.Split = target, 15, 32, 0.05, 0.2
			sum, err := Run(context.Background(), job, spec, nil, cfg)
			if got := sum.Eval[figure]; err == nil && got < 0.9 {
				return fmt.Errorf("%s is %v", figure, got)
			}
			return err
		})
		if err != nil {
			t.Errorf("target %q: %v", target, err)
		}
	}
}

// Arrays of NumPy train a model that takes any shape; a run of two ranks closes what it has opened.
func TestArraysTrain(t *testing.T) {
	var b bytes.Buffer
	x, y := weights.Tensor{Name: "x", Shape: []int{400, 2}}, weights.Tensor{Name: "y", Shape: []int{400}}
	for i := range 400 {
		u, v := float32(i%17)/8, float32(i%29)/14
		x.Data, y.Data = append(x.Data, u, v), append(y.Data, u+2*v)
	}
	if err := weights.WriteNPZ(&b, []weights.Tensor{x, y}); err != nil {
		t.Fatal(err)
	}
	cfg := Defaults(zoo("mlp"), filepath.Join(t.TempDir(), "sums.npz"))
	if err := os.WriteFile(cfg.Data, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs, cfg.Batch, cfg.LR = 10, 16, 0.05
	if sum, _ := onRanks(t, 2, cfg); sum.Eval["r2"] < 0.95 {
		t.Errorf("%+v", sum)
	}
}
