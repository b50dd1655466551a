package data

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/npy"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// valueNames and goalNames are the names by which an array is recognised as samples, or as labels
// or targets.
var (
	valueNames = []string{"x", "images", "image", "features", "data", "inputs", "arr_0"} // constant
	goalNames  = []string{"y", "labels", "label", "targets", "target", "classes", "arr_1"}
)

// partOf splits a name into the part of the set, train or an evaluation part, and the rest: x_train
// is x of train.
func partOf(name string) (part, base string) {
	var rest []string
	for _, word := range strings.Split(strings.ToLower(name), "_") {
		switch {
		case part == "" && (word == "train" || word == "training"):
			part = "train"
		case part == "" && (slices.Contains(datafile.EvalParts(), word) || slices.Contains(datafile.EvalWords(), word)):
			part = word
		default:
			rest = append(rest, word)
		}
	}
	return cmp.Or(part, "train"), strings.Join(rest, "_")
}

// roles selects the arrays of a set.
type roles struct {
	schema table.Schema
	target string
}

// kind returns how an array with this name is used; "" for an unknown name.
func (r roles) kind(name string) table.Kind {
	_, base := partOf(name)
	for _, n := range []string{name, base} {
		if k, ok := r.schema[n]; ok {
			return k
		}
		if r.target == n {
			return table.Label
		}
	}
	told := r.target != ""
	values := false
	for _, k := range r.schema {
		told, values = told || k == table.Label || k == table.Target, values || k == table.Number
	}
	switch {
	case !values && slices.Contains(valueNames, base):
		return table.Number
	case !told && slices.Contains(goalNames, base):
		return table.Label
	}
	return "" // unknown
}

// known returns an error for configured names without an array.
func (r roles) known(path string, names []string) error {
	has := func(name string) bool {
		return slices.ContainsFunc(names, func(n string) bool { _, base := partOf(n); return name == n || name == base })
	}
	for _, name := range slices.Sorted(maps.Keys(r.schema)) {
		if !has(name) {
			return setting.Errorf(datafile.SchemaPath, "%s: %s has no such array; there are %s", name, path, strings.Join(names, ", "))
		}
	}
	if r.target != "" && !has(r.target) {
		return setting.Errorf(datafile.TargetPath, "%s: %s has no such array; there are %s", r.target, path, strings.Join(names, ", "))
	}
	return nil
}

func findArrays(c Config) error {
	_, _, err := oneFile("arrays", c)
	return err
}

// openArrays opens the arrays of a .npz, or of the .npy files of a folder.
func openArrays(c Config, _ *datafile.Skips) (*Dataset, error) {
	path, evalPath, err := oneFile("arrays", c)
	if err != nil {
		return nil, err
	}
	in := arrayFiles{roles: roles{c.Schema, c.Target}, parts: map[string][]*npy.Array{}, set: new(Dataset)}
	if err = in.read(path, ""); err == nil && evalPath != "" {
		err = in.read(evalPath, "test")
	}
	if err == nil {
		err = in.make(path, cmp.Or(evalPath, path), c)
	}
	if err != nil {
		return nil, errors.Join(err, in.set.Close())
	}
	return in.set, nil
}

// arrayFiles collects the arrays of files by part.
type arrayFiles struct {
	roles
	parts map[string][]*npy.Array
	set   *Dataset
}

// read opens a file's arrays. part, if not "", replaces the part in the arrays' names.
func (in *arrayFiles) read(path, part string) error {
	seen := []string{strings.TrimSuffix(filepath.Base(path), ".npy")}
	f, err := npy.Open(path, func(name string) bool {
		seen = append(seen, name)
		return in.kind(name) != "" && in.kind(name) != table.Ignore
	})
	if err != nil {
		return fmt.Errorf("arrays: %w", err)
	}
	in.set.open = append(in.set.open, f)
	for _, a := range f.Arrays {
		own, _ := partOf(a.Name)
		own = cmp.Or(part, own)
		in.parts[own] = append(in.parts[own], a)
	}
	return in.known(path, seen)
}

// make builds the set from the parts.
func (in *arrayFiles) make(path, evalPath string, c Config) error {
	train, err := in.source(path, in.parts["train"])
	if err != nil {
		return err
	}
	s := in.set
	s.Train, s.Notes, s.Classes = train, []string{train.String()}, train.classes
	if train.classes > 0 {
		s.Notes = append(s.Notes, balance(train.labels, train.classes, nil)...)
	}
	parts := append(datafile.EvalParts(), datafile.EvalWords()...)
	used := slices.IndexFunc(parts, func(part string) bool { return len(in.parts[part]) > 0 })
	if used < 0 {
		s.Notes = append(s.Notes, c.holdout().note())
		s.Train, s.Eval, err = c.holdout().split(train)
		return err
	}
	if err = c.checkHoldout("%s has arrays to evaluate on", evalPath); err != nil {
		return err
	}
	eval, err := in.source(evalPath, in.parts[parts[used]])
	if err != nil {
		return err
	}
	if a, b := train.shape, eval.shape; a.Size() != b.Size() || a.Labels != b.Labels || a.Targets != b.Targets {
		return fmt.Errorf("arrays: %s: samples to train on are %v, those to evaluate on %v: want the same shape", path, train, eval)
	}
	s.Eval, s.Classes, s.Notes = eval, max(train.classes, eval.classes), append(s.Notes, "evaluates on "+eval.String())
	return nil
}

// arrays is the source of an array's rows, read from the file on demand.
type arrays struct {
	path   string
	values *npy.Array
	goal   *npy.Array
	shape  Shape
	planes int // channels of a row [channel, height, width], converted to channels-last; 0: no conversion

	labels  []int32
	targets []float32
	classes int
	scratch sync.Pool // *row
}

// row is the scratch memory of a row.
type row struct {
	raw    []byte
	values []float32
}

// source returns the source of a part's arrays.
func (r roles) source(path string, part []*npy.Array) (*arrays, error) {
	s := &arrays{path: path}
	var names []string
	for _, a := range part {
		names = append(names, a.String())
		of := &s.goal
		if r.kind(a.Name) == table.Number {
			of = &s.values
		}
		if *of != nil {
			return nil, fmt.Errorf("arrays: %s: both %v and %v could be meant: %w", path, *of, a, setting.Errorf(datafile.SchemaPath, "says which: NAME=number for samples, NAME=label or NAME=target, NAME=ignore"))
		}
		*of = a
	}
	if s.values == nil || s.goal == nil {
		return nil, fmt.Errorf("arrays: %s: want an array of samples, named %s, and an array of labels or targets, named %s; the file has %s: %w", path, strings.Join(valueNames, ", "), strings.Join(goalNames, ", "),
			cmp.Or(strings.Join(names, ", "), "none of those"), setting.Errorf(datafile.SchemaPath, "gives others: NAME=number,NAME=label"))
	}
	if s.values.Len() != s.goal.Len() {
		return nil, fmt.Errorf("arrays: %s: %v and %v: want equal numbers of rows", path, s.values, s.goal)
	}
	if err := s.shaped(path); err != nil {
		return nil, err
	}
	if err := s.values.Hold(held); err != nil {
		return nil, fmt.Errorf("arrays: %w", err)
	}
	return s, s.goals(path, r.isTarget(s.goal))
}

// shaped derives the samples' shape from the array's shape.
func (s *arrays) shaped(path string) error {
	if n := s.values.Len(); n < 1 || n > datafile.MaxElements || s.values.RowSize() < 1 {
		return fmt.Errorf("arrays: %s: %v: want 1 to %d rows, which are not empty", path, s.values, datafile.MaxElements)
	}
	s.scratch.New = func() any { return new(row) }
	s.shape.Values = []int{1}
	if dims := s.values.Shape; len(dims) > 1 {
		s.shape.Values = slices.Clone(dims[1:])
	}
	if v := s.shape.Values; len(v) == 3 && (v[0] == 1 || v[0] == 3) && v[2] > 4 {
		s.planes, s.shape.Values = v[0], []int{v[1], v[2], v[0]}
	}
	if err := s.shape.validate(); err != nil {
		return fmt.Errorf("arrays: %s: %v: %w", path, s.values, err)
	}
	return nil
}

// isTarget reports whether the array of goals has numbers to predict, and not classes. The schema
// decides, or else the array's type: integers are classes.
func (r roles) isTarget(goal *npy.Array) bool {
	_, base := partOf(goal.Name)
	switch cmp.Or(r.schema[goal.Name], r.schema[base]) {
	case table.Target:
		return true
	case table.Label:
		return false
	}
	return !goal.Type.Integer()
}

// held is the largest number of bytes of samples that a rank loads into memory; it reads larger
// arrays on demand.
const held = 1 << 28

// goals reads all labels or targets.
func (s *arrays) goals(path string, target bool) error {
	a, each := s.goal, s.goal.RowSize()
	if each < 1 || !target && each != 1 || int64(a.Len())*int64(each) > datafile.MaxElements {
		return fmt.Errorf("arrays: %s: %v: want one label for each sample, or numbers", path, a)
	}
	if !target && !a.Type.Integer() {
		return fmt.Errorf("arrays: %s: %v: labels have to be integers: %w", path, a, setting.Errorf(datafile.SchemaPath, "%s=target would have numbers found", a.Name))
	}
	if target {
		s.shape.Targets, s.targets = each, make([]float32, 0, a.Len()*each)
	} else {
		s.shape.Labels, s.labels = 1, make([]int32, 0, a.Len())
	}
	const block = 1024 // rows per read
	var buf []byte
	var err error
	for at := 0; at < a.Len(); at += block {
		n := min(block, a.Len()-at)
		if buf, err = a.Bytes(buf, at, n); err != nil {
			return err
		}
		if target {
			have := len(s.targets)
			s.targets = s.targets[:have+n*each]
			a.Type.Float32(s.targets[have:], buf)
			if i := notFinite(s.targets[have:]); i >= 0 {
				return rowNotFinite(path, a, at+i/each, i%each, s.targets[have+i])
			}
			continue
		}
		for i := range n {
			label := a.Type.Int64(buf[i*a.Type.Size:])
			if label < 0 || label >= table.MaxClasses {
				return fmt.Errorf("arrays: %s: %v: row %d is %d: want labels from 0 to %d", path, a, at+i, label, table.MaxClasses-1)
			}
			s.labels, s.classes = append(s.labels, int32(label)), max(s.classes, int(label)+1)
		}
	}
	return nil
}

// String describes how the arrays are used.
func (s *arrays) String() string {
	how := ""
	if s.bytes() {
		how = " / 255"
	}
	if s.planes > 0 {
		how += ", taken as channel, height, width"
	}
	if s.labels != nil {
		return fmt.Sprintf("%v%s, to find %v, one of %d classes", s.values, how, s.goal, s.classes)
	}
	return fmt.Sprintf("%v%s, to find the numbers %v", s.values, how, s.goal)
}

// bytes reports whether the values are bytes, such as pixels, which are scaled to 0 to 1.
func (s *arrays) bytes() bool { return s.values.Type == npy.Type{Kind: 'u', Size: 1} }

func (s *arrays) Len() int     { return s.values.Len() }
func (s *arrays) Shape() Shape { return s.shape }

// Fill reads the rows idx.
func (s *arrays) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(s.shape, len(idx))
	r := s.scratch.Get().(*row)
	defer s.scratch.Put(r)
	if err := s.fillValues(b.Values, idx, r); err != nil {
		return err
	}
	if i := notFinite(b.Values); i >= 0 && s.values.Type.Kind == 'f' {
		return rowNotFinite(s.path, s.values, int(idx[i/s.shape.Size()]), i%s.shape.Size(), b.Values[i])
	}
	for i, n := range idx {
		to := b.At(s.shape, i)
		if s.goal == nil { // prediction: no labels
			clear(to.Labels)
			clear(to.Targets)
			continue
		}
		if s.labels != nil {
			to.Labels[0] = s.labels[n]
		}
		copy(to.Targets, s.targets[int(n)*s.shape.Targets:])
	}
	return nil
}

// notFinite returns the index of the first NaN or infinity, or -1.
func notFinite(x []float32) int { return slices.IndexFunc(x, func(v float32) bool { return v-v != 0 }) }

// rowNotFinite returns the error of a row with a value that is not finite.
func rowNotFinite(path string, a *npy.Array, row, at int, v float32) error {
	return fmt.Errorf("arrays: %s: %v: row %d: value %d is %s: want finite numbers: leave the row out or replace the value", path, a, row, at, quantity.Exact(v))
}

// fillValues reads samples into the values of a batch; one read fetches successive rows.
func (s *arrays) fillValues(dst []float32, idx []int32, r *row) error {
	size := s.shape.Size()
	const most = 1 << 18 // bytes of rows per conversion
	several := max(1, most/max(1, size*s.values.Type.Size))
	asIs := s.values.Type == npy.Type{Kind: 'f', Size: 4} && s.planes <= 1
	for at, n := 0, 0; at < len(idx); at += n {
		n = 1
		for at+n < len(idx) && idx[at+n] == idx[at]+int32(n) && (asIs || n < several) {
			n++
		}
		to := dst[at*size : (at+n)*size]
		if asIs {
			if err := s.values.Rows(to, int(idx[at])); err != nil {
				return err
			}
			continue
		}
		var err error
		if r.raw, err = s.values.Bytes(r.raw, int(idx[at]), n); err != nil {
			return err
		}
		each := len(r.raw) / n
		for i := range n {
			s.convert(to[i*size:(i+1)*size], r.raw[i*each:(i+1)*each], r)
		}
	}
	return nil
}

// unitOf maps a byte to the scale 0 to 1 without a division.
var unitOf = func() (out [256]float32) { // constant
	for v := range out {
		out[v] = float32(v) / 255
	}
	return out
}()

// convert converts a row's bytes to numbers.
func (s *arrays) convert(dst []float32, from []byte, r *row) {
	into := dst
	if s.planes > 1 {
		r.values = slices.Grow(r.values[:0], len(dst))[:len(dst)]
		into = r.values
	}
	if s.bytes() {
		for i, v := range from[:len(into)] {
			into[i] = unitOf[v]
		}
	} else {
		s.values.Type.Float32(into, from)
	}
	if s.planes > 1 {
		plane := len(dst) / s.planes
		for i, v := range into {
			dst[i%plane*s.planes+i/plane] = v
		}
	}
}

// evidence writes all labels or targets and some rows, for Fingerprint.
func (s *arrays) evidence(w io.Writer) {
	fmt.Fprintf(w, "%v %v\n", s.values, s.goal)
	(&memory{all: Batch{Labels: s.labels, Targets: s.targets}}).evidence(w)
	const most = 256
	for k := range min(most, s.Len()) {
		if b, err := s.values.Bytes(nil, k*s.Len()/most%s.Len(), 1); err == nil {
			w.Write(b) // hash.Write never fails
		}
	}
}
