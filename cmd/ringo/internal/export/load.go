package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/ps/saved"
	"github.com/ringo-ml/ringo/train"
)

// trained is a model as a checkpoint has it.
type trained struct {
	spec  model.Spec
	model model.Model
	ps    *nn.Params
	data  data.Description
	step  int64
	// served says that a table's rows lie on the run's servers, and are not here.
	served bool
}

// load reads the model of a checkpoint's file, or of a folder's last one.
func load(ctx context.Context, path string) (*trained, error) {
	path, err := checkpoint.Of(path)
	if err != nil {
		return nil, err
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := build(f)
	if err == nil {
		err = f.Read(m.arrays(f.Arrays())...)
	}
	if err == nil && m.served {
		err = m.fetch(ctx, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// build makes the model that a file was saved of.
func build(f *checkpoint.File) (*trained, error) {
	spec, err := models.Lookup(f.Header.Model)
	if err != nil {
		return nil, err
	}
	m := &trained{step: f.Header.Step, ps: nn.NewParams(1)}
	var o model.Options
	if m.data, m.spec, o, err = train.Described(f.Header, spec); err != nil {
		return nil, err
	}
	outline := nn.NewOutline()
	m.spec.Build(outline, o)
	m.served = slices.ContainsFunc(outline.Tables(), func(t *nn.Table) bool {
		return !slices.ContainsFunc(f.Arrays(), func(i checkpoint.Info) bool { return i.Name == "table/"+t.Name })
	})
	if m.served {
		m.ps.TablesElsewhere()
	}
	m.model = m.spec.Build(m.ps, o)
	if !m.served {
		return m, nil
	}
	// Servers have parameters as one array, in the order of the arena; frozen ones, which they do not know, are in the file.
	for _, i := range f.Arrays() {
		if name, is := strings.CutPrefix(i.Name, "param/"); is {
			if err := m.ps.Freeze(name); err != nil {
				return nil, err
			}
		}
	}
	return m, m.model.Arrange(m.ps, m.spec.Sample(1))
}

// fetch reads what servers have saved with the checkpoint, but for the rows of tables.
func (m *trained) fetch(ctx context.Context, path string) error {
	_, step, part, err := train.LastServers(path)
	if err != nil {
		return err
	}
	j, err := saved.At(train.StartDir(filepath.Dir(path), part.Start), uint64(step), part.Numbers)
	if err != nil {
		return err
	}
	return j.Array(ctx, 0, m.ps.Values())
}

// arrays are what a file has: the model's to be read, others to be passed by.
func (m *trained) arrays(has []checkpoint.Info) (out []checkpoint.Array) {
	own := map[string]bool{}
	add := func(name string, data []float32) {
		own[name] = true
		out = append(out, checkpoint.Floats(name, data))
	}
	for _, p := range m.ps.List() {
		if !m.served || p.Frozen() {
			add("param/"+p.Name, p.Data)
		}
	}
	for _, t := range m.ps.Tables() {
		if !m.served {
			add("table/"+t.Name, t.Data)
		}
	}
	for _, b := range m.ps.BufferList() {
		add("buffer/"+b.Name, b.Data)
	}
	for _, i := range has {
		switch {
		case own[i.Name]:
		case i.Kind == "float32":
			out = append(out, checkpoint.Passing(i.Name, int(i.Len), func([]float32) error { return nil }))
		case i.Kind == "uint64":
			out = append(out, checkpoint.Words(i.Name, make([]uint64, i.Len)))
		default:
			out = append(out, checkpoint.Bytes(i.Name, make([]byte, i.Len)))
		}
	}
	return out
}

// names are a parameter's name in PyTorch.
func (m *trained) names(name string) string { return models.PyTorchName(m.spec.Name, name) }

// about are words that stand beside a graph: what inputs are made by, and what outputs mean.
func (m *trained) about() (map[string]string, error) {
	about := map[string]string{"model": m.spec.Name, "step": strconv.FormatInt(m.step, 10)}
	if mean, deviation, ok := m.data.Normalisation(); ok && len(m.spec.Input) == 3 && m.spec.Input[2] == len(mean) {
		about["pixels"] = "(pixel/255 - mean)/deviation, by channel"
		about["mean"], about["deviation"] = joined(mean), joined(deviation)
	}
	var errs []error
	put := func(key string, v any) {
		text, err := json.Marshal(v)
		about[key] = string(text)
		errs = append(errs, err)
	}
	switch {
	case m.data.Encoder != nil:
		put("columns", m.data.Encoder.Columns)
	case len(m.data.Words) > 0 && m.spec.Task == model.Language:
		put("vocabulary", m.data.Words)
	case len(m.data.Words) > 0:
		put("classes", m.data.Words)
	}
	return about, errors.Join(errs...)
}

// joined are numbers with commas between.
func joined(vs []float32) string {
	var out []string
	for _, v := range vs {
		out = append(out, strconv.FormatFloat(float64(v), 'g', -1, 32))
	}
	return strings.Join(out, ",")
}
