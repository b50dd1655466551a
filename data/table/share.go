package table

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sent is the surveys of a table as sent to other processes. If Columns are equal, two processes
// have the same table, even under another name.
type sent struct {
	File    string          `json:"file"`
	Columns json.RawMessage `json:"columns"`
}

// share merges the surveys of all processes that share an encoding. A table that several processes
// have counts once.
func share(file string, own []*survey, gather func([]byte) ([][]byte, error)) ([]*survey, error) {
	text, err := toSend(file, own)
	if err != nil {
		return nil, err
	}
	texts, err := gather(text)
	if err != nil {
		return nil, fmt.Errorf("%s: exchanging the statistics of its columns: %w", file, err)
	}
	var all []*survey
	var before []string
	for i, text := range texts {
		var of sent
		var columns []found
		err := json.Unmarshal(text, &of)
		if err == nil && slices.Contains(before, string(of.Columns)) {
			continue
		}
		if before = append(before, string(of.Columns)); err == nil {
			err = json.Unmarshal(of.Columns, &columns)
		}
		if err != nil {
			return nil, fmt.Errorf("the statistics of the columns of table %d cannot be read: %w", i, err)
		}
		if all == nil {
			for _, t := range columns {
				s := newSurvey(t.Name, t.Kind, t.Goal)
				s.Format, s.Settled, s.Wordy, s.Guessed = t.Format, t.Settled, t.Wordy, t.Guessed
				all = append(all, s)
			}
		}
		if !slices.EqualFunc(all, columns, func(s *survey, t found) bool {
			return s.Name == t.Name && s.Kind == t.Kind && s.Format == t.Format && s.Goal == t.Goal
		}) {
			return nil, &Fault{File: file, Problem: fmt.Sprintf("the ranks' tables have different columns, kinds or targets: want the same in the same order; the first table has %s, another %s", namesOf(all), namesOf(columns))}
		}
		for k, t := range columns {
			t.rename(func(name string) string { return of.File + name })
			if err := all[k].add(t); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// toSend returns a table's survey as JSON.
func toSend(file string, own []*survey) ([]byte, error) {
	var columns []found
	for _, s := range own {
		if s.Squares-s.Squares != 0 || s.Mean-s.Mean != 0 { // NaN and infinity, impossible in JSON
			return nil, s.check(file, Number)
		}
		t := s.found
		t.Words, t.Lost = quoted(s.Words), quoted(s.Lost)
		t.rename(func(name string) string { return strings.TrimPrefix(name, file) })
		columns = append(columns, t)
	}
	text, err := json.Marshal(columns)
	if err == nil {
		text, err = json.Marshal(sent{file, text})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the statistics of its columns cannot be encoded: %w", file, err)
	}
	return text, nil
}

// faults returns the pointers to all faults and positions.
func (s *found) faults() []**Fault {
	return []**Fault{&s.Fraction, &s.FirstText, &s.Similar, &s.Named, &s.Broken, &s.Least.At, &s.Most.At, &s.First}
}

// rename changes the file name in all positions.
func (s *found) rename(to func(string) string) {
	all, dates := s.faults(), map[string]*tally{}
	for f, n := range s.Dates {
		copied := *n
		dates[f] = &copied
		all = append(all, &copied.FirstInvalid)
	}
	s.Dates = dates
	for _, f := range all {
		if *f != nil {
			renamed := **f
			renamed.File = to(renamed.File)
			*f = &renamed
		}
	}
}

// quoted returns words in Go's quotes, because words can be any bytes.
func quoted(words map[string]count) map[string]count {
	out := map[string]count{}
	for w, n := range words {
		out[strconv.Quote(w)] = n
	}
	return out
}

// addWords adds quoted words of another table.
func (s *survey) addWords(to, words map[string]count) error {
	for quoted, n := range words {
		w, err := strconv.Unquote(quoted)
		if err != nil {
			return fmt.Errorf("column %q: %s is no word: %w", s.Name, quoted, err)
		}
		to[w] = to[w].plus(n)
	}
	return nil
}

// add merges the survey of another table. Except for the rounding of sums the result equals one
// pass over both tables.
func (s *survey) add(t found) error {
	s.Counts = t.Counts && (s.Finite == 0 || t.Finite == 0) // numbers of two tables are not consecutive
	s.Ascends = s.Ascends && t.Ascends                      // ascending in each table is enough
	s.Rows, s.Missing = s.Rows+t.Rows, s.Missing+t.Missing
	s.moments.merge(t.moments)
	s.Bins.merge(t.Bins)
	s.addDates(t)
	if s.Least.At == nil || t.Least.At != nil && t.Least.Value < s.Least.Value {
		s.Least = t.Least
	}
	if s.Most.At == nil || t.Most.At != nil && t.Most.Value > s.Most.Value {
		s.Most = t.Most
	}
	s.addCounts(t)
	if err := s.addWords(s.Lost, t.Lost); err != nil {
		return err
	}
	if s.Overflow = s.Overflow || t.Overflow; s.Overflow {
		s.Words = nil
		return nil
	}
	if err := s.addWords(s.Words, t.Words); err != nil {
		return err
	}
	if len(s.Words) > s.limit {
		s.Overflow, s.Words = true, nil
	}
	return nil
}

// addCounts merges counts, and the first values of some kinds.
func (s *survey) addCounts(t found) {
	s.Integers, s.Skipped, s.Last = s.Integers && t.Integers, s.Skipped || t.Skipped, t.Last
	s.Finite, s.Fractions, s.Texts = s.Finite+t.Finite, s.Fractions+t.Fractions, s.Texts+t.Texts
	s.NumberLike, s.Units = s.NumberLike+t.NumberLike, s.Units+t.Units
	if s.Similar == nil {
		s.Notations = t.Notations
	} else if t.Similar != nil {
		s.Notations = slices.DeleteFunc(s.Notations, func(f string) bool { return !slices.Contains(t.Notations, f) })
	}
	s.Few, s.Odd = firsts(s.Few, t.Few, fewClasses), firsts(s.Odd, t.Odd, fewWords)
	to := s.faults()
	for i, from := range t.faults() {
		if *to[i] == nil {
			*to[i] = *from
		}
	}
}

// addDates merges the dates of another table. s.First must not be merged yet.
func (s *survey) addDates(t found) {
	for f, n := range s.Dates {
		if t.Dates[f] == nil && n.FirstInvalid == nil {
			n.FirstInvalid = t.First
		}
	}
	for f, n := range t.Dates {
		own := s.Dates[f]
		if own == nil {
			own = &tally{FirstInvalid: s.First}
			if s.Dates == nil {
				s.Dates = map[string]*tally{}
			}
			s.Dates[f] = own
		}
		if own.Values += n.Values; own.FirstInvalid == nil {
			own.FirstInvalid = n.FirstInvalid
		}
		for k := range own.Parts {
			own.Parts[k].merge(n.Parts[k])
		}
	}
}

// firsts appends values of b that a lacks to a, until a has most+1 values.
func firsts[T comparable](a, b []T, most int) []T {
	for _, x := range b {
		if len(a) <= most && !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}

// namesOf returns the first columns' names.
func namesOf[T interface{ name() string }](columns []T) string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name())
	}
	return some(names, 12)
}

func (s found) name() string { return s.Name }
