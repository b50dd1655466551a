package predict

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// saved trains a model of the zoo a little and returns where it was saved.
func saved(t *testing.T, name string, change func(*train.Config)) train.Config {
	t.Helper()
	spec, err := models.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := train.Defaults(spec, data.Synthetic)
	cfg.Epochs, cfg.Batch, cfg.Checkpoint.Dir = 1, 16, filepath.Join(t.TempDir(), "saved")
	change(&cfg)
	err = ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		_, err := train.Run(context.Background(), job, spec, nil, cfg)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// on runs a function on every rank with the predictor of a checkpoint.
func on(t *testing.T, np int, cfg train.Config, do func(p *train.Predictor, rank int) error) error {
	t.Helper()
	return ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
		p, err := train.NewPredictor(context.Background(), job, cfg.Model, cfg)
		if err != nil {
			return err
		}
		return p.End(do(p, job.Rank()))
	})
}

// written is what is predicted of a path by so many ranks.
func written(t *testing.T, np int, cfg train.Config, from data.InputConfig, how Config) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := on(t, np, cfg, func(p *train.Predictor, rank int) error {
		in := from
		in.Rank, in.Size, in.Batch, in.Columns = rank, np, cfg.Batch, how.Columns
		rows, err := data.OpenInput(p.Description(), in)
		if err != nil {
			return err
		}
		defer rows.Close()
		to := io.Writer(&out)
		if rank > 0 {
			to = failing{}
		}
		_, err = Run(p, rank, rows, to, how)
		return err
	})
	return out.String(), err
}

// failing is nobody's to write to.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// alone is what the model gives for one sample at a time, straight through it.
func alone(t *testing.T, cfg train.Config, b *data.Batch, shape data.Shape) (outputs [][]float32) {
	t.Helper()
	err := on(t, 1, cfg, func(p *train.Predictor, _ int) error {
		for i := range b.N {
			s := b.At(shape, i)
			out, err := p.Forward(&data.Batch{N: 1, Values: s.Values, IDs: s.IDs})
			if err != nil {
				return err
			}
			outputs = append(outputs, append([]float32(nil), out[0].Data...))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return outputs
}

// found is a line of JSON.
type found struct {
	Row         int
	Columns     map[string]string
	Prediction  any
	Probability float64
	Top         map[string]float64
}

func lines(t *testing.T, text string) (out []found) {
	t.Helper()
	for line := range strings.Lines(text) {
		var f found
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, f)
	}
	return out
}

// Classes are those of the naive twin, in order; as many are right as the evaluation says; any number of ranks writes the same.
func TestClasses(t *testing.T) {
	const samples = 75 // of batches of 16, the last one short
	cfg := saved(t, "mlp", func(c *train.Config) { c.TrainLimit, c.EvalLimit = 400, samples })
	set, err := data.Open("mnist", data.Config{Dir: data.Synthetic, Seed: cfg.Seed, TrainLimit: 1, EvalLimit: samples})
	if err != nil {
		t.Fatal(err)
	}
	idx := make([]int32, samples)
	for i := range idx {
		idx[i] = int32(i)
	}
	var all data.Batch
	if err := set.Eval.Fill(&all, idx, data.Draw{}); err != nil {
		t.Fatal(err)
	}
	outputs := alone(t, cfg, &all, set.Eval.Shape())
	from := data.InputConfig{Path: data.Synthetic, Seed: cfg.Seed}
	var e train.SavedEvaluation
	err = ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) (err error) {
		e, err = train.Evaluate(context.Background(), job, cfg.Model, nil, cfg)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for _, np := range []int{1, 3} {
		text, err := written(t, np, cfg, from, Config{Top: 3})
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = text
		}
		if text != first {
			t.Errorf("%d ranks write something else", np)
		}
	}
	right := 0
	for i, f := range lines(t, first)[:samples] {
		chances := Softmax(nil, outputs[i], 1)
		for k := range chances {
			if p, told := f.Top[fmt.Sprint(k)]; told && math.Abs(p-chances[k]) > 1e-5 || fmt.Sprint(k) == f.Prediction && p != f.Probability {
				t.Errorf("row %d: class %d has %v, alone %v", i, k, p, chances[k])
			}
			if chances[k] > f.Probability+1e-5 {
				t.Errorf("row %d: class %d with %v is more probable than %v", i, k, chances[k], f)
			}
		}
		if f.Row != i || len(f.Top) != 3 {
			t.Errorf("row %d: %+v", i, f)
		}
		if f.Prediction == fmt.Sprint(all.Labels[i]) {
			right++
		}
	}
	if want := e.Eval["accuracy"] * samples; math.Abs(float64(right)-want) > 1e-6 {
		t.Errorf("%d of %d are right, the evaluation has %v", right, samples, want)
	}
}

// towns is a table of which the price, and the town, can be found.
const towns = "id,area,town,price\n"

func town(i int) string {
	return fmt.Sprintf("%d,%d,%s,%d\n", 100+i, 20+i%60, []string{"Bern", "\"Zug, \"\"old\"\"\"", "Chur"}[i%3], 1000*(i%60)+50000*(i%3))
}

// A table's rows: numbers in their column's units, columns passed through, from files and the standard input, which lacks the column to find.
func TestTable(t *testing.T) {
	text, unknown := towns, "town,area,id\n"
	for i := range 300 {
		row := town(i)
		text += row
		r, err := csv.NewReader(strings.NewReader(row)).Read()
		if err != nil {
			t.Fatal(err)
		}
		unknown += fmt.Sprintf("\"%s\",%s,%s\n", strings.ReplaceAll(r[2], `"`, `""`), r[1], r[0])
	}
	path := filepath.Join(t.TempDir(), "towns.csv")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	cfg := saved(t, "mlp", func(c *train.Config) {
		c.Data, c.Epochs, c.LR = path, 8, 0.05
		c.Schema = table.Schema{"id": table.Ignore}
	})
	from := data.InputConfig{Path: path}
	first, err := written(t, 1, cfg, from, Config{Columns: []string{"id", "town"}})
	if err != nil {
		t.Fatal(err)
	}
	for np := 2; np <= 3; np++ {
		if again, err := written(t, np, cfg, from, Config{Columns: []string{"id", "town"}}); err != nil || again != first {
			t.Errorf("%d ranks write something else, %v", np, err)
		}
	}
	streamed, err := written(t, 1, cfg, data.InputConfig{Path: data.Stdin, Stdin: strings.NewReader(unknown)}, Config{Columns: []string{"id", "town"}})
	if err != nil || streamed != first {
		t.Errorf("from the standard input: %v, %.200s, want %.200s", err, streamed, first)
	}
	var samples table.Samples
	var goal table.Column
	err = on(t, 1, cfg, func(p *train.Predictor, _ int) error {
		in, err := data.OpenTable(path)
		if err != nil {
			return err
		}
		goal, _ = p.Description().Encoder.Goal()
		return p.Description().Encoder.Encode(in, false, 1<<30, func(int64) *table.Samples { return &samples }, func(err error) error { return err })
	})
	if err != nil {
		t.Fatal(err)
	}
	outputs := alone(t, cfg, &data.Batch{N: samples.N, Values: samples.Values, IDs: samples.IDs}, data.Shape{Values: []int{1}, IDs: 1})
	for i, f := range lines(t, first) {
		want := float64(outputs[i][0])*goal.Deviation + goal.Mean
		if got, _ := f.Prediction.(float64); f.Row != i || math.Abs(got-want) > 1e-5*math.Abs(want)+1 || f.Columns["id"] != fmt.Sprint(100+i) || i%3 == 1 && f.Columns["town"] != `Zug, "old"` {
			t.Errorf("row %d: %+v, want %v", i, f, want)
		}
	}
	table, err := written(t, 2, cfg, from, Config{Format: CSV, Columns: []string{"town"}})
	records, csvErr := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil || csvErr != nil || len(records) != 301 || strings.Join(records[0], " ") != "row town prediction" || records[2][1] != `Zug, "old"` {
		t.Errorf("%v, %v, %d records, %v", err, csvErr, len(records), records[:3])
	}
	checkHostileTables(t, cfg, text)
}

// checkHostileTables predicts tables that are none, or not the model's.
func checkHostileTables(t *testing.T, cfg train.Config, text string) {
	t.Helper()
	for name, c := range map[string]struct{ text, want string }{
		"empty":      {"", "the file is empty"},
		"no rows":    {"area,town\n", ""},
		"missing":    {"area,price\n1,2\n", `column "town": no such column, which the model needs`},
		"a word":     {"area,town\n1,Bern\nlarge,Bern\n", `line 3: column "area": "large" is no finite number`},
		"truncated":  {text[:len(text)/2] + "\"", "line"},
		"fields":     {"area,town\n1,Bern\n2\n", "line 3: fields: 1: want 2"},
		"kept":       {"area,town\n1,Bern\n", `column "nix": a column to pass through does not exist`},
		"bytes":      {"\x00\x01\x02,\n", "zero byte"},
		"no columns": {"1,2\n3,4\n", "these are numbers"},
	} {
		how := Config{}
		if name == "kept" {
			how.Columns = []string{"nix"}
		}
		out, err := written(t, 1, cfg, data.InputConfig{Path: data.Stdin, Stdin: strings.NewReader(c.text)}, how)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "standard input")) {
			t.Errorf("%s: %v, want %q; wrote %.100q", name, err, c.want, out)
		}
	}
	out, err := written(t, 2, cfg, data.InputConfig{Path: writeFile(t, "area,town\nx,Bern\n5,Bern\n6,Zug\n"), SkipBad: 1}, Config{})
	if got := lines(t, out); err != nil || len(got) != 2 || got[0].Row != 1 || got[1].Row != 2 {
		t.Errorf("a bad row is left out: %v, %q", err, out)
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.csv")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// What cannot be written, or asked for, is an error on all ranks, and so is another rank's.
func TestFaults(t *testing.T) {
	cfg := saved(t, "mlp", func(c *train.Config) { c.TrainLimit, c.EvalLimit = 64, 20 })
	from := data.InputConfig{Path: data.Synthetic, Seed: cfg.Seed}
	for want, how := range map[string]Config{"there are 10": {Top: 11}, "want jsonl, csv, parquet or arrow": {Format: "xml"}, "only tables": {Columns: []string{"a"}}} {
		if out, err := written(t, 2, cfg, from, how); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%+v: %v, want %q", how, err, want)
		}
	}
	err := on(t, 2, cfg, func(p *train.Predictor, rank int) error {
		in, err := data.OpenInput(p.Description(), data.InputConfig{Path: data.Synthetic, Rank: rank, Size: 2, Batch: 16})
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = Run(p, rank, in, failing{}, Config{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("a full disk: %v", err)
	}
	err = on(t, 2, cfg, func(p *train.Predictor, rank int) error {
		if rank == 1 {
			return errors.New("killed")
		}
		in, err := data.OpenInput(p.Description(), data.InputConfig{Path: data.Synthetic, Size: 2, Batch: 16})
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = Run(p, rank, in, io.Discard, Config{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a lost rank: %v", err)
	}
	if err := (Config{Format: Parquet}).Validate(); err == nil || !strings.Contains(err.Error(), "build one that does: go build -C data/parquet") {
		t.Errorf("this binary writes Parquet: %v", err)
	}
	if _, _, err := cut([]byte("short")); err == nil {
		t.Error("a block without its length was taken")
	}
	if err := on(t, 1, cfg, func(p *train.Predictor, _ int) error { return Write(p, Text{Tokens: 1}, io.Discard, nil) }); err == nil || !strings.Contains(err.Error(), "no language model") {
		t.Errorf("a classifier writes: %v", err)
	}
	w := &writer{finds: number, size: 1}
	if _, err := w.append(nil, &data.Rows{Batch: data.Batch{N: 1}, Numbers: []int64{7}}, []float32{float32(math.NaN())}); !errors.Is(err, errDiverged) || !strings.Contains(err.Error(), "row 7") {
		t.Errorf("no number: %v", err)
	}
}

// Clicks are probabilities, with any label or none.
func TestClicks(t *testing.T) {
	cfg := saved(t, "ctr-dnn", func(c *train.Config) { c.TrainLimit, c.EvalLimit, c.TableRows = 64, 20, 500 })
	line := "\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" + strings.Repeat("\tab12cd34", 26) + "\n"
	with := func(label string) string { return strings.Repeat(label+line, 40) }
	var texts []string
	for _, text := range []string{with("0"), with("1"), strings.ReplaceAll(with("x"), "x\t", "")} {
		out, err := written(t, 1, cfg, data.InputConfig{Path: data.Stdin, Stdin: strings.NewReader(text)}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, out)
	}
	got := lines(t, texts[0])
	if texts[1] != texts[0] || texts[2] != texts[0] || len(got) != 40 || got[39].Row != 39 || !(got[0].Probability > 0 && got[0].Probability < 1) {
		t.Errorf("%q", texts)
	}
	path := writeFile(t, with("0")+"bad\n"+with("1"))
	first, err := written(t, 1, cfg, data.InputConfig{Path: path, SkipBad: 1}, Config{})
	second, err2 := written(t, 2, cfg, data.InputConfig{Path: path, SkipBad: 1}, Config{})
	if all := lines(t, first); err != nil || err2 != nil || first != second || len(all) != 80 || all[40].Row != 41 {
		t.Errorf("%v, %v, %d rows", err, err2, len(all))
	}
	for text, want := range map[string]string{"": "no rows", "hello\n": "line 1", with("0")[:100]: "line 1"} {
		if _, err := written(t, 1, cfg, data.InputConfig{Path: data.Stdin, Stdin: strings.NewReader(text)}, Config{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "standard input") {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// A model by keys gives one logit, of synthetic data as of files.
func TestClicksByKeys(t *testing.T) {
	cfg := saved(t, "wide-deep", func(c *train.Config) { c.TrainLimit, c.EvalLimit, c.TableRows = 64, 20, 500 })
	path := writeFile(t, strings.Repeat("0\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13"+strings.Repeat("\tab12cd34", 26)+"\n", 20))
	for _, from := range []data.InputConfig{{Path: path}, {Path: data.Synthetic, Seed: cfg.Seed}} {
		text, err := written(t, 2, cfg, from, Config{})
		if err != nil {
			t.Fatal(err)
		}
		got := lines(t, text)
		if len(got) < 20 || !(got[19].Probability > 0 && got[19].Probability < 1) {
			t.Errorf("%s: %d rows, %.100s", from.Path, len(got), text)
		}
	}
}

// A word is quoted as JSON has it, whatever it is.
func FuzzQuoted(f *testing.F) {
	f.Add("plain")
	f.Add("\"<\\\u2028\xff\n")
	f.Fuzz(func(t *testing.T, word string) {
		var back string
		if err := json.Unmarshal(quoted(nil, word), &back); err != nil || back != strings.ToValidUTF8(word, "\ufffd") && strings.ToValidUTF8(word, "") == word {
			t.Errorf("%q became %s: %q, %v", word, quoted(nil, word), back, err)
		}
	})
}

// Numbers can be read by people and by JSON, with all digits that a float32 has.
func TestValues(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 1234567: "1234567", -0.25: "-0.25", 1e-9: "1e-09", 3e20: "3e+20", 245000.5: "245000.5"} {
		if got := string(value(nil, x)); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%v is written %s, want %s", x, got, want)
		}
	}
	if p := clickChance([]float32{1, 1}); p != 0.5 {
		t.Errorf("equal logits are a click with probability %v", p)
	}
}
