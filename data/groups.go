package data

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Groups groups the evaluation samples by a column of their file, which need not be an input.
// values are the column's different values, and of[i] is the index in values of sample i's. Times
// are reduced to days. Cost: a pass over the file.
func (s *Dataset) Groups(column string) (of []int32, values []string, err error) {
	samples, number := s.Eval.Len(), map[string]int32{}
	err = s.eachValue(column, func(value string) bool {
		if day := len(time.DateOnly); len(value) > day && (value[day] == ' ' || value[day] == 'T') {
			if _, err := time.Parse(time.DateOnly, value[:day]); err == nil {
				value = value[:day]
			}
		}
		k, ok := number[value]
		if !ok {
			k = int32(len(values))
			number[value], values = k, append(values, value)
		}
		of = append(of, k)
		return len(of) < samples
	})
	if err == nil && len(of) != samples {
		err = fmt.Errorf("%d rows have column %q, there were %d when the data were opened: the file has changed", len(of), column, samples)
	}
	return of, values, err
}

// eachValue calls add with a column's value of each evaluation sample, until add returns false.
func (s *Dataset) eachValue(column string, add func(string) bool) error {
	switch {
	case s.rows[1].Reader != nil:
		return s.rows[1].eachValue(column, add)
	case s.Encoder == nil && s.Name != "clicks" && s.Name != "criteo":
		return fmt.Errorf("data set %s has no columns: groups are of the columns of tables and of click data", s.Name)
	case s.evalFile == "" || s.Encoder != nil:
		return errors.New("groups need the evaluation samples in a file without bad rows: these are generated, or rows were skipped")
	}
	l, err := layout.Open("criteo")
	if err != nil {
		return err
	}
	if s.Layout != nil {
		*l = *s.Layout
	}
	l.Kept = column
	f, err := clicks.LayoutFormat(l)
	if err != nil {
		return err
	}
	return Config{}.eachClicks(s.evalFile, f, new(datafile.Skips), func(c *clicks.Chunk) bool {
		return !slices.ContainsFunc(c.Block.Texts, func(text string) bool { return !add(text) })
	})
}

// eachValue calls add with the values of a column of the samples, until add returns false.
func (t tableRows) eachValue(column string, add func(string) bool) error {
	at := slices.Index(t.Columns(), column)
	if at < 0 {
		return fmt.Errorf("%s has no column %q%s", t.Name(), column, spelling.Hint(column, t.Columns()...))
	}
	more := true
	return t.Scan([]int{at}, func(err error) error { return err }, func(c *table.Chunk) error {
		v := &c.Columns[0]
		for i := 0; i < c.N && more; i++ {
			if row := c.First + int64(i); t.all(row) {
				if v.Numbers != nil && v.Seconds == 0 && math.Abs(v.Numbers[i]) >= 1<<53 {
					places, _ := table.Rows(t.Reader, []int64{row}, 1)
					return fmt.Errorf("%s: column %q: %s, rounded: want numbers below 2^53, because others can have equal float64 values: write the column as text", places[0], column, textOf(v, i))
				}
				more = add(textOf(v, i))
			}
		}
		return nil
	})
}

// textOf returns a row's value as text; "" if missing.
func textOf(v *table.Vector, row int) string {
	switch {
	case v.Numbers == nil:
		return v.Words[row]
	case v.Numbers[row] != v.Numbers[row]:
		return ""
	case v.Seconds > 0:
		seconds := v.Numbers[row] * max(1, v.Seconds) / max(1, math.Round(1/v.Seconds)) // 1e-9 is inexact
		return time.Unix(int64(math.Floor(seconds)), 0).UTC().Format(time.RFC3339)
	}
	return strconv.FormatFloat(v.Numbers[row], 'f', -1, 64)
}
