package table

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// If a column of numbers has few different words, or few rows with words, its kind is ambiguous,
// which is an error.
const (
	fewWords  = 10 // different words
	rarely    = 20 // at most one value in 20
	manyWords = 50 // different words above which repetition is expected
)

// Words that are numbers in another notation. Constant.
var (
	commaNumber  = regexp.MustCompile(`^[-+]?[0-9]*,[0-9]+$`)
	partedNumber = regexp.MustCompile(`^[-+]?[0-9]{1,3}([.,' \x{a0}\x{202f}\x{2019}][0-9]{3})+([.,][0-9]+)?$`)
	symbolNumber = regexp.MustCompile(`^[-+]?[$€£¥] ?[-+]?[0-9][0-9.,']*$|^[-+]?[0-9][0-9.,' ]*[%€$£¥]$`)
	unitNumber   = regexp.MustCompile(`^[-+]?[0-9][0-9.,']* ?[\pL°²³/]{1,10}$`)
)

// similar explains why a word that looks like a number is not read as one; "" for other words. unit
// reports whether the reason is letters after a number.
func similar(w string) (problem string, unit bool) {
	if w == "" || !strings.ContainsAny(w[:1], "0123456789+-,$€£¥") {
		return "", false
	}
	switch {
	case commaNumber.MatchString(w):
		return "has a comma, and numbers are read with a decimal point: replace it in the file", false
	case partedNumber.MatchString(w):
		return "has separators of thousands, or a decimal comma, and numbers are read without the former and with a decimal point: rewrite the column", false
	case symbolNumber.MatchString(w):
		return "is a number with a symbol: remove it in the file", false
	case unitNumber.MatchString(w):
		return "is a number with a unit: remove it in the file", true
	}
	return "", false
}

// doubt returns the error of a column in which numbers and words contradict each other, or nil.
func (s *survey) doubt() *Fault {
	alike, all := s.NumberLike, s.Finite+s.Texts
	if s.Overflow || len(s.Words) > fewClasses {
		alike += s.Units
	}
	switch {
	case alike > 0 && 2*(s.Finite+alike) > all:
		return s.unclear(s.Similar)
	case s.Texts > 0 && (s.Finite > s.Texts || len(s.Few) > fewClasses) && (len(s.Odd) <= fewWords || rarely*s.Texts <= all):
		f := *s.FirstText
		f.Problem += fmt.Sprintf(", and %d of %d values are: correct it", s.Finite, all)
		return s.unclear(&f)
	}
	return nil
}

// unclear adds to f the kinds that a schema can select for the column.
func (s *survey) unclear(f *Fault) *Fault {
	kinds := []Kind{Number, Category, Ignore}
	if s.Goal {
		kinds = []Kind{Target, Label}
	}
	if f == s.Similar && len(s.Notations) > 0 {
		number := kinds[0]
		kinds = slices.Delete(kinds, 0, 1)
		for _, f := range slices.Backward(s.Notations) {
			kinds = slices.Insert(kinds, 0, number.with(f))
		}
	}
	var named []string
	for _, k := range kinds {
		named = append(named, fmt.Sprintf("%s=%s", s.Name, k))
	}
	out := *f
	out.Problem += ", or name the column's kind with data.schema: " + strings.Join(named, " or ")
	return &out
}

// anIdentifier is the reason to ignore a column that identifies rows.
const anIdentifier = "it numbers the rows"

// identifies reports a column of ascending integers, different in each of many rows.
func (s *survey) identifies() bool {
	return s.Ascends && s.Finite > fewClasses && len(s.Lost) == 0
}

// guess returns the kind of an input column, and the reason to ignore the column.
func (s *survey) guess() (Kind, string, error) {
	different := len(s.Words)
	if s.Rows == s.Missing {
		return Ignore, "it has no values", nil
	}
	if ok, err := s.settleDate(); ok || err != nil {
		return Date, "", err
	}
	if f := s.doubt(); f != nil {
		return Ignore, "", f
	}
	switch {
	case s.identifies():
		return Ignore, anIdentifier, nil
	case s.Texts == 0:
		return Number, "", nil
	case s.Named != nil:
		return Ignore, "", s.unclear(s.Named)
	case s.Finite > s.Texts:
		return Ignore, fmt.Sprintf("it has %s and %s, such as %.40q", quantity.Count(s.Finite, "number"), quantity.Count(s.Texts, "word"), s.Odd[0]), nil
	case s.Overflow:
		return Ignore, fmt.Sprintf("it has more than %d different words", guessedCategories), nil
	case different > manyWords && int64(2*different) > s.Rows:
		return Ignore, fmt.Sprintf("it has %d different words in %d rows", different, s.Rows), nil
	}
	return Category, "", nil
}

// guessGoal returns the kind of the goal: label or target.
func (s *survey) guessGoal() (Kind, error) {
	if f := s.doubt(); f != nil {
		return guess, f
	}
	switch {
	case s.Texts > 0 && s.Named != nil:
		return guess, s.unclear(s.Named)
	case s.Texts > 0 && !s.Overflow && len(s.Words) > manyWords && int64(2*len(s.Words)) > s.Rows:
		f := *s.FirstText
		f.Problem += fmt.Sprintf(", and %d different words in %d rows are no classes: is this the column to find (data.target)? Write numbers, or", len(s.Words), s.Rows)
		f.Problem += fmt.Sprintf(" name the column's kind with data.schema: %s=label", s.Name)
		return guess, &f
	case s.Texts > 0:
		return Label, nil
	case s.Integers && len(s.Few) <= fewClasses:
		return Label, nil
	}
	whole := slices.DeleteFunc(slices.Clone(s.Few), func(x float64) bool { return x != math.Trunc(x) })
	if n := len(whole); n > 1 && len(s.Few) <= fewClasses && rarely*s.Fractions <= s.Finite {
		f := *s.Fraction
		f.Problem += fmt.Sprintf(", and the other %d values are %d different ones: correct it", s.Finite-s.Fractions, n)
		return guess, s.unclear(&f)
	}
	return Target, nil
}

// settle returns the kind of a column, and the reason if it is ignored. NA and None become classes
// if the classes are words.
func (s *survey) settle() (kind Kind, why string, err error) {
	switch {
	case s.Kind == Date && s.Rows == s.Missing:
		kind, why = Ignore, "it has no values"
	case s.Kind == Date:
		kind = Date
		_, err = s.settleDate()
	case s.Kind != guess:
		kind = s.Kind
	case s.Goal:
		kind, err = s.guessGoal()
	default:
		kind, why, err = s.guess()
	}
	if kind == Label && s.Texts > 0 && !s.Overflow {
		s.Wordy = true
		for w, n := range s.Lost {
			if w != "" {
				s.Words[w] = n
				s.Missing -= n.Train
				delete(s.Lost, w)
			}
		}
	}
	return kind, why, err
}

// next returns empty surveys if a second pass is needed, or nil. The second pass omits rows without
// a goal or a valid date, and counts all words of categories.
func next(all []*survey) (out []*survey) {
	again := false
	for _, s := range all {
		n := newSurvey(s.Name, s.Kind.with(s.Format), s.Goal)
		kind, _, err := s.settle()
		badDates := s.Kind == Date && kind == Date && err == nil && s.Dates[s.Format].Values < s.Finite+s.Texts
		if err == nil && (s.Goal && len(s.Lost) > 0 || kind == Category && s.Skipped || badDates) {
			again = true
			n = newSurvey(s.Name, kind.with(s.Format), s.Goal)
		}
		n.Settled, n.Wordy, n.Guessed = true, s.Wordy, s.Guessed
		out = append(out, n)
	}
	if !again {
		return nil
	}
	return out
}

// check returns an error for values that do not fit a kind.
func (s *survey) check(file string, kind Kind) error {
	switch kind {
	case Number, Target:
		if s.Squares-s.Squares != 0 || s.Mean-s.Mean != 0 {
			far := s.Most
			if math.Abs(s.Least.Value) > math.Abs(far.Value) {
				far = s.Least
			}
			f := *far.At
			f.Problem = fmt.Sprintf("%s is too large: the mean and the deviation of the column are not finite", quantity.Exact(far.Value))
			return &f
		}
		if kind == Target && s.Least.Value == s.Most.Value {
			return &Fault{File: file, Column: s.Name, Problem: fmt.Sprintf("all numbers are %s: a target needs different values", quantity.Exact(s.Most.Value))}
		}
	case Category, Label:
		if s.Overflow {
			return &Fault{File: file, Column: s.Name, Problem: fmt.Sprintf("more than %d different values: this is no %s", s.limit, kind)}
		}
		if s.Broken != nil {
			return s.Broken
		}
	}
	return nil
}

// checkClasses returns an error for words that do not form different classes.
func (s *survey) checkClasses(file string, words []string) error {
	problem := ""
	if len(words) < 2 {
		problem = fmt.Sprintf("all labels are %q: want at least two classes", words)
	}
	seen := map[float64]string{}
	for _, w := range words {
		x, err := strconv.ParseFloat(strings.TrimSpace(w), 64)
		if before, twice := seen[x]; twice && err == nil && s.Texts == 0 {
			problem = fmt.Sprintf("%q and %q are one number and two classes: write each class in one way", before, w)
		}
		if err == nil {
			seen[x] = w
		}
	}
	if problem == "" {
		return nil
	}
	return &Fault{File: file, Column: s.Name, Problem: problem}
}
