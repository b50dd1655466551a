package table

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits of what is guessed.
const (
	// fewClasses is how many different integers a target may have to be taken for classes.
	fewClasses = 20
	// guessedCategories is how many different words a column may have to be taken for a category.
	guessedCategories = 1 << 16
)

// Survey is what one pass over a table has found out about one column.
type Survey struct {
	Name string
	Kind Kind // as the user has said
	// Rows and Missing are how many there are, of those to train on.
	Rows, Missing int64
	// Mean is that of the numbers, and Squares the sum of their squared distances from it.
	Mean, Squares float64
	numbers       int64
	integers      bool // all are
	goal          bool // it is to be found
	// words are the different values, true for those of rows held out alone; nil once there are too many.
	words    map[string]bool
	most     int
	overflow bool
	// other is the first word that is no number.
	other *Fault
}

func newSurvey(name string, kind Kind, goal bool) *Survey {
	s := &Survey{Name: name, Kind: kind, goal: goal, words: map[string]bool{}, integers: true, most: guessedCategories}
	switch {
	case goal:
		s.most = MaxClasses
	case kind == Category:
		s.most = MaxCategories
	}
	return s
}

// Take makes the surveys of all columns that are not to be ignored, in the file's order, in one pass. goal is the column to
// find. heldOut says by a
// row's number which rows are not to train on: no mean or category comes from them, but classes do. bad is as in
// Reader.Scan; a row with a word where the schema says number, or without a label or target that the schema names, is bad.
func Take(r Reader, goal string, schema Schema, heldOut func(row int64) bool, bad func(error) error) ([]*Survey, error) {
	names := r.Columns()
	if err := known(r, schema, names); err != nil {
		return nil, err
	}
	var all []*Survey
	var want []int
	for i, name := range names {
		if kind := schema[name]; kind != Ignore {
			all, want = append(all, newSurvey(name, kind, name == goal)), append(want, i)
		}
	}
	var mask []bool
	err := r.Scan(want, bad, func(c *Chunk) (err error) {
		if mask, err = usable(r, c, all, mask, bad); err != nil {
			return err
		}
		for i, s := range all {
			s.chunk(r, c, &c.Columns[i], mask, heldOut)
		}
		return nil
	})
	return all, err
}

// known reports columns of a schema that a table does not have.
func known(r Reader, schema Schema, names []string) error {
	for _, name := range slices.Sorted(maps(schema)) {
		if !slices.Contains(names, name) {
			return &Fault{File: r.Name(), Column: name, Problem: "there is no such column: there are " + some(names, 12)}
		}
	}
	return nil
}

// some are the first of many names.
func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func maps(s Schema) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range s {
			if !yield(name) {
				return
			}
		}
	}
}

// usable says which rows of a chunk the schema can take.
func usable(r Reader, c *Chunk, all []*Survey, mask []bool, bad func(error) error) ([]bool, error) {
	mask = append(mask[:0], make([]bool, c.N)...)
	for i := range mask {
		mask[i] = true
	}
	for k, s := range all {
		for i := range mask {
			problem := s.refuses(&c.Columns[k], i)
			if problem == "" || !mask[i] {
				continue
			}
			mask[i] = false
			if err := bad(c.place(r.Name(), i, s.Name, problem)); err != nil {
				return nil, err
			}
		}
	}
	return mask, nil
}

// refuses says what is wrong with row i of a column, as far as its kind was told; "": nothing.
func (s *Survey) refuses(v *Vector, i int) string { return refuses(s.Kind, v, i) }

func refuses(kind Kind, v *Vector, i int) string {
	switch kind {
	case Number, Target:
		if _, missing, ok := v.number(i); !ok {
			return fmt.Sprintf("%.40q is no finite number", v.word(i))
		} else if missing && kind == Target {
			return "no number to find"
		}
	case Label:
		if v.missing(i) {
			return "no label"
		}
	}
	return ""
}

// missing says that row i has no value.
func (v *Vector) missing(i int) bool {
	if v.Numbers != nil {
		return v.Numbers[i] != v.Numbers[i]
	}
	return Missing(v.Words[i])
}

// number is row i's; not ok: it is no finite number.
func (v *Vector) number(i int) (x float64, missing, ok bool) {
	if v.Numbers != nil {
		x = v.Numbers[i]
		return x, x != x, !math.IsInf(x, 0)
	}
	w := v.Words[i]
	if Missing(w) {
		return math.NaN(), true, true
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(w), 64)
	return x, false, err == nil && x-x == 0
}

// word is row i's value as a word.
func (v *Vector) word(i int) string {
	if v.Numbers != nil {
		return strconv.FormatFloat(v.Numbers[i], 'g', -1, 64)
	}
	return v.Words[i]
}

// chunk adds the rows of a chunk.
func (s *Survey) chunk(r Reader, c *Chunk, v *Vector, mask []bool, heldOut func(int64) bool) {
	for i, ok := range mask {
		if !ok {
			continue
		}
		held := heldOut(c.First + int64(i))
		if !held {
			s.Rows++
		}
		if v.missing(i) {
			if !held {
				s.Missing++
			}
			continue
		}
		x, _, isNumber := v.number(i)
		if !isNumber && s.other == nil {
			s.other = c.place(r.Name(), i, s.Name, fmt.Sprintf("%.40q is no finite number", v.word(i)))
		}
		if isNumber && !held {
			s.numbers++
			d := x - s.Mean
			s.Mean += d / float64(s.numbers)
			s.Squares += d * (x - s.Mean)
		}
		s.integers = s.integers && isNumber && x == math.Trunc(x) && math.Abs(x) < 1<<53
		s.learn(v, i, held)
	}
}

// learn adds a word.
func (s *Survey) learn(v *Vector, i int, held bool) {
	if s.overflow {
		return
	}
	if s.Kind != Category && !s.goal && s.other == nil && len(s.words) > fewClasses { // numbers, as it seems
		return
	}
	w := v.word(i)
	if known, ok := s.words[w]; ok {
		if known && !held {
			s.words[w] = false
		}
		return
	}
	if len(s.words) == s.most {
		s.overflow, s.words = true, nil
		return
	}
	s.words[strings.Clone(w)] = held
}

// Deviation is that of the numbers; 1 where they do not differ.
func (s *Survey) Deviation() float64 {
	if d := math.Sqrt(s.Squares / float64(max(1, s.numbers))); d > 0 && d-d == 0 {
		return d
	}
	return 1
}

// allWords are the different values, of rows to train on alone or of all, in order: of numbers, or of letters.
func (s *Survey) allWords(held bool) []string {
	var out []string
	for w, only := range s.words {
		if held || !only {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, compareWords)
	return out
}

// compareWords orders numbers by value and before words.
func compareWords(a, b string) int {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	switch {
	case errX == nil && errY == nil:
		return cmp.Or(cmp.Compare(x, y), strings.Compare(a, b))
	case errX == nil:
		return -1
	case errY == nil:
		return 1
	}
	return strings.Compare(a, b)
}

// guess is what the column is for, if it is not what a model is to find, and why where that is not plain.
func (s *Survey) guess() (Kind, string) {
	different := len(s.words)
	switch {
	case s.Rows == s.Missing:
		return Ignore, "it has no values"
	case s.other == nil:
		return Number, ""
	case s.numbers > fewClasses && 2*s.numbers > s.Rows-s.Missing:
		return Ignore, "it has numbers and words (" + s.other.Problem + "): say which it is"
	case s.overflow:
		return Ignore, fmt.Sprintf("it has more than %d different words", guessedCategories)
	case different > 50 && int64(2*different) > s.Rows:
		return Ignore, fmt.Sprintf("it has %d different words in %d rows", different, s.Rows)
	}
	return Category, ""
}

// guessGoal is whether the column that a model is to find has labels or numbers.
func (s *Survey) guessGoal() Kind {
	if s.other != nil || s.integers && len(s.words) <= fewClasses {
		return Label
	}
	return Target
}
