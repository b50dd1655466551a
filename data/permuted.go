package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// input is a column of a table or a slot of clicks as stored in samples: values lo to hi, or an id,
// or a slot.
type input struct {
	name     string
	lo, hi   int
	id, slot int // -1: none
}

// inputs returns the columns of a table or the numbers and slots of clicks. It is nil for other
// sets, and for clicks in a file, because reading rows in random order would be slow.
func (s *Dataset) inputs() (out []input) {
	value, id := 0, 0
	add := func(name string, values int) {
		out = append(out, input{name, value, value + values, -1, -1})
		value += values
	}
	addID := func(name string) {
		out = append(out, input{name, 0, 0, id, -1})
		id++
	}
	if s.Encoder != nil {
		for _, c := range s.Encoder.Columns {
			switch c.Kind {
			case table.Number:
				add(c.Name, 1)
			case table.Date:
				add(c.Name, len(c.Parts))
			case table.Category:
				addID(c.Name)
			}
		}
		return out
	}
	shape := s.Eval.Shape()
	if _, reread := s.Eval.(*clickFileSource); reread || s.Name != "criteo" && s.Name != "clicks" {
		return nil
	}
	for i := range shape.Size() {
		add(fmt.Sprintf("number %d", i+1), 1)
	}
	for i := range shape.IDs {
		addID(fmt.Sprintf("C%d", i+1))
	}
	for i, slot := range shape.Slots {
		out = append(out, input{slot.Name, 0, 0, -1, i})
	}
	return out
}

// permuted is a source in which the values of an input come from other samples.
type permuted struct {
	Source
	input
	from []int32 // for each sample, the sample that its input comes from
}

// Permuted returns the name of input number column (a column of a table, or a number or slot of
// clicks), and the evaluation samples with this input's values exchanged among them, at random by
// seed. The name is "" after the last input, for sets without named inputs, and for rows that are
// read from a file.
func (s *Dataset) Permuted(column int, seed uint64) (name string, eval Source) {
	all := s.inputs()
	if column >= len(all) {
		return "", nil
	}
	p := permuted{s.Eval, all[column], make([]int32, s.Eval.Len())}
	const purpose = 0x7b1d35c09e4a6f27
	r := prng.New(purpose, seed, uint64(column))
	for i := range p.from { // Fisher and Yates, from the inside out
		k := r.Below(i + 1)
		p.from[i], p.from[k] = p.from[k], int32(i)
	}
	return p.name, p
}

// Fill implements Source.
func (p permuted) Fill(b *Batch, idx []int32, d Draw) error {
	others := make([]int32, len(idx))
	for i, n := range idx {
		others[i] = p.from[n]
	}
	if err := p.Source.Fill(b, idx, d); err != nil {
		return err
	}
	var o Batch
	if err := p.Source.Fill(&o, others, d); err != nil {
		return err
	}
	s := p.Shape()
	for i := range idx {
		to, from := b.At(s, i), o.At(s, i)
		copy(to.Values[p.lo:p.hi], from.Values[p.lo:p.hi])
		if p.id >= 0 {
			to.IDs[p.id] = from.IDs[p.id]
		}
		if p.slot >= 0 && s.Keys > 0 {
			to.Keys[p.slot] = from.Keys[p.slot]
		}
	}
	if p.slot >= 0 {
		b.Bags.replace(&o.Bags, p.slot, len(s.Slots), len(idx))
	}
	return nil
}

// replace sets a slot's bags to those of another batch of n samples.
func (b *Bags) replace(o *Bags, slot, slots, n int) {
	var out Bags
	out.begin(slots, n)
	for i := range slots * n {
		from := b
		if i/n == slot {
			from = o
		}
		out.Keys = append(out.Keys, from.Keys[from.Offsets[i]:from.Offsets[i+1]]...)
		out.Offsets[i+1] = int32(len(out.Keys))
	}
	*b = out
}
