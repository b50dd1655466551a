package main

import "math"

// ranges are ratios on a logarithmic scale: twice as much is as far from the line at 1 as half as
// much.
type ranges struct {
	name  string
	kinds []string // above 1 and below
	rows  []valueRange
}

// valueRange goes from its lowest ratio to its highest, which are above 0 and may be equal.
type valueRange struct {
	label     string
	low, high float64
}

func (r ranges) title() string { return r.name }

// text is the range in words.
func (v valueRange) text() string {
	if v.low == v.high {
		return number(v.low) + " x"
	}
	return number(v.low) + " to " + number(v.high) + " x"
}

// rangeRow is the height of a row: a label above a bar.
const rangeRow = 44.0

// draw lays out a bar for each row, in the first colour above 1 and in the second below. A ratio
// alone is a bar of 6 px.
func (r ranges) draw(w, _ float64) *scene {
	s := &scene{w: w}
	top := s.legend(r.name, r.kinds)
	lo, hi := 1., 1.
	for _, v := range r.rows {
		lo, hi = min(lo, v.low), max(hi, v.high)
	}
	lo, hi = lo/1.5, hi*1.2
	x0, x1, bottom := 10.0, w-14, top+rangeRow*float64(len(r.rows))
	s.h = bottom + 34
	at := func(v float64) float64 { return x0 + (x1-x0)*math.Log(v/lo)/math.Log(hi/lo) }
	for _, v := range logTicks(lo, hi) {
		s.text(at(v), bottom+16, "muted", small, "middle", number(v)+" x")
	}
	for i, v := range r.rows {
		y := top + rangeRow*float64(i)
		for _, v := range logTicks(lo, hi) { // at the height of the bar: no line crosses a label
			color, width := "grid", 1.0
			if v == 1 {
				color, width = "fg", 2
			}
			s.line(color, width, [2]float64{at(v), y + 19}, [2]float64{at(v), y + rangeRow - 7})
		}
		s.text(x0, y+14, "fg", small, "start", shorten(v.label, small, x1-x0-wide(v.text(), small)-12))
		s.text(x1, y+14, "muted", small, "end", v.text())
		left, right := at(v.low), at(v.high)
		if v.low == v.high {
			left, right = left-3, right+3
		}
		middle := min(max(at(1), left), right)
		t := tip{x0: x0, x1: x1, y0: y, y1: y + rangeRow, head: v.label}
		for kind, part := range [][2]float64{{middle, right}, {left, middle}} {
			if part[1] > part[0] {
				s.rect(part[0], y+20, part[1]-part[0], rangeRow-28, colorOf(kind))
				t.rows = append(t.rows, tipRow{colorOf(kind), r.part(kind, v).text() + ": " + r.kinds[kind]})
			}
		}
		s.tips = append(s.tips, t)
	}
	return s
}

// part is the part of a range above 1, of kind 0, or below.
func (r ranges) part(kind int, v valueRange) valueRange {
	if kind == 0 {
		v.low = max(1, v.low)
	} else {
		v.high = min(1, v.high)
	}
	return v
}

// logTicks are 1, 2 and 5 times powers of ten, from lo to hi.
func logTicks(lo, hi float64) (out []float64) {
	for power := math.Floor(math.Log10(lo)); power <= math.Log10(hi); power++ {
		for _, f := range []float64{1, 2, 5} {
			if v := f * math.Pow(10, power); v >= lo && v <= hi {
				out = append(out, v)
			}
		}
	}
	return out
}
