package table

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// moments is the mean of numbers, and the sum of their squared distances from the mean.
type moments struct {
	Mean    float64 `json:"mean"`
	Squares float64 `json:"squares"`
	Numbers int64   `json:"numbers"`
}

// add adds a number.
func (m *moments) add(x float64) {
	m.Numbers++
	d := x - m.Mean
	m.Mean += d / float64(m.Numbers)
	m.Squares += d * (x - m.Mean)
}

// merge adds other numbers, by their moments, after Chan, Golub and LeVeque (1979). If m has no
// numbers, the result is exact.
func (m *moments) merge(t moments) {
	if m.Numbers == 0 {
		*m = t
	} else if n := m.Numbers + t.Numbers; t.Numbers > 0 {
		d := t.Mean - m.Mean
		m.Squares += t.Squares + d*d*float64(m.Numbers)*float64(t.Numbers)/float64(n)
		m.Mean += d * float64(t.Numbers) / float64(n)
		m.Numbers = n
	}
}

// deviation returns the numbers' deviation; 1 if all numbers are equal.
func (m *moments) deviation() float64 {
	if d := math.Sqrt(m.Squares / float64(max(1, m.Numbers))); d > 0 && d-d == 0 {
		return d
	}
	return 1
}

// tally counts a column's dates in one format.
type tally struct {
	// Values counts the dates of all rows.
	Values int64 `json:"values"`
	// Parts are the moments of dateParts over the training rows.
	Parts [len(dateParts)]moments `json:"parts"`
	// FirstInvalid is the position of the first value that is no date in this format.
	FirstInvalid *Fault `json:"other,omitempty"`
}

// dateFormats returns the formats of dates that read a word: at most one, or two if the day and the
// month can be exchanged. Other formats need a schema.
func dateFormats(w string) (formats []string) {
	if len(w) < len("1/1/2024") || len(w) > 40 {
		return nil
	}
	at := strings.IndexAny(w[:min(len(w), 5)], "-/.")
	var tried []string
	switch {
	case at == 4 && w[4] == '-':
		tried = []string{isoDate, isoZone}
	case at == 4:
		tried = []string{"YYYY" + w[4:5] + "MM" + w[4:5] + "DD"}
	case at == 1 || at == 2:
		sep := w[at : at+1]
		tried = []string{"DD" + sep + "MM" + sep + "YYYY", "MM" + sep + "DD" + sep + "YYYY"}
	}
	for _, f := range tried {
		if _, ok := parseDate(w, f); ok {
			formats = append(formats, f)
		}
	}
	return formats
}

// date adds a value that can be a date: to the tally of the column's format, or of each format that
// reads the value.
func (s *survey) date(v *Vector, i int, one count, at func(string, ...any) *Fault) {
	formats := []string{s.Format}
	switch {
	case v.Seconds > 0 && s.Format == "":
		formats[0] = isoDate
	case s.Format == "" && v.Numbers != nil:
		formats = nil
	case s.Format == "":
		formats = dateFormats(strings.TrimSpace(v.Words[i]))
	}
	var read []string
	for _, f := range formats {
		t, _, ok := v.time(i, f)
		if !ok {
			continue
		}
		read = append(read, f)
		n := s.Dates[f]
		if n == nil {
			n = &tally{FirstInvalid: s.First}
			if s.Dates == nil {
				s.Dates = map[string]*tally{}
			}
			s.Dates[f] = n
		}
		n.Values++
		for k, x := range values(t) {
			if one.Train > 0 {
				n.Parts[k].add(x)
			}
		}
	}
	for f, n := range s.Dates {
		if n.FirstInvalid == nil && !slices.Contains(read, f) {
			n.FirstInvalid = at("%.40q", v.plain(i))
		}
	}
	if s.First == nil {
		s.First = at("%.40q", v.plain(i))
	}
}

// time returns row i's date in a format, or in the file's own type.
func (v *Vector) time(i int, format string) (t time.Time, missing, ok bool) {
	switch {
	case v.missing(i):
		return t, true, true
	case v.Seconds > 0:
		t, ok = instant(v.Numbers[i] * v.Seconds)
	default:
		t, ok = parseDate(v.plain(i), format)
	}
	return t, false, ok
}

// dates returns the format that reads more than half of the values, and its tally; nil without one.
// other is a second format that reads as many values, if no value shows which number is the month.
func (s *survey) dates() (format, other string, n *tally) {
	for _, f := range slices.Sorted(maps.Keys(s.Dates)) {
		switch t := s.Dates[f]; {
		case n == nil || t.Values > n.Values:
			format, other, n = f, "", t
		case t.Values == n.Values:
			other = f
		}
	}
	if n == nil || 2*n.Values <= s.Finite+s.Texts {
		return "", "", nil
	}
	return format, other, n
}

// settleDate sets s.Format if the column has dates. A value that is no date is an error, and so are
// dates with two readings if the schema has the kind date for the column.
func (s *survey) settleDate() (ok bool, err error) {
	if s.Format != "" {
		return true, nil
	}
	format, other, n := s.dates()
	switch {
	case s.Kind != guess && n == nil && s.First != nil:
		f := *s.First
		f.Problem = fmt.Sprintf("%s is no date of a known format: name it with data.schema, such as %s=date:DD-MMM-YYYY, date:YYYYMMDD or date:unix", f.Problem, s.Name)
		return false, &f
	case s.Kind != guess && other != "":
		f := *s.First
		f.Problem = fmt.Sprintf("%s can have the day or the month first, and no value decides: data.schema=%s=date:%s or %s=date:%s", f.Problem, s.Name, format, s.Name, other)
		return false, &f
	case n == nil || other != "":
		return false, nil
	case s.Kind == guess && n.Values < s.Finite+s.Texts:
		f := *n.FirstInvalid
		f.Problem = fmt.Sprintf("%s is no date %s, and %d of %d values are: correct it, or name the column's kind with data.schema: %s=%s, %s=%s or %s=%s",
			f.Problem, format, n.Values, s.Finite+s.Texts, s.Name, Date.with(format), s.Name, Category, s.Name, Ignore)
		return false, &f
	}
	s.Format = format
	return true, nil
}

// parts returns the inputs of a date: days, and each other part that varies among the rows.
func (n *tally) parts() (out []Part) {
	for k, name := range dateParts {
		if m := &n.Parts[k]; k == 0 || m.Squares > 0 {
			out = append(out, Part{name, m.Mean, m.deviation()})
		}
	}
	return out
}
