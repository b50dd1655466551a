package weights

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/spelling"
)

// Fit matches the tensors of a file with the tensors of a model.
type Fit struct {
	// Taken are the names of tensors in both, Unmatched tensors that keep the model's values, and
	// Unused tensors in the file only; each sorted. Counts of batches (num_batches_tracked), unused
	// here, are in none.
	Taken, Unmatched, Unused []string
	// Elsewhere are tables in both, with rows on servers: the servers decide whether to load them.
	Elsewhere []string

	places []place // one per taken tensor
}

// Fit determines the tensors of a file that the model takes. Tensors named by except keep the
// model's values; nil means none. All tensors of other shapes or types are reported together.
func (m Model) Fit(infos []Info, except func(name string) bool) (Fit, error) {
	var f Fit
	var errs []error
	has := map[string]Info{}
	for _, i := range infos {
		has[i.Name] = i
	}
	for _, p := range m.places {
		i, ok := has[p.name]
		if !ok || except != nil && except(p.name) {
			f.Unmatched = append(f.Unmatched, p.name)
			continue
		}
		delete(has, p.name)
		if err := p.takes(i); err != nil {
			errs = append(errs, err)
			continue
		}
		if p.elsewhere {
			f.Elsewhere = append(f.Elsewhere, p.name)
			continue
		}
		f.Taken, f.places = append(f.Taken, p.name), append(f.places, p)
	}
	for name := range has {
		if !strings.HasSuffix(name, tracked) {
			f.Unused = append(f.Unused, name)
		}
	}
	slices.Sort(f.Unused)
	return f, errors.Join(errs...)
}

// takes reports a tensor that does not fit a place.
func (p place) takes(i Info) error {
	switch {
	case i.Shape == nil && i.len() != int64(Tensor{Shape: p.shape}.Len()):
		return fmt.Errorf("%s: the file has %d values, the model has %v", p.name, i.len(), p.shape)
	case i.Shape != nil && !slices.Equal(i.Shape, p.shape):
		return fmt.Errorf("%s: the file has %v, the model has %v", p.name, i.Shape, p.shape)
	case !i.Float():
		return fmt.Errorf("%s: the file has values of type %s, want F32, F16, BF16 or F64", p.name, i.Type)
	}
	return nil
}

// Put overwrites the taken tensors with the values that read returns by name. After an error of
// read, the remaining tensors have their old values.
func (f Fit) Put(read func(name string) ([]float32, error)) error {
	for _, p := range f.places {
		data, err := read(p.name)
		if err != nil {
			return err
		}
		if len(data) != len(p.data) {
			return fmt.Errorf("weights: %s has %d values, want %d", p.name, len(data), len(p.data))
		}
		p.each(func(there, here int) { p.data[here] = data[there] })
	}
	return nil
}

// Names are the names of the model's tensors, sorted.
func (m Model) Names() []string {
	out := make([]string, len(m.places))
	for i, p := range m.places {
		out[i] = p.name
	}
	return out
}

// Put overwrites the whole model with the tensors that read returns by name. It first reports all
// tensors that are missing, of another shape or unknown, together.
func (m Model) Put(infos []Info, read func(name string) ([]float32, error)) error {
	f, err := m.Fit(infos, nil)
	errs := []error{err}
	for _, name := range f.Unmatched {
		hint := spelling.Hint(name, f.Unused...)
		errs = append(errs, fmt.Errorf("%s: the file has none, the model has %v%s", name, m.shape(name), hint))
	}
	for _, name := range f.Elsewhere {
		errs = append(errs, fmt.Errorf("%s: its rows lie on servers", name))
	}
	for _, name := range f.Unused {
		i := slices.IndexFunc(infos, func(i Info) bool { return i.Name == name })
		errs = append(errs, fmt.Errorf("%s: the file has %v, the model has none", name, infos[i].Shape))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("weights do not fit the model: %w", err)
	}
	return f.Put(read)
}

func (m Model) shape(name string) []int {
	return m.places[slices.IndexFunc(m.places, func(p place) bool { return p.name == name })].shape
}
