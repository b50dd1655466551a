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
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/train"
)

type trained struct {
	spec  model.Spec
	model model.Model
	ps    *nn.Params
	data  data.Description
	step  int64
	// served reports whether servers had the parameters: rows of tables are in their checkpoints.
	served bool
	job    *offline.Job // servers' checkpoints
	ctx    context.Context
}

// load reads the model of a checkpoint file, or of a folder's checkpoint by checkpoint.Choose.
func load(ctx context.Context, path string) (*trained, error) {
	path, _, err := checkpoint.Choose(path)
	if err != nil {
		return nil, err
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := read(ctx, path, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func read(ctx context.Context, path string, f *checkpoint.File) (*trained, error) {
	spec, err := models.Lookup(f.Header.Model)
	if err != nil {
		return nil, err
	}
	part, err := train.ServerParts(f.Header, path)
	if err != nil {
		return nil, err
	}
	seed, err := seedOf(f.Header)
	if err != nil {
		return nil, err
	}
	m := &trained{ctx: ctx, step: f.Header.Step, ps: nn.NewParams(seed), served: part != nil}
	var o model.Options
	if m.data, m.spec, o, err = train.ModelFromCheckpoint(f.Header, spec); err != nil {
		return nil, err
	}
	ownRows := m.data.Encoder != nil // few: a row for each word of a table of columns
	if m.served && !ownRows {
		m.ps.TablesElsewhere()
	}
	m.model = m.spec.Build(m.ps, o)
	if m.served {
		m.job, err = offline.At(train.AttemptDir(filepath.Dir(path), part.Start), uint64(f.Header.Step), part.Numbers)
		if err != nil {
			return nil, err
		}
		inFile := func(name string) bool {
			return slices.ContainsFunc(f.Arrays(), func(i checkpoint.Info) bool { return i.Name == "param/"+name })
		}
		err = train.LoadDense(ctx, m.ps, m.model, m.spec, inFile, m.job)
		if err == nil && ownRows {
			err = m.loadRows()
		}
		if err != nil {
			return nil, err
		}
	}
	return m, f.ReadSome(m.arrays()...)
}

// loadRows loads the servers' rows. Others keep initial values, as no batch had their keys.
func (m *trained) loadRows() error {
	for i, t := range m.ps.Tables() {
		err := m.job.Each(m.ctx, i, func(keys []uint64, weights []float32) error {
			for k, key := range keys {
				if key >= uint64(t.Rows) || len(weights) != len(keys)*t.Dim {
					return fmt.Errorf("table %s: row %d of %d values: want rows below %d of %d values", t.Name, key, len(weights)/len(keys), t.Rows, t.Dim)
				}
				copy(t.Data[int(key)*t.Dim:][:t.Dim], weights[k*t.Dim:])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// seedOf returns the run's seed, for the initial weights of rows that servers never had.
func seedOf(h checkpoint.Header) (uint64, error) {
	text, ok := h.Settings["training.seed"]
	if !ok {
		return 1, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

func (m *trained) arrays() (out []checkpoint.Array) {
	for _, p := range m.ps.List() {
		if !m.served || p.Frozen() {
			out = append(out, checkpoint.Floats("param/"+p.Name, p.Data))
		}
	}
	for _, t := range m.ps.Tables() {
		if !m.served {
			out = append(out, checkpoint.Floats("table/"+t.Name, t.Data))
		}
	}
	for _, b := range m.ps.BufferList() {
		out = append(out, checkpoint.Floats("buffer/"+b.Name, b.Data))
	}
	return out
}

func (m *trained) names(name string) string { return models.PyTorchName(m.spec.Name, name) }

// about returns the metadata of a graph: preprocessing of inputs and meaning of outputs.
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

func joined(vs []float32) string {
	var out []string
	for _, v := range vs {
		out = append(out, strconv.FormatFloat(float64(v), 'g', -1, 32))
	}
	return strings.Join(out, ",")
}
