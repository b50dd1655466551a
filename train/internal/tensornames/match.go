package tensornames

import (
	"slices"
	"strings"
)

// Map maps places of a tensor to places of a tensor of another shape.
type Map struct {
	Was   string // name of the old tensor
	Shape []int
	old   []int
	from  [][]int  // along each axis: the old place of each place, or -1
	input [][]bool // along each axis: places of inputs of the model, such as columns
}

// matchPlaces returns, for each label of now, the place in was with the same label, or -1. Axes
// without labels must have equal sizes. ok is false if they have not, or if two places of was have
// one label.
func matchPlaces(was, now []Label, old, size int) (from []int, ok bool) {
	if len(was) != old || len(now) != size {
		for i := range size {
			from = append(from, i)
		}
		return from, old == size
	}
	at := map[Label]int{}
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

// Match maps a tensor by the labels along its axes. ok is false if an axis without labels has
// another size.
func Match(was, now [][]Label, old, shape []int) (m Map, ok bool) {
	if len(old) != len(shape) {
		return m, false
	}
	m.Shape, m.old = shape, old
	along := func(of [][]Label, k int) []Label {
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
		input := make([]bool, shape[k])
		for i, l := range along(now, k) {
			input[i] = len(input) == len(now[k]) && (l.Kind == ofColumn || l.Kind == ofSlot)
		}
		m.input = append(m.input, input)
	}
	return m, true
}

// Moves reports whether the map changes any place.
func (m Map) Moves() bool {
	if !slices.Equal(m.Shape, m.old) {
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

// Apply copies old values to their new places in out. Weights that connect a new input to an old
// place become 0, so that the old outputs do not change at first; training changes them.
func (m Map) Apply(out, old []float32) {
	at := make([]int, len(m.Shape))
	for i := range out {
		from, rest := 0, i
		for k := len(at) - 1; k >= 0; k-- {
			at[k] = rest % m.Shape[k]
			rest /= m.Shape[k]
		}
		mapped, fresh, input := 0, 0, false
		for k, place := range at {
			if m.from[k][place] < 0 {
				fresh, input = fresh+1, input || m.input[k][place]
				continue
			}
			mapped++
			from = from*m.old[k] + m.from[k][place]
		}
		if fresh == 0 {
			out[i] = old[from]
		} else if input && mapped > 0 {
			out[i] = 0
		}
	}
}

// Mapped returns the kinds of names that were matched.
func Mapped(old, now Names, head bool) string {
	var kinds []string
	add := func(is bool, kind string) {
		if is {
			kinds = append(kinds, kind)
		}
	}
	add(len(old.Values)+len(old.IDs) > 0 && len(now.Values)+len(now.IDs) > 0, "columns")
	add(len(old.Rows()) > 0 && len(now.Rows()) > 0, "categories")
	add(len(old.Slots) > 0 && len(now.Slots) > 0, "slots")
	add(len(old.Words) > 0 && len(now.Words) > 0, "words")
	add(head && len(now.Words) == 0 && len(now.Outputs) > 1, "classes")
	return strings.Join(kinds, ", ")
}

// NameBefore returns a tensor's name in the checkpoint; "" if there is none. Tables of single slots
// are identified by their slots.
func NameBefore(name string, before, after Axes) string {
	slots, ok := after.Slots[name]
	if !ok {
		return name
	}
	for other, of := range before.Slots {
		if slices.Equal(of, slots) {
			return other
		}
	}
	return ""
}
