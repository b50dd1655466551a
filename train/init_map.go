package train

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/weights"
)

// A run that starts from a checkpoint has its own data: other columns, categories or classes, or
// another order. The mapping has three steps. The first two depend only on the descriptions of both
// runs' data and the shapes of tensors:
//
//   - namesOf extracts the names of both descriptions, and compare rejects conflicts.
//   - traceNames labels the places of both models' tensors, and matchTensor finds the old place
//     with the same labels for each new place.
//   - replace makes the source read old tensors in the new places. Places without a match keep the
//     values of a new run of the same seed.

// tensorMap maps places of a tensor to places of a tensor of another shape.
type tensorMap struct {
	was   string // name of the old tensor
	shape []int
	old   []int
	from  [][]int // along each axis: the old place of each place, or -1
}

// matchPlaces returns the place in was for each label of now, or -1. Unlabelled axes must have
// equal sizes. ok is false if they differ, or if two places of was have one label.
func matchPlaces(was, now []label, old, size int) (from []int, ok bool) {
	if len(was) != old || len(now) != size {
		for i := range size {
			from = append(from, i)
		}
		return from, old == size
	}
	at := map[label]int{}
	for i, l := range was {
		at[l] = i
	}
	for _, l := range now {
		i, has := at[l]
		if !has {
			i = -1
		}
		from = append(from, i)
	}
	return from, len(at) == len(was)
}

// matchTensor maps a tensor by the labels along its axes. ok is false if an axis without labels has
// another size.
func matchTensor(was, now [][]label, old, shape []int) (m tensorMap, ok bool) {
	if len(old) != len(shape) {
		return m, false
	}
	m.shape, m.old = shape, old
	along := func(of [][]label, k int) []label {
		if k < len(of) {
			return of[k]
		}
		return nil
	}
	for k := range shape {
		from, ok := matchPlaces(along(was, k), along(now, k), old[k], shape[k])
		if !ok {
			return m, false
		}
		m.from = append(m.from, from)
	}
	return m, true
}

// moves reports whether the map changes any place.
func (m tensorMap) moves() bool {
	if !slices.Equal(m.shape, m.old) {
		return true
	}
	for _, from := range m.from {
		for i, at := range from {
			if at != i {
				return true
			}
		}
	}
	return false
}

// apply copies old values to their new places in out.
func (m tensorMap) apply(out, old []float32) {
	at := make([]int, len(m.shape))
	for i := range out {
		from, rest := 0, i
		for k := len(at) - 1; k >= 0; k-- {
			at[k] = rest % m.shape[k]
			rest /= m.shape[k]
		}
		for k, place := range at {
			if m.from[k][place] < 0 {
				from = -1
				break
			}
			from = from*m.old[k] + m.from[k][place]
		}
		if from >= 0 {
			out[i] = old[from]
		}
	}
}

// descriptionOf returns the description of a run's data in a checkpoint's header; an empty one
// without an entry.
func descriptionOf(h *checkpoint.Header) (d data.Description, err error) {
	if h == nil || h.More[moreSet] == "" {
		return d, nil
	}
	if err := json.Unmarshal([]byte(h.More[moreSet]), &d); err != nil {
		return d, fmt.Errorf("what the run's data were cannot be read: %w", err)
	}
	return d, d.Validate()
}

// byName makes s a source whose tensors have the places of this run's model, and returns lines
// about mapped, new and unused names. Tensors that except selects keep their initial values and
// need no match. s does not change without names on one side, or with equal names.
func (r *Replica) byName(s *initSource, c Config, except func(string) bool) (lines []string, err error) {
	if c.about == nil {
		return nil, nil
	}
	was, err := descriptionOf(s.Saved)
	if err != nil {
		return nil, err
	}
	old, now := namesOf(was), namesOf(*c.about)
	if old.none() || now.none() {
		return assumed(s.Path, was, *c.about, now), nil
	}
	if c.previous != nil && c.about.Encoder != nil {
		lines = append(lines, "columns keep the order, kinds, means and deviations of "+s.Path)
	}
	if reflect.DeepEqual(old, now) && compare(was, *c.about, true) == nil {
		return lines, nil
	}
	_, spec, o, err := ModelFromCheckpoint(*s.Saved, r.Spec)
	if err != nil {
		return nil, err
	}
	before, err := traceNames(spec, o, old)
	if err != nil {
		return nil, fmt.Errorf("the model of the checkpoint: %w", err)
	}
	d := *c.about
	after, err := traceNames(r.Spec, optionsOf(r.Spec, d.Classes, d.Vocabulary, d.Rows), now)
	if err != nil {
		return nil, err
	}
	head := slices.ContainsFunc(after.head, func(name string) bool { return !except(name) })
	if err := compare(was, d, head || len(after.head) == 0); err != nil {
		return nil, err
	}
	if err := r.followed(before, after, old, now, head); err != nil {
		return nil, err
	}
	if err := r.renameAll(s, before, after, except); err != nil {
		return nil, err
	}
	lines = append(lines, "mapped by name: "+mapped(old, now, head))
	if fresh := now.unlike(old, head); fresh != "" {
		lines = append(lines, "new, at first values: "+fresh)
	}
	if gone := old.unlike(now, head); gone != "" {
		lines = append(lines, "not used of the checkpoint: "+gone)
	}
	return lines, nil
}

// mapped returns the kinds of names that were matched.
func mapped(old, now names, head bool) string {
	var kinds []string
	add := func(is bool, kind string) {
		if is {
			kinds = append(kinds, kind)
		}
	}
	add(len(old.values)+len(old.ids) > 0 && len(now.values)+len(now.ids) > 0, "columns")
	add(len(old.rows()) > 0 && len(now.rows()) > 0, "categories")
	add(len(old.slots) > 0 && len(now.slots) > 0, "slots")
	add(len(old.words) > 0 && len(now.words) > 0, "words")
	add(head && len(now.words) == 0 && len(now.outputs) > 1, "classes")
	return strings.Join(kinds, ", ")
}

// assumed returns a line that values are taken by their places, because one side has no names.
func assumed(path string, was, is data.Description, now names) []string {
	switch {
	case now.none() && is.Name != "arrays" && (was.Name == is.Name || was.Name == ""):
		return nil // such as mnist: the set fixes the meaning of its values
	case now.none():
		return []string{"assumed: the values and classes of these data are in the order of those that " + path + " was trained on, for they have no names here"}
	}
	return []string{"assumed: columns, categories and classes are in the order of those that " + path + " was trained on, for it has no names of them"}
}

// followed reports differing names that the models do not let through. head reports that the last
// layer is mapped.
func (r *Replica) followed(before, after axes, old, now names, head bool) error {
	opaque := before.opaque
	if opaque == "" {
		opaque = after.opaque
	}
	inputs := !slices.Equal(old.inputs(), now.inputs()) || !slices.Equal(old.rows(), now.rows())
	if inputs && opaque != "" {
		return fmt.Errorf("model %s passes its inputs through %s, behind which they have no names, and these differ: the checkpoint has %s, these data %s: give the data the same columns in the same order",
			r.Spec.Name, opaque, some(textsOf(old.inputs())), some(textsOf(now.inputs())))
	}
	if (head || len(after.head) == 0) && !slices.Equal(old.outputs, now.outputs) && !(before.ends && after.ends) {
		return fmt.Errorf("the outputs of model %s are not those of a layer of that size, and their names differ: the checkpoint has %s, these data %s: give the data the same classes",
			r.Spec.Name, some(textsOf(old.outputs)), some(textsOf(now.outputs)))
	}
	return nil
}

// renameAll replaces the tensors of s whose places differ. A tensor that does not match along an
// unnamed axis stays, and Fit reports both shapes.
func (r *Replica) renameAll(s *initSource, before, after axes, except func(string) bool) error {
	has := map[string]weights.Info{}
	for _, i := range s.Tensors {
		has[i.Name] = i
	}
	maps := map[string]tensorMap{}
	moved := map[string]bool{} // tables with rows of other slots
	for _, t := range r.tensors() {
		was := nameBefore(t.name, before, after)
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
		m, ok := matchTensor(before.labels(was), after.labels(t.name), shape, t.shape)
		if m.was = was; !ok || was == t.name && !m.moves() {
			continue // Fit reports another shape
		}
		if t.elsewhere {
			return fmt.Errorf("table %s: its rows are on servers, which take them as they are, and here they belong to other columns: keep the columns' order, or train without servers; %v leaves the table at first values", t.name, setting.Path("training.init-except"))
		}
		maps[t.name] = m
	}
	s.replace(maps, moved, r.tensors())
	return nil
}

// nameBefore returns a tensor's name in the checkpoint; "" if there is none. Tables of single slots
// are identified by their slots.
func nameBefore(name string, before, after axes) string {
	slots, ok := after.slots[name]
	if !ok {
		return name
	}
	for other, of := range before.slots {
		if slices.Equal(of, slots) {
			return other
		}
	}
	return ""
}

// replace makes s read tensors by maps, and removes tables of moved that no map names.
func (s *initSource) replace(maps map[string]tensorMap, moved map[string]bool, here []tensor) {
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
			i := slices.IndexFunc(s.Tensors, func(i weights.Info) bool { return i.Name == m.was })
			info := s.Tensors[i]
			info.Name, info.Shape = t.name, m.shape
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
		old, err := read(m.was)
		if err != nil {
			return nil, err
		}
		out := slices.Clone(own[name])
		m.apply(out, old)
		return out, nil
	}
}

// tensor is a parameter, table or running statistic of a replica.
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
