package table

import (
	"errors"
	"slices"
	"time"
)

// errFound ends a pass over a table that has found all rows.
var errFound = errors.New("found")

// Rows returns, for each of the given rows of a table, its place (file and line, or file and row)
// and the values of the first columns as NAME=VALUE; "" and nil for a row that cannot be read.
// Columns of unsupported types are passed over. Cost: a pass up to the last row.
func Rows(r Reader, rows []int64, columns int) (places []string, values [][]string) {
	places, values = make([]string, len(rows)), make([][]string, len(rows))
	missing, names := len(rows), r.Columns()
	want := make([]int, min(columns, len(names)))
	for i := range want {
		want[i] = i
	}
	end := func(error) error { return errFound }
	visit := func(c *Chunk) error {
		for k, row := range rows {
			i := int(row - c.First)
			if i < 0 || i >= c.N {
				continue
			}
			places[k] = c.place(r.Name(), i, "", "").place()
			for at := range want {
				values[k] = append(values[k], names[want[at]]+"="+c.Columns[at].shown(i))
			}
			missing--
		}
		if missing == 0 {
			return errFound
		}
		return nil
	}
	if err := r.Scan(want, end, visit); err != nil && !errors.Is(err, errFound) && missing == len(rows) {
		want = readable(r, columns)
		_ = r.Scan(want, end, visit)
	}
	return places, values
}

// readable returns the first n columns, or fewer, of types that can be read.
func readable(r Reader, n int) (columns []int) {
	for i := 0; i < len(r.Columns()) && len(columns) < n; i++ {
		err := r.Scan([]int{i}, func(error) error { return errFound }, func(*Chunk) error { return errFound })
		if err == nil || errors.Is(err, errFound) {
			columns = append(columns, i)
		}
	}
	return columns
}

// shown returns row i's value as text; "" if missing.
func (v *Vector) shown(i int) string {
	switch {
	case v.Numbers == nil && v.Words == nil, v.missing(i):
		return ""
	case v.Seconds > 0:
		if t, missing, ok := v.time(i, ""); ok && !missing {
			return t.Format(time.RFC3339)
		}
	}
	return v.plain(i)
}

// continued returns c with the goal and kinds of Previous, if the user sets neither. Columns that
// Previous ignores by a guess are guessed again, except in a resumed run. The goal's kind is also
// guessed again, because a row without a goal is bad only if the user sets the kind.
func (c Options) continued(columns []string) Options {
	if c.Previous == nil {
		return c
	}
	goal, hasGoal := c.Previous.Goal()
	chosen := c.Target != ""
	schema := Schema{}
	for name, kind := range c.Schema {
		schema[name] = kind
		base, _ := kind.split()
		chosen = chosen || base == Label || base == Target
	}
	if _, named := schema[goal.Name]; hasGoal && !chosen && !named && slices.Contains(columns, goal.Name) {
		c.Target = goal.Name
	}
	for _, p := range c.Previous.Columns {
		_, named := schema[p.Name]
		isGoal := p.Kind == Label || p.Kind == Target || p.Name == c.Target
		if !named && !isGoal && (p.Reason == "" || c.Resumed) && slices.Contains(columns, p.Name) {
			schema[p.Name] = p.Kind.with(p.Format)
		}
	}
	c.Schema = schema
	return c
}

// keep copies means and deviations from previous to numbers and targets of the same name and kind,
// and moves the columns of previous to the front, in previous' order. It also copies the parts of
// dates and, if resumed, the reasons why columns are ignored.
func (e *Encoder) keep(previous *Encoder, resumed bool) {
	if previous == nil {
		return
	}
	at := func(name string) int {
		return slices.IndexFunc(previous.Columns, func(c Column) bool { return c.Name == name })
	}
	for i := range e.Columns {
		c := &e.Columns[i]
		if k := at(c.Name); k >= 0 && previous.Columns[k].Kind == c.Kind && (c.Kind == Number || c.Kind == Target) {
			c.Mean, c.Deviation = previous.Columns[k].Mean, previous.Columns[k].Deviation
		} else if k >= 0 && previous.Columns[k].Kind == c.Kind && c.Kind == Date {
			c.Parts = previous.Columns[k].Parts
		} else if k >= 0 && resumed && c.Kind == Ignore {
			c.Reason = previous.Columns[k].Reason
		}
	}
	place := func(i int) int {
		if k := at(e.Columns[i].Name); k >= 0 {
			return k
		}
		return len(previous.Columns)
	}
	order := make([]int, len(e.Columns))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return place(a) - place(b) })
	columns, surveys := slices.Clone(e.Columns), slices.Clone(e.surveys)
	for i, from := range order {
		e.Columns[i], e.surveys[i] = columns[from], surveys[from]
	}
}
