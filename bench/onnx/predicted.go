package main

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/predict"
	"github.com/ringo-ml/ringo/train"
)

// rehearsal is a model that the program trains a little, exports, and predicts a file with.
type rehearsal struct {
	model string
	train string                              // flags of its training
	input func(folder string) (string, error) // writes what is predicted
}

// predictedSamples is how many there are.
const predictedSamples = 24

// clickLayout is that of rows with a label, numbers, and every kind of slot.
const clickLayout = `columns:
  - {name: clicked, kind: label}
  - {name: price, kind: number, transform: log}
  - {name: age, kind: number}
  - {name: user, kind: category}
  - {name: tags, kind: bag, separator: "|"}
  - {name: item, kind: category, table: items}
  - {name: seen, kind: sequence, table: items}
  - {name: code, kind: category, values: hex}
  - {name: given, kind: bag, values: key}
`

// rehearsals are those of models of the zoo for which `ringo predict` takes data: language models write text.
func rehearsals(folder string) (out []rehearsal) {
	const few = "--train-limit 32 --eval-limit 32 --batch 8 --lr 0.0001" // so that no model is certain of one class
	for _, s := range models.All() {
		switch {
		case s.Task == model.Language:
		case s.Task == model.Click:
			const rows = " --set data.table-rows=5000"
			synthetic := rehearsal{s.Name, "--data synthetic --train-limit 512 --eval-limit 64 --batch 64", writeClicks}
			bags := rehearsal{s.Name, "--batch 64 --layout " + filepath.Join(folder, "my.yaml") + " --data " + filepath.Join(folder, "bags"),
				func(string) (string, error) { return filepath.Join(folder, "bags", "other.tsv"), nil }}
			if !slices.ContainsFunc(s.Slots, func(s model.Slot) bool { return s.Sequence }) {
				out = append(out, synthetic)
				out[len(out)-1].train += rows
			}
			out = append(out, bags, bags)
			out[len(out)-2].train += rows
			out[len(out)-1].train += " --servers 1 --sync bsp"
		default:
			out = append(out, rehearsal{s.Name, "--data synthetic " + few, writeImages})
		}
	}
	for _, target := range []string{"price", "town"} {
		out = append(out, rehearsal{"mlp", "--data " + filepath.Join(folder, "table.csv") + " --batch 8 --epochs 2 --set data.target=" + target, writeTable})
	}
	return out
}

// predicted compares what `ringo predict` writes with what ONNX Runtime computes of the exported graph, for samples that package data reads
// of the same file.
func (c *contest) predicted(program string, only []string) error {
	fmt.Fprintf(c.out, "%-16s %-8s %7s %10s\n", "model", "data", "samples", "apart")
	if _, err := writeTable(c.folder); err != nil {
		return err
	}
	if err := c.writeBags(program); err != nil {
		return err
	}
	for _, r := range rehearsals(c.folder) {
		if !slices.Contains(only, r.model) {
			continue
		}
		far, kind, err := c.rehearse(program, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.model, err)
		}
		fmt.Fprintf(c.out, "%-16s %-8s %7d %10.1e\n", r.model, kind, predictedSamples, far)
		if !(far <= c.limit) {
			return fmt.Errorf("%s: predictions are %.2g apart, at most %g may be", r.model, far, c.limit)
		}
	}
	return nil
}

// rehearse trains, exports and predicts, and says how far both sides are apart.
func (c *contest) rehearse(program string, r rehearsal) (far float64, kind string, err error) {
	dir, err := os.MkdirTemp(c.folder, "run-")
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	saved, graph := filepath.Join(dir, "saved"), filepath.Join(dir, "model.onnx")
	input, err := r.input(dir)
	if err != nil {
		return 0, "", err
	}
	ringo := func(line ...string) (string, error) { return output("", program, line...) }
	if _, err := ringo(append([]string{"train", r.model, "--epochs", "1", "--progress", "none", "--checkpoint", saved}, strings.Fields(r.train)...)...); err != nil {
		return 0, "", err
	}
	d, spec, err := described(saved, r.model)
	if err != nil {
		return 0, "", err
	}
	if len(spec.Slots) > 0 {
		far, err = c.bundled(ringo, saved, dir, input)
		return far, "bundle", err
	}
	if _, err := ringo("export", saved, "--format", "onnx", "--inputs", "encoded", "--out", graph); err != nil {
		return 0, "", err
	}
	line := []string{"predict", saved, "--data", input, "--format", "csv", "--progress", "none"}
	classes := spec.Task != model.Click && spec.Targets == 0
	if classes {
		line = append(line, "--top", strconv.Itoa(min(d.Classes, 10)))
	}
	text, err := ringo(line...)
	if err != nil {
		return 0, "", err
	}
	if _, err := c.runtime.ask(request{Ask: "load", Path: graph}); err != nil {
		return 0, "", err
	}
	outputs, err := c.outputsOf(d, spec, input)
	if err != nil {
		return 0, "", err
	}
	far, err = apartFrom(text, outputs, d, spec)
	return far, kindOf(d, classes), err
}

// output runs a program in a folder, and returns what it prints.
func output(dir, program string, line ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.Command(program, line...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, &errs)
	}
	return out.String(), nil
}

// writeBags writes a layout, rows to train on, and rows to predict: of other values, most of which
// training never had.
func (c *contest) writeBags(program string) error {
	schema, more, folder := filepath.Join(c.folder, "my.yaml"), filepath.Join(c.folder, "more"), filepath.Join(c.folder, "bags")
	if err := os.WriteFile(schema, []byte(clickLayout), 0o666); err != nil {
		return err
	}
	for out, values := range map[string]string{folder: "500", more: "100000"} {
		if _, err := output("", program, "data", "clicks", "--layout", schema, "--generate", "2000", "--values", values, "--out", out); err != nil {
			return err
		}
	}
	text, err := pathname.Read(filepath.Join(more, "test.tsv"), 1<<24)
	if err != nil {
		return err
	}
	lines := strings.SplitAfterN(string(text), "\n", predictedSamples+1)
	return os.WriteFile(filepath.Join(folder, "other.tsv"), []byte(strings.Join(lines[:predictedSamples], "")), 0o666)
}

// bundled compares what `ringo predict` writes with what examples/bundle/predict.js prints.
func (c *contest) bundled(ringo func(...string) (string, error), saved, dir, input string) (far float64, err error) {
	bundle := filepath.Join(dir, "bundle")
	if _, err := ringo("export", saved, "--format", "bundle", "--out", bundle); err != nil {
		return 0, err
	}
	text, err := ringo("predict", saved, "--data", input, "--format", "csv", "--progress", "none")
	if err != nil {
		return 0, err
	}
	example, err := filepath.Abs(c.example)
	if err != nil {
		return 0, err
	}
	printed, err := output(c.modules, "node", example, bundle, input)
	if err != nil {
		return 0, err
	}
	want, got := strings.Fields(text)[1:], strings.Fields(printed)
	if len(want) == 0 || len(got) != len(want) {
		return 0, fmt.Errorf("%d predictions, and %d of %s", len(want), len(got), example)
	}
	for i, line := range want {
		p, err := strconv.ParseFloat(line[strings.IndexByte(line, ',')+1:], 64)
		if err == nil {
			err = differ(&far, got[i], p)
		}
		if err != nil {
			return 0, fmt.Errorf("row %d: %w", i, err)
		}
	}
	return far, nil
}

func kindOf(d data.Description, classes bool) string {
	switch {
	case d.Encoder == nil:
		return d.Name
	case classes:
		return "words"
	}
	return "numbers"
}

// described is what a run's last checkpoint says of its data and model.
func described(dir, name string) (d data.Description, spec model.Spec, err error) {
	if spec, err = models.Lookup(name); err != nil {
		return d, spec, err
	}
	path, err := checkpoint.Locate(dir)
	if err != nil {
		return d, spec, err
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		return d, spec, err
	}
	d, spec, _, err = train.ModelFromCheckpoint(f.Header, spec)
	return d, spec, errors.Join(err, f.Close())
}

// outputsOf are the runtime's outputs for all samples of a file, one after the other.
func (c *contest) outputsOf(d data.Description, spec model.Spec, path string) (out []float32, err error) {
	in, err := data.OpenInput(d, data.InputConfig{Path: path, Batch: 5})
	if err != nil {
		return nil, err
	}
	defer in.Close()
	name := "logits"
	if spec.Targets > 0 {
		name = "prediction"
	}
	n := &net{spec: spec, folder: c.folder}
	for {
		rows, ok, err := in.Next()
		if err != nil || !ok {
			return out, err
		}
		b := model.Batch{N: rows.N, IDs: rows.IDs}
		if len(spec.Input) > 0 {
			b.Values = &nn.Tensor{Shape: append([]int{rows.N}, spec.Input...), Data: rows.Values}
		}
		feed, err := n.feed(b)
		if err != nil {
			return nil, err
		}
		feed.Outputs = []string{name}
		if _, err := c.runtime.ask(feed); err != nil {
			return nil, err
		}
		if _, err := c.runtime.ask(request{Ask: "run", Folder: c.folder}); err != nil {
			return nil, err
		}
		raw, err := pathname.Read(filepath.Join(c.folder, name), 1<<32)
		if err != nil {
			return nil, err
		}
		part := make([]float32, len(raw)/4)
		if _, err := binary.Decode(raw, binary.LittleEndian, part); err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
}

// apartFrom is how far predictions, as CSV, are from a runtime's outputs: the largest difference of probabilities, or of numbers as a share of the
// largest. Classes that do not come in the order of their probabilities, but for the same difference, are as far apart as these.
func apartFrom(text string, outputs []float32, d data.Description, spec model.Spec) (far float64, err error) {
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return 0, err
	}
	rows := len(records) - 1
	if rows < 1 || len(outputs)%rows != 0 {
		return 0, fmt.Errorf("%d predictions and %d outputs", rows, len(outputs))
	}
	width, most := len(outputs)/rows, 1.0
	for i, record := range records[1:] {
		out, found := outputs[i*width:][:width], record[1:]
		switch {
		case spec.Targets > 0:
			goal, _ := d.Encoder.Goal()
			want := goal.Value(out[0])
			most = max(most, math.Abs(want))
			err = differ(&far, found[0], want)
		case spec.Task == model.Click:
			err = differ(&far, found[0], predict.Softmax(nil, out, 1)[1])
		default:
			err = classesApart(&far, found, predict.Softmax(nil, out, 1), d.Words)
		}
		if err != nil {
			return 0, fmt.Errorf("row %d: %w", i, err)
		}
	}
	return far / most, nil
}

// classesApart compares classes and their probabilities, the most probable ones first, with those of all classes.
func classesApart(far *float64, found []string, chances []float64, words []string) error {
	left := slices.Clone(chances)
	for k := 0; k+1 < len(found); k += 2 {
		class := slices.Index(words, found[k])
		if len(words) == 0 {
			class, _ = strconv.Atoi(found[k])
		}
		if class < 0 || class >= len(chances) {
			return fmt.Errorf("%q is no class", found[k])
		}
		if err := differ(far, found[k+1], chances[class]); err != nil {
			return err
		}
		*far = max(*far, slices.Max(left)-left[class])
		left[class] = -1
	}
	return nil
}

// differ makes far the difference of a number from its text, where that is larger.
func differ(far *float64, text string, want float64) error {
	got, err := strconv.ParseFloat(text, 64)
	if err == nil && (got-got != 0 || want-want != 0) {
		err = fmt.Errorf("%s and %v are no finite numbers", text, want)
	}
	*far = max(*far, math.Abs(got-want))
	return err
}

// writeImages writes pictures of several sizes.
func writeImages(folder string) (string, error) {
	dir := filepath.Join(folder, "images")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", err
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range predictedSamples {
		img := image.NewRGBA(image.Rect(0, 0, 40+r.IntN(60), 40+r.IntN(60)))
		for y := range img.Rect.Dy() {
			for x := range img.Rect.Dx() {
				img.Set(x, y, color.RGBA{uint8(x * (i + 1)), uint8(y*7 + i), uint8(r.IntN(256)), 255})
			}
		}
		err := writeFile(filepath.Join(dir, fmt.Sprintf("%03d.png", i)), func(w io.Writer) error { return png.Encode(w, img) })
		if err != nil {
			return "", err
		}
	}
	return dir, nil
}

// writeClicks writes rows of Criteo without a label.
func writeClicks(folder string) (string, error) {
	r := rand.New(rand.NewPCG(3, 4))
	path := filepath.Join(folder, "clicks.txt")
	return path, writeFile(path, func(w io.Writer) error {
		for range predictedSamples {
			var fields []string
			for range 13 {
				fields = append(fields, strconv.Itoa(r.IntN(1000)))
			}
			for range 26 {
				fields = append(fields, fmt.Sprintf("%08x", r.IntN(50)))
			}
			if _, err := fmt.Fprintln(w, strings.Join(fields, "\t")); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeTable writes a table of which a number and a word can be found.
func writeTable(folder string) (string, error) {
	r := rand.New(rand.NewPCG(5, 6))
	path := filepath.Join(folder, "table.csv")
	return path, writeFile(path, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, "area,rooms,town,price")
		for range predictedSamples {
			area, rooms, town := 20+80*r.Float64(), 1+r.IntN(5), r.IntN(3)
			_, bad := fmt.Fprintf(w, "%.1f,%d,%s,%.0f\n", area, rooms, []string{"Bern", "Zug", "Chur"}[town], 2000*area+90000*float64(town))
			err = errors.Join(err, bad)
		}
		return err
	})
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
