package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/data/table"
)

// tableRows are the rows of a table that are samples, in order.
type tableRows struct {
	table.Reader                      // nil: unknown
	all          func(row int64) bool // whether a row is a sample
}

// places returns the places of samples, and the values of the first columns.
func (t tableRows) places(samples []int32, columns int) (places []string, values [][]string) {
	if t.Reader == nil {
		return make([]string, len(samples)), make([][]string, len(samples))
	}
	at, last := map[int32]int64{}, int32(0) // rows of the samples
	for _, n := range samples {
		at[n], last = -1, max(last, n)
	}
	row := int64(-1)
	for n := int32(0); n <= last; n++ {
		for row++; !t.all(row); row++ {
		}
		if _, ok := at[n]; ok {
			at[n] = row
		}
	}
	rows := make([]int64, len(samples))
	for i, n := range samples {
		rows[i] = at[n]
	}
	return table.Rows(t.Reader, rows, columns)
}

// shownColumns is the number of columns of a table in Places.
const shownColumns = 8

// Places returns the places of evaluation samples by number: file and line of a row, or the file of
// an image; "" if unknown, as after skipped rows. values has the first columns of a table as
// NAME=VALUE. Cost: a pass over a table.
func (s *Dataset) Places(samples []int32) (places []string, values [][]string) {
	places, values = s.rows[1].places(samples, shownColumns)
	for i, n := range samples {
		if places[i] == "" {
			places[i] = placeOf(s.Eval, n, s.evalFile)
		}
	}
	return places, values
}

// placeOf returns the place (file and row) of a source's sample. Rows of arrays count from 0, as in
// NumPy; rows of file, if it is not "", from 1.
func placeOf(src Source, n int32, file string) string {
	switch s := src.(type) {
	case head:
		return placeOf(s.Source, n, file)
	case subset:
		return placeOf(s.Source, s.at[n], file)
	case *encoded:
		return s.Pictures[n].Path
	case *arrays:
		return fmt.Sprintf("%s: row %d", s.path, n)
	}
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s: row %d", file, n+1)
}
