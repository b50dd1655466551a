package table

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Notes returns messages to check before a run: the format of the table and the encoding of the
// columns. After InferEncoder they include missing values and outliers.
func (e *Encoder) Notes(r Reader) []string {
	notes := e.ColumnNotes()
	if text := described(r); text != "" {
		notes = slices.Insert(notes, 0, text)
	}
	var remarks []string
	for i, s := range e.surveys {
		if s == nil {
			if c := e.Columns[i]; c.Reason == anIndex {
				remarks = append(remarks, fmt.Sprintf("column %q is ignored: it is a row index of pandas or R", c.Name))
			}
			continue
		}
		remarks = append(remarks, s.remarks(e.Columns[i].Kind)...)
		if words, rows := s.pooled(e.Columns[i]); words > 0 {
			remarks = append(remarks, fmt.Sprintf("column %q: %s of fewer than %s are pooled with unknown ones: %s to train on", s.Name,
				quantity.Count(words, "word"), quantity.Count(e.Columns[i].MinCount, "row"), quantity.Count(rows, "row")))
		}
	}
	return append(notes, remarks...)
}

// ColumnNotes returns those notes that have the same content as Found: all columns in a line, and
// missing values.
func (e *Encoder) ColumnNotes() []string {
	notes := []string{e.String()}
	var missing []string
	for i, s := range e.surveys {
		if s == nil || e.Columns[i].Kind == Ignore {
			continue
		}
		if text := lostText(s.Lost); text != "" {
			missing = append(missing, fmt.Sprintf("%s %s", s.Name, text))
		}
	}
	if len(missing) > 0 {
		notes = append(notes, "missing values: "+strings.Join(missing, "; "))
	}
	return notes
}

// pooled counts a category's words in fewer training rows than Options.MinCount, and these rows.
func (s *survey) pooled(c Column) (words int, rows int64) {
	for _, n := range s.Words {
		if c.Kind == Category && n.Train > 0 && n.Train < c.MinCount {
			words, rows = words+1, rows+n.Train
		}
	}
	return words, rows
}

// described returns the format of a table's text; "" for formats without a choice.
func described(r Reader) string {
	if t, ok := r.(interface{ described() string }); ok {
		return t.described()
	}
	return ""
}

// lostText lists the words that mean a missing value, with the number of rows of each.
func lostText(lost map[string]count) string {
	var words []string
	all := int64(0)
	for _, w := range slices.Sorted(maps.Keys(lost)) {
		all += lost[w].All
		if w == "" {
			w = "empty"
		}
		words = append(words, w)
	}
	if all == 0 {
		return ""
	}
	if len(words) == 1 {
		return fmt.Sprintf("%d (%s)", all, words[0])
	}
	for i, w := range slices.Sorted(maps.Keys(lost)) {
		words[i] += fmt.Sprintf(" %d", lost[w].All)
	}
	return fmt.Sprintf("%d (%s)", all, strings.Join(words, ", "))
}

// remarks returns unusual values of a column and other facts that the user should check.
func (s *survey) remarks(kind Kind) (out []string) {
	remark := func(format string, args ...any) {
		out = append(out, fmt.Sprintf("column %q: "+format, append([]any{s.Name}, args...)...))
	}
	if format, other, _ := s.dates(); other != "" && kind != Date && !s.Goal {
		remark("dates such as %s can have the day or the month first, and no value decides: data.schema=%s=date:%s or %s=date:%s makes them inputs", s.First.Problem, s.Name, format, s.Name, other)
	}
	if kind == Ignore && s.Kind == guess && s.identifies() {
		remark("its integers ascend from row to row, and are left out as identifiers: data.schema=%s=number makes them an input", s.Name)
	}
	switch kind {
	case Number, Target:
		if s.Counts && s.Finite > 2 && kind == Number {
			remark("it counts the rows (%s to %s): data.schema=%s=ignore leaves it out", quantity.Exact(s.Last-float64(s.Finite)+1), quantity.Exact(s.Last), s.Name)
		}
		if x, far := s.outlier(); far {
			remark("%s (%s) is %s deviations from the mean: is it correct?", quantity.Exact(x.Value), x.At.place(), quantity.Float(math.Abs(x.Value-s.Mean)/s.deviation()))
		}
		if s.Numbers > 1 && s.Least.Value == s.Most.Value {
			remark("all numbers are %s", quantity.Exact(s.Most.Value))
		}
	case Label, Category:
		if s.Wordy && kind == Label {
			for w, n := range s.Words {
				if isMissing(w) && w != "" {
					remark("the word %s is a class, of %s; an empty field is a missing value", w, quantity.Count(n.All, "row"))
				}
			}
			slices.Sort(out)
		}
		if kind == Category && s.Finite > 0 && s.Texts > 0 {
			remark("%s and %s: the numbers are words, too", quantity.Count(s.Finite, "number"), quantity.Count(s.Texts, "word"))
		}
		for _, pair := range s.similarWords() {
			remark("%q and %q differ in case or spaces alone", pair[0], pair[1])
		}
	}
	return out
}

// outlier returns a number that makes up over half of the sum of squared distances from the mean.
func (s *survey) outlier() (extreme, bool) {
	x := s.Most
	if s.Mean-s.Least.Value > x.Value-s.Mean {
		x = s.Least
	}
	d := x.Value - s.Mean
	return x, s.Numbers >= 20 && d*d > s.Squares/2 && len(s.Few) > 2
}

// similarWords returns some pairs of words that differ only in case or surrounding spaces.
func (s *survey) similarWords() (pairs [][2]string) {
	seen := map[string]string{}
	for _, w := range slices.Sorted(maps.Keys(s.Words)) {
		folded := strings.ToLower(strings.TrimSpace(w))
		if before, ok := seen[folded]; ok && len(pairs) < mostNamed {
			pairs = append(pairs, [2]string{before, w})
		}
		seen[folded] = w
	}
	return pairs
}

// place describes the line or row.
func (f *Fault) place() string {
	if f.Row {
		return fmt.Sprintf("%s: row %d", f.File, f.Line)
	}
	return fmt.Sprintf("%s: line %d", f.File, f.Line)
}

// Found describes the encoding of a column, for records of a run.
type Found struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Guessed reports that the schema lacks the column. If it is ignored, Reason has the cause.
	Guessed bool   `json:"guessed"`
	Reason  string `json:"why,omitempty"`
	// Detail describes the values: mean and deviation of a target, the format and the inputs of a
	// date, the first words of a category or label.
	Detail string `json:"detail,omitempty"`
	// Values is the number of different words of a category or label.
	Values int `json:"values,omitempty"`
	// Pooled is the number of words below Options.MinCount.
	Pooled int `json:"pooled,omitempty"`
	// Missing counts rows by the word that means a missing value; "" is an empty field.
	Missing map[string]int64 `json:"missing,omitempty"`
	// Rows counts the training rows; 0 means unknown.
	Rows int64 `json:"rows,omitempty"`
	// Histogram is of the training rows of a number or target, Frequent of a category or label.
	Histogram *Histogram  `json:"histogram,omitempty"`
	Frequent  []WordCount `json:"frequent,omitempty"`
}

// WordCount is a word of a column with its number of training rows.
type WordCount struct {
	Word string `json:"word"`
	Rows int64  `json:"rows"`
}

// mostFrequent is the number of words in Found.Frequent.
const mostFrequent = 12

// frequent returns the most frequent words of a category or label; equally frequent words keep
// their order.
func (s *survey) frequent(c Column) (out []WordCount) {
	for _, w := range c.Words {
		out = append(out, WordCount{w, s.Words[w].Train})
	}
	slices.SortStableFunc(out, func(a, b WordCount) int { return cmp.Compare(b.Rows, a.Rows) })
	return out[:min(len(out), mostFrequent)]
}

// Found describes the columns as read by InferEncoder. For an encoder from a checkpoint, missing
// values and guesses are unknown.
func (e *Encoder) Found() []Found {
	var out []Found
	for i, c := range e.Columns {
		f := Found{Name: c.Name, Kind: c.Kind, Reason: c.Reason, Values: len(c.Words), Detail: c.detail(), Guessed: c.Kind == Ignore && c.Reason != ""}
		if i < len(e.surveys) && e.surveys[i] != nil {
			s := e.surveys[i]
			f.Guessed, f.Missing = s.Guessed, map[string]int64{}
			f.Pooled, _ = s.pooled(c)
			f.Rows = s.Rows
			if c.Kind == Number || c.Kind == Target {
				f.Histogram = s.Bins.histogram()
			}
			f.Frequent = s.frequent(c)
			for w, n := range s.Lost {
				f.Missing[w] = n.All
			}
		}
		out = append(out, f)
	}
	return out
}

// detail returns Found.Detail.
func (c *Column) detail() string {
	switch c.Kind {
	case Target:
		return fmt.Sprintf("mean %s, deviation %s (1 in metrics)", quantity.FloatDigits(c.Mean, 4), quantity.FloatDigits(c.Deviation, 4))
	case Date:
		return fmt.Sprintf("%s: %s", c.Format, strings.Join(partNames(*c), ", "))
	case Label:
		return fmt.Sprintf("one of %s: %s", quantity.Count(len(c.Words), "class"), some(c.Words, 5))
	case Category:
		return fmt.Sprintf("%s: %s", quantity.Count(len(c.Words), "word"), some(c.Words, 5))
	}
	return ""
}
