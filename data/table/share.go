package table

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// told is a Survey as it is sent.
type told struct {
	Name          string
	Kind          Kind
	Goal          bool
	Rows, Missing int64
	Mean, Squares float64
	Numbers       int64
	Integers      bool
	// Words are quoted as Go has it, for they may be any bytes; true for those of rows held out alone.
	Words    map[string]bool
	Overflow bool
	Other    *Fault
}

// share makes surveys those of all tables that share an encoding, each studied by a process of its own. Processes that say the same have
// the same table, which counts once.
func share(file string, own []*Survey, gather func([]byte) ([][]byte, error)) ([]*Survey, error) {
	var says []told
	for _, s := range own {
		t := told{Name: s.Name, Kind: s.Kind, Goal: s.goal, Rows: s.Rows, Missing: s.Missing, Mean: s.Mean, Squares: s.Squares, Numbers: s.numbers, Integers: s.integers, Overflow: s.overflow, Other: s.other, Words: map[string]bool{}}
		for w, held := range s.words {
			t.Words[strconv.Quote(w)] = held
		}
		says = append(says, t)
	}
	text, err := json.Marshal(says)
	if err != nil {
		return nil, fmt.Errorf("%s: what its columns hold cannot be told: %w", file, err)
	}
	texts, err := gather(text)
	if err != nil {
		return nil, fmt.Errorf("%s: telling what its columns hold: %w", file, err)
	}
	var all []*Survey
	for i, text := range texts {
		if slices.ContainsFunc(texts[:i], func(before []byte) bool { return string(before) == string(text) }) {
			continue
		}
		var says []told
		if err := json.Unmarshal(text, &says); err != nil {
			return nil, fmt.Errorf("what the columns of table %d hold cannot be read: %w", i, err)
		}
		if all == nil {
			for _, t := range says {
				all = append(all, newSurvey(t.Name, t.Kind, t.Goal))
			}
		}
		if !slices.EqualFunc(all, says, func(s *Survey, t told) bool { return s.Name == t.Name && s.Kind == t.Kind && s.goal == t.Goal }) {
			return nil, &Fault{File: file, Problem: fmt.Sprintf("tables that are trained on together have other columns, or others are to be found: want the same names in the same order; the first has %s, another %s", namesOf(all), namesOf(says))}
		}
		for k, t := range says {
			if err := all[k].add(t); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// add adds what another table holds: as one pass over both would find, but for the roundings of sums.
func (s *Survey) add(t told) error {
	s.Rows, s.Missing = s.Rows+t.Rows, s.Missing+t.Missing
	if s.numbers == 0 { // to the last bit, where there is one table alone
		s.Mean, s.Squares, s.numbers = t.Mean, t.Squares, t.Numbers
	} else if n := s.numbers + t.Numbers; t.Numbers > 0 { // Chan, Golub and LeVeque 1979
		d := t.Mean - s.Mean
		s.Squares += t.Squares + d*d*float64(s.numbers)*float64(t.Numbers)/float64(n)
		s.Mean += d * float64(t.Numbers) / float64(n)
		s.numbers = n
	}
	s.integers = s.integers && t.Integers
	if s.other == nil {
		s.other = t.Other
	}
	if s.overflow = s.overflow || t.Overflow; s.overflow {
		s.words = nil
		return nil
	}
	for quoted, held := range t.Words {
		w, err := strconv.Unquote(quoted)
		if err != nil {
			return fmt.Errorf("column %q: %s is no word: %w", s.Name, quoted, err)
		}
		if before, ok := s.words[w]; ok {
			held = held && before
		}
		s.words[w] = held
	}
	if len(s.words) > s.most {
		s.overflow, s.words = true, nil
	}
	return nil
}

// namesOf are the first names of columns.
func namesOf[T interface{ name() string }](columns []T) string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name())
	}
	return some(names, 12)
}

func (t told) name() string    { return t.Name }
func (s *Survey) name() string { return s.Name }
