package table

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Limits of guesses.
const (
	// fewClasses is the largest number of different integers that are classes.
	fewClasses = 20
	// guessedCategories is the largest number of different words of a category.
	guessedCategories = 1 << 16
)

// count counts training rows and all rows.
type count struct {
	Train int64 `json:"train"`
	All   int64 `json:"all"`
}

func (c count) plus(d count) count { return count{c.Train + d.Train, c.All + d.All} }

// found is the result of one pass over one column. Processes with separate tables exchange it.
type found struct {
	Name   string `json:"name"`
	Kind   Kind   `json:"kind"`   // kind of the schema
	Format string `json:"format"` // format of the schema, or of a settled date
	Goal   bool   `json:"goal"`   // column of the goal
	// Guessed reports that the schema does not name the kind.
	Guessed bool `json:"guessed"`
	// Settled reports that an earlier pass has chosen the kind. Wordy reports that the classes are
	// words, so that NA and None are classes and not missing values.
	Settled bool `json:"settled"`
	Wordy   bool `json:"words_are_classes"`
	// Rows and Missing count training rows.
	Rows    int64   `json:"rows"`
	Missing int64   `json:"missing"`
	moments         // of the training numbers
	Least   extreme `json:"min"` // extremes of the training numbers
	Most    extreme `json:"max"`
	Bins    bins    `json:"bins,omitzero"` // of the training numbers
	// Dates are the column's dates by format, and First is the position of the first value.
	Dates map[string]*tally `json:"dates,omitempty"`
	First *Fault            `json:"first,omitempty"`
	// Integers reports whether all numbers are whole, and Counts whether each number is the
	// previous one plus one.
	Integers bool    `json:"integers"`
	Counts   bool    `json:"counts"`
	Ascends  bool    `json:"ascends"` // each value is a whole number above the previous one
	Last     float64 `json:"last"`
	// Few lists the first different numbers, at most fewClasses+1.
	Few []float64 `json:"first_numbers"`
	// Words counts the rows of each different value. It is nil if there are too many values
	// (Overflow). Skipped reports that some numbers are not in Words.
	Words    map[string]count `json:"words"`
	Overflow bool             `json:"overflow"`
	Skipped  bool             `json:"skipped"`
	// Lost counts the rows of each word for a missing value.
	Lost map[string]count `json:"missing_words"`
	// Finite, Fractions, Texts, NumberLike and Units count values: numbers; numbers that are not
	// whole; words; words like numbers but for a comma, separator or symbol; numbers with units.
	Finite     int64 `json:"finite"`
	Fractions  int64 `json:"fractions"`
	Texts      int64 `json:"texts"`
	NumberLike int64 `json:"number_like"`
	Units      int64 `json:"units"`
	// Notations lists the formats that read all of NumberLike and Units as numbers.
	Notations []string `json:"notations,omitempty"`
	// Odd lists the first different words, at most fewWords+1.
	Odd []string `json:"first_words"`
	// Fraction, FirstText, Similar, Named and Broken are the positions of the first value of a
	// kind: a fraction; one of Texts; one of NumberLike and Units; the column's name, in a file
	// with a header; a word that is not UTF-8.
	Fraction  *Fault `json:"fraction"`
	FirstText *Fault `json:"first_text"`
	Similar   *Fault `json:"similar"`
	Named     *Fault `json:"named"`
	Broken    *Fault `json:"broken"`
}

// extreme is a number and its place.
type extreme struct {
	Value float64 `json:"value"`
	At    *Fault  `json:"at"`
}

// survey collects the values of one column in a pass over a table.
type survey struct {
	found
	limit int // limit of Words
}

func newSurvey(name string, kind Kind, goal bool) *survey {
	kind, format := kind.split()
	s := &survey{found: found{Name: name, Kind: kind, Format: format, Goal: goal, Guessed: kind == guess, Words: map[string]count{}, Lost: map[string]count{}, Integers: true, Counts: true, Ascends: true}, limit: guessedCategories}
	switch {
	case goal:
		s.limit = MaxClasses
	case kind == Category:
		s.limit = maxCategories
	}
	return s
}

// newSurveys returns a survey of each column that is not ignored, in file order.
func newSurveys(r Reader, goal string, schema Schema) (all []*survey, err error) {
	names := r.Columns()
	for _, name := range slices.Sorted(maps.Keys(schema)) {
		if !slices.Contains(names, name) {
			return nil, &Fault{File: r.Name(), Column: name, Problem: "no such column: the table has " + some(names, 12)}
		}
	}
	for _, name := range names {
		if kind := schema[name]; kind != Ignore {
			all = append(all, newSurvey(name, kind, name == goal))
		}
	}
	return all, nil
}

// take fills surveys in one pass. heldOut reports by a row's number whether the row is excluded
// from training: such rows count for classes, but not for means or categories. bad is as in
// Reader.Scan; a row is bad with a word in a number column of the schema, or without the label or
// target of the schema.
func take(r Reader, all []*survey, heldOut func(row int64) bool, bad func(error) error) error {
	names, want := r.Columns(), []int(nil)
	for _, s := range all {
		want = append(want, slices.Index(names, s.Name))
	}
	var mask []bool
	return r.Scan(want, bad, func(c *Chunk) (err error) {
		if mask, err = usable(r, c, all, mask, bad); err != nil {
			return err
		}
		for i, s := range all {
			s.chunk(r, c, &c.Columns[i], mask, heldOut)
		}
		return nil
	})
}

// some joins the first names of a list.
func some(names []string, most int) string {
	shown := make([]string, min(len(names), most))
	for i := range shown {
		if shown[i] = names[i]; strings.TrimSpace(shown[i]) != shown[i] || shown[i] == "" {
			shown[i] = strconv.Quote(shown[i])
		}
	}
	if len(names) <= most {
		return strings.Join(shown, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(shown, ", "), len(names)-most)
}

// usable returns a mask of the chunk's rows that fit the schema, and calls bad for each other row.
func usable(r Reader, c *Chunk, all []*survey, mask []bool, bad func(error) error) ([]bool, error) {
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

// refuses returns the problem of row i in a column of a chosen kind; "" for a good row.
func (s *survey) refuses(v *Vector, i int) string {
	if s.Kind == Label && s.Settled && !s.Wordy && v.missing(i) {
		return noLabel(v, i)
	}
	return refuses(s.Kind, s.Format, v, i)
}

func refuses(kind Kind, format string, v *Vector, i int) string {
	switch kind {
	case Number, Target:
		if _, missing, ok := v.number(i, format); !ok {
			if format != "" {
				return fmt.Sprintf("%.40q is no finite number of the format %s", v.word(i), format)
			}
			return fmt.Sprintf("%.40q is no finite number", v.word(i))
		} else if missing && kind == Target {
			return "no number to find" + v.lost(i)
		}
	case Date:
		if _, _, ok := v.time(i, format); !ok && format != "" {
			return fmt.Sprintf("%.40q is no date %s", v.plain(i), format)
		}
	case Label:
		if v.Numbers != nil && v.missing(i) || v.Numbers == nil && v.Words[i] == "" {
			return noLabel(v, i)
		}
	}
	return ""
}

func noLabel(v *Vector, i int) string { return "no label" + v.lost(i) }

// lost returns the word by which row i's value is missing, for an error.
func (v *Vector) lost(i int) string {
	if v.Words == nil || v.Words[i] == "" {
		return ""
	}
	return fmt.Sprintf(": %q is a missing value among numbers", v.Words[i])
}

// missing reports whether row i has no value.
func (v *Vector) missing(i int) bool {
	if v.Numbers != nil {
		return v.Numbers[i] != v.Numbers[i]
	}
	return isMissing(v.Words[i])
}

// number returns row i's number in a format; ok is false for a value that is not a finite number.
func (v *Vector) number(i int, format string) (x float64, missing, ok bool) {
	if v.Numbers != nil {
		x = v.Numbers[i]
		return x, x != x, !math.IsInf(x, 0)
	}
	w := v.Words[i]
	if isMissing(w) {
		return math.NaN(), true, true
	}
	x, ok = parseNumber(w, format)
	return x, false, ok
}

// word returns row i's value as a word.
func (v *Vector) word(i int) string {
	if v.Numbers != nil {
		return strconv.FormatFloat(v.Numbers[i], 'g', -1, 64)
	}
	return v.Words[i]
}

// plain returns row i's value as a word without an exponent.
func (v *Vector) plain(i int) string {
	if v.Numbers != nil {
		return strconv.FormatFloat(v.Numbers[i], 'f', -1, 64)
	}
	return v.Words[i]
}

// chunk adds the rows of a chunk.
func (s *survey) chunk(r Reader, c *Chunk, v *Vector, mask []bool, heldOut func(int64) bool) {
	for i, ok := range mask {
		if !ok {
			continue
		}
		one := count{1, 1}
		if heldOut(c.First + int64(i)) {
			one.Train = 0
		}
		s.Rows += one.Train
		if v.missing(i) {
			word := ""
			if v.Words != nil {
				word = v.Words[i]
			}
			s.Missing += one.Train
			s.Lost[strings.Clone(word)] = s.Lost[word].plus(one)
			continue
		}
		at := func(problem string, args ...any) *Fault {
			return c.place(r.Name(), i, s.Name, fmt.Sprintf(problem, args...))
		}
		if !s.Goal && (s.Kind == guess || s.Kind == Date) {
			s.date(v, i, one, at)
		}
		if x, _, isNumber := v.number(i, s.Format); isNumber && (s.Kind != Date || v.Seconds > 0) {
			s.number(x, one, at)
		} else {
			s.text(v.word(i), c.lines != nil, at)
		}
		if s.Kind != Date {
			s.learn(v.word(i), one, at)
		}
	}
}

// number adds a number.
func (s *survey) number(x float64, one count, at func(string, ...any) *Fault) {
	s.Finite++
	if whole := x == math.Trunc(x) && math.Abs(x) < 1<<53; !whole {
		s.Integers = false
		if s.Fractions++; s.Fraction == nil {
			s.Fraction = at("%s is no whole number", quantity.Exact(x))
		}
	}
	if len(s.Few) <= fewClasses && !slices.Contains(s.Few, x) {
		s.Few = append(s.Few, x)
	}
	s.Ascends = s.Ascends && s.Integers && (s.Finite == 1 || x > s.Last)
	s.Counts = s.Counts && (s.Finite == 1 || x == s.Last+1)
	s.Last = x
	if one.Train == 0 {
		return
	}
	s.moments.add(x)
	s.Bins.add(x)
	if s.Least.At == nil || x < s.Least.Value {
		s.Least = extreme{x, at("")}
	}
	if s.Most.At == nil || x > s.Most.Value {
		s.Most = extreme{x, at("")}
	}
}

// text adds a word that is not a finite number.
func (s *survey) text(w string, lines bool, at func(string, ...any) *Fault) {
	s.Integers, s.Counts, s.Ascends = false, false, false
	if s.Texts++; s.FirstText == nil {
		s.FirstText = at("%.40q is no finite number", w)
	}
	if lines && w == s.Name && s.Named == nil {
		s.Named = at("the name of the column is a value of it, too: is the header repeated here, or has the file no header? Correct it")
	}
	if len(s.Odd) <= fewWords && !slices.Contains(s.Odd, w) {
		s.Odd = append(s.Odd, strings.Clone(w))
	}
	problem, unit := similar(w)
	switch {
	case problem == "":
		return
	case unit:
		s.Units++
	default:
		s.NumberLike++
	}
	if s.Similar == nil {
		s.Similar = at("%.40q %s", w, problem)
		s.Notations = notations(w)
	}
	s.Notations = slices.DeleteFunc(s.Notations, func(f string) bool {
		_, ok := parseNumber(w, f)
		return !ok
	})
}

// learn adds a value to Words.
func (s *survey) learn(w string, one count, at func(string, ...any) *Fault) {
	if s.Overflow {
		return
	}
	n, ok := s.Words[w]
	if !ok {
		if s.Kind != Category && !s.Goal && s.FirstText == nil && len(s.Words) > fewClasses { // only numbers until now
			s.Skipped = true
			return
		}
		if len(s.Words) == s.limit {
			s.Overflow, s.Words = true, nil
			return
		}
		if s.Broken == nil && !utf8.ValidString(w) {
			s.Broken = at("%.40q is not UTF-8, and a checkpoint could not hold it: convert the file, or leave the column out with data.schema, such as %s=ignore", w, s.Name)
		}
		w = strings.Clone(w)
	}
	s.Words[w] = n.plus(one)
}

// words returns the different values that occur in at least minCount training rows, or with held in
// any row: numbers in ascending order, then words in alphabetic order.
func (s *survey) words(held bool, minCount int64) []string {
	var out []string
	for w, n := range s.Words {
		if held || n.Train >= max(1, minCount) {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, compareWords)
	return out
}

// compareWords orders numbers by value, and numbers before words.
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
