package train

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/weights"
)

// initSource is the origin of initial values: a file of weights, or a checkpoint's file with the
// parts that servers saved.
type initSource struct {
	*weights.Source
	parts  ServerCheckpoint // nil if the file has all values
	tables []string         // names of the tables in parts
}

// openSource opens Init.From. into are tables on the ranks that take its rows.
func (c Config) openSource(into []*nn.Table) (initSource, error) {
	file, err := weights.OpenSource(c.Start.From)
	if err != nil {
		return initSource{}, err
	}
	s := initSource{Source: file}
	if file.Saved != nil {
		part, err := ServerParts(*file.Saved, file.Path)
		if err == nil && part != nil {
			err = c.addParts(&s, *part, into)
		}
		if err != nil {
			return initSource{}, errors.Join(fmt.Errorf("%s: %w", file.Path, err), file.Close())
		}
	}
	return s, nil
}

// addParts adds the parts of servers to a checkpoint's file: dense parameters, in one array in the
// order of the same model's arena, and tables.
func (c Config) addParts(s *initSource, part ServersPart, into []*nn.Table) error {
	h := *s.Saved
	if h.Model != c.Model.Name {
		return fmt.Errorf("it is of model %s, with the parameters on servers as one array, which only the same model can read; start %s from the same model, or from a run without parameter servers", h.Model, c.Model.Name)
	}
	_, spec, o, err := ModelFromCheckpoint(h, c.Model)
	if err != nil {
		return err
	}
	ps := nn.NewParams(1)
	ps.TablesElsewhere()
	m := spec.Build(ps, o)
	if s.parts, err = c.Servers.recall(s.Path, h.Step, part); err != nil {
		return err
	}
	inFile := func(name string) bool {
		return slices.ContainsFunc(s.Tensors, func(i weights.Info) bool { return i.Name == name })
	}
	if err := LoadDense(context.Background(), ps, m, spec, inFile, s.parts); err != nil {
		return err
	}
	for _, p := range ps.List() {
		if !p.Frozen() {
			s.Tensors = append(s.Tensors, weights.Info{Name: p.Name, Type: "F32", Shape: p.Shape})
		}
	}
	for _, t := range ps.Tables() {
		s.tables = append(s.tables, t.Name)
		s.Tensors = append(s.Tensors, weights.Info{Name: t.Name, Type: "F32", Shape: []int{t.Rows, t.Dim}})
	}
	read := s.Read
	s.Read = func(name string) ([]float32, error) {
		if i := slices.IndexFunc(ps.List(), func(p *nn.Param) bool { return p.Name == name && !p.Frozen() }); i >= 0 {
			return ps.List()[i].Data, nil
		}
		if i := slices.IndexFunc(into, func(t *nn.Table) bool { return t.Name == name }); i >= 0 {
			return rowsOver(into[i], slices.Index(s.tables, name), s.parts)
		}
		return read(name)
	}
	return nil
}

// LoadDense loads the servers' dense parameters into a model before its arrangement: one array, in
// the order of the arena. Tensors selected by inFile were frozen: servers do not have them, and
// LoadDense does not change them.
func LoadDense(ctx context.Context, ps *nn.Params, m model.Model, spec model.Spec, inFile func(name string) bool, from ServerCheckpoint) error {
	for _, p := range ps.List() {
		if inFile(p.Name) {
			if err := ps.Freeze(p.Name); err != nil {
				return err
			}
		}
	}
	if err := m.Arrange(ps, spec.Sample(1)); err != nil {
		return err
	}
	if len(ps.Slots()) == 0 {
		return nil // the array is a stand-in: heter-trainers had all
	}
	return from.Array(ctx, 0, ps.Values())
}

// rowsOver returns a table's values: rows that servers had saved, and initial values for other
// rows, which no batch had used.
func rowsOver(t *nn.Table, number int, from ServerCheckpoint) ([]float32, error) {
	if t.Slots != nil {
		return nil, fmt.Errorf("table %s: the servers of the run had a row for each key, and here keys share %d rows by a hash: use parameter servers here, too; %v keeps the table's first values", t.Name, t.Rows, setting.Path("training.init-except"))
	}
	out := slices.Clone(t.Data)
	err := from.Each(context.Background(), number, func(keys []uint64, weights []float32) error {
		if err := fits(t, keys, weights); err != nil {
			return err
		}
		for i, key := range keys {
			copy(out[int(key)*t.Dim:][:t.Dim], weights[i*t.Dim:])
		}
		return nil
	})
	return out, err
}

const someRows = 4096

// BeginRows calls do with the initial rows of a table on servers, keys and weights, from Init.From:
// servers call it as server.Config.Begin before the first step. A run with servers has its rows, in
// no order; a tensor of all rows is read whole, row i for key i. A file without the table, or a
// table in Init.Except, gives no rows.
func (c Config) BeginRows(t schema.Sparse, do func(keys []uint64, weights []float32) error) error {
	if c.Start.From == "" {
		return nil
	}
	there := t.Name
	if c.Model.PyTorch != nil {
		there = c.Model.PyTorch(t.Name)
	}
	for _, pattern := range c.Start.Except {
		here, _ := path.Match(pattern, t.Name) // Validate reports an invalid pattern
		other, _ := path.Match(pattern, there)
		if here || other {
			return nil
		}
	}
	s, err := c.openSource(nil)
	if err == nil {
		err = errors.Join(s.beginRows(t, there, len(c.byKeys().Model.Slots) > 0, do), s.Close())
	}
	if err != nil {
		return fmt.Errorf("beginning with rows of %s: %w", c.Start.From, err)
	}
	return nil
}

func (s initSource) beginRows(t schema.Sparse, there string, byKeys bool, do func(keys []uint64, weights []float32) error) error {
	name := there
	if s.Saved != nil {
		name = t.Name
	}
	i := slices.IndexFunc(s.Tensors, func(i weights.Info) bool { return i.Name == name })
	if i < 0 {
		return nil
	}
	if shape := s.Tensors[i].Shape; len(shape) != 2 || shape[1] != t.Dim {
		return fmt.Errorf("%s: the file has %v, the table has rows of %d", name, shape, t.Dim)
	}
	if s.parts != nil {
		return s.parts.Each(context.Background(), slices.Index(s.tables, name), do)
	}
	if byKeys {
		return fmt.Errorf("%s: keys share its %d rows by a hash, and on servers each key has a row of its own: begin with a run with servers; %v leaves the table at first values; where ranks are told %v, servers must be, too", name, s.Tensors[i].Shape[0], setting.Path("training.init-except"), setting.Path("data.table-rows"))
	}
	data, err := s.Read(name)
	if err != nil {
		return err
	}
	var keys []uint64
	for part := range slices.Chunk(data, someRows*t.Dim) {
		first := uint64(0)
		if len(keys) > 0 {
			first = keys[len(keys)-1] + 1
		}
		keys = keys[:0]
		for range len(part) / t.Dim {
			keys = append(keys, first+uint64(len(keys)))
		}
		if err := do(keys, part); err != nil {
			return err
		}
	}
	return nil
}
