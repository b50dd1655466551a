package train

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train/internal/tensornames"
	"github.com/ringo-ml/ringo/weights"
)

// descriptionOf returns the description of a run's data in a checkpoint's header; an empty one
// without an entry.
func descriptionOf(h *checkpoint.Header) (d data.Description, err error) {
	if h == nil || h.More[moreSet] == "" {
		return d, nil
	}
	if err := json.Unmarshal([]byte(h.More[moreSet]), &d); err != nil {
		return d, fmt.Errorf("the description of the run's data cannot be read: %w", err)
	}
	return d, d.Validate()
}

// byName orders the tensors of s by the names of the run's model, and returns lines about mapped,
// new and unused names. Tensors that except selects keep their initial values and need no match. If
// a side has no names, or both have the same names, s does not change.
func (r *Replica) byName(s *initSource, c Config, except func(string) bool) (lines []string, err error) {
	if c.about == nil {
		return nil, nil
	}
	was, err := descriptionOf(s.Saved)
	if err != nil {
		return nil, err
	}
	old, now := tensornames.Extract(was), tensornames.Extract(*c.about)
	if old.None() || now.None() {
		return assumed(s.Path, was, *c.about, now), nil
	}
	if c.previous != nil && c.about.Encoder != nil {
		lines = append(lines, "columns keep the order, kinds, means and deviations of "+s.Path)
	}
	if reflect.DeepEqual(old, now) && tensornames.Compare(was, *c.about, true) == nil {
		return lines, nil
	}
	_, spec, o, err := ModelFromCheckpoint(*s.Saved, r.Spec)
	if err != nil {
		return nil, err
	}
	before, err := tensornames.Trace(spec, o, old)
	if err != nil {
		return nil, fmt.Errorf("the model of the checkpoint: %w", err)
	}
	d := *c.about
	after, err := tensornames.Trace(r.Spec, optionsOf(r.Spec, d.Classes, d.Vocabulary, d.Rows), now)
	if err != nil {
		return nil, err
	}
	head := slices.ContainsFunc(after.Head, func(name string) bool { return !except(name) })
	if err := tensornames.Compare(was, d, head || len(after.Head) == 0); err != nil {
		return nil, err
	}
	if err := r.followed(before, after, old, now, head); err != nil {
		return nil, err
	}
	if err := r.renameAll(s, before, after, except); err != nil {
		return nil, err
	}
	lines = append(lines, "mapped by name: "+tensornames.Mapped(old, now, head))
	if fresh := now.Unlike(old, head); fresh != "" {
		lines = append(lines, "new, at first values: "+fresh)
	}
	if gone := old.Unlike(now, head); gone != "" {
		lines = append(lines, "not used of the checkpoint: "+gone)
	}
	return lines, nil
}

// assumed returns a line that values keep their positions, if source or run have no names.
func assumed(path string, was, is data.Description, now tensornames.Names) []string {
	switch {
	case now.None() && is.Name != "arrays" && (was.Name == is.Name || was.Name == ""):
		return nil // such as mnist: the set fixes the meaning of its values
	case now.None():
		return []string{"assumed: the values and classes of these data are in the order of those that " + path + " was trained on, for they have no names here"}
	}
	return []string{"assumed: columns, categories and classes are in the order of those that " + path + " was trained on, for it has no names of them"}
}

// followed returns an error for names that differ in a way that the models cannot map. head reports
// whether the last layer is mapped.
func (r *Replica) followed(before, after tensornames.Axes, old, now tensornames.Names, head bool) error {
	opaque := before.Opaque
	if opaque == "" {
		opaque = after.Opaque
	}
	inputs := !slices.Equal(old.Inputs(), now.Inputs()) || !slices.Equal(old.Rows(), now.Rows())
	if inputs && opaque != "" {
		return fmt.Errorf("model %s passes its inputs through %s, after which columns cannot be matched by name, and the columns differ: the checkpoint has %s, these data %s: use data with the same columns in the same order",
			r.Spec.Name, opaque, tensornames.Enumerate(tensornames.Texts(old.Inputs())), tensornames.Enumerate(tensornames.Texts(now.Inputs())))
	}
	if (head || len(after.Head) == 0) && !slices.Equal(old.Outputs, now.Outputs) && !(before.Ends && after.Ends) {
		return fmt.Errorf("model %s has no last layer with one output per class, and the classes differ: the checkpoint has %s, these data %s: use data with the same classes",
			r.Spec.Name, tensornames.Enumerate(tensornames.Texts(old.Outputs)), tensornames.Enumerate(tensornames.Texts(now.Outputs)))
	}
	return nil
}

// renameAll replaces the tensors of s whose places differ. A tensor that does not match along an
// unnamed axis stays, and Fit reports both shapes.
func (r *Replica) renameAll(s *initSource, before, after tensornames.Axes, except func(string) bool) error {
	has := map[string]weights.Info{}
	for _, i := range s.Tensors {
		has[i.Name] = i
	}
	maps := map[string]tensornames.Map{}
	moved := map[string]bool{} // tables with rows of other slots
	for _, t := range r.tensors() {
		was := tensornames.NameBefore(t.name, before, after)
		i, ok := has[was]
		moved[was] = moved[was] || was != t.name
		moved[t.name] = moved[t.name] || was != t.name
		if !ok || except(t.name) {
			continue
		}
		shape := i.Shape
		if shape == nil { // running statistics
			values, err := s.Read(was)
			if err != nil {
				return err
			}
			shape = []int{len(values)}
		}
		m, ok := tensornames.Match(before.Labels(was), after.Labels(t.name), shape, t.shape)
		if m.Was = was; !ok || was == t.name && !m.Moves() {
			continue // Fit reports another shape
		}
		if t.elsewhere {
			return fmt.Errorf("table %s: servers load its rows unchanged, and here the rows belong to other columns: keep the order of the columns, or train without servers; %v keeps the table's first values", t.name, setting.Path("training.init-except"))
		}
		maps[t.name] = m
	}
	s.replace(maps, moved, r.tensors())
	return nil
}

// replace makes s read tensors by maps, and removes tables of moved that no map names.
func (s *initSource) replace(maps map[string]tensornames.Map, moved map[string]bool, here []tensor) {
	var all []weights.Info
	for _, i := range s.Tensors {
		if _, ok := maps[i.Name]; !ok && !moved[i.Name] {
			all = append(all, i)
		}
	}
	own := map[string][]float32{}
	for _, t := range here {
		own[t.name] = t.data
		if m, ok := maps[t.name]; ok {
			i := slices.IndexFunc(s.Tensors, func(i weights.Info) bool { return i.Name == m.Was })
			info := s.Tensors[i]
			info.Name, info.Shape = t.name, m.Shape
			all = append(all, info)
		}
	}
	read := s.Read
	s.Tensors = all
	s.Read = func(name string) ([]float32, error) {
		m, ok := maps[name]
		if !ok {
			return read(name)
		}
		old, err := read(m.Was)
		if err != nil {
			return nil, err
		}
		out := slices.Clone(own[name])
		m.Apply(out, old)
		return out, nil
	}
}

type tensor struct {
	name      string
	shape     []int
	data      []float32
	elsewhere bool
}

func (r *Replica) tensors() (out []tensor) {
	for _, p := range r.Params.List() {
		out = append(out, tensor{name: p.Name, shape: p.Shape, data: p.Data})
	}
	for _, t := range r.Params.Tables() {
		out = append(out, tensor{t.Name, []int{t.Rows, t.Dim}, t.Data, len(t.Data) != t.Rows*t.Dim})
	}
	for _, b := range r.Params.BufferList() {
		out = append(out, tensor{name: b.Name, shape: []int{len(b.Data)}, data: b.Data})
	}
	return out
}
