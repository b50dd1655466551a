package chart

import (
	"math"
	"strings"
)

// The height is that of a bar with its label above it: as much as there is room for, between these.
const leastRow, mostRow = 44.0, 76.0

// draw lays out a bar for each row, one below the other, all by one scale from 0 on, so that lengths compare. The height is that of the
// rows, whatever was asked for: bars of a few rows are thick, those of many no thinner than their labels. What is no number, or below
// 0, has no length.
func (b Bars) draw(w, h float64) *scene {
	s := &scene{w: w, h: h}
	top := s.legend(b.Title, b.Parts)
	longest := 0.0
	for _, r := range b.Rows {
		longest = max(longest, sum(r.Values))
	}
	n := float64(len(b.Rows))
	row := min(max((h-top-34)/max(n, 1), leastRow), mostRow)
	s.h = top + row*n + 34
	if longest <= 0 {
		s.text(w/2, h/2, "muted", small, "middle", "no figures")
		return s
	}
	bottom := top + row*n
	x0, x1 := 10.0, w-14
	per := (x1 - x0) / longest
	for _, v := range ticks(0, longest, max(2, int((x1-x0)/90))) {
		x := x0 + v*per
		s.line("grid", 1, [2]float64{x, top}, [2]float64{x, bottom})
		anchor := "middle"
		if v == 0 {
			anchor = "start"
		} else if x+wide(number(v)+" "+b.Unit, small)/2 > w {
			anchor = "end"
		}
		s.text(x, bottom+16, "muted", small, anchor, number(v)+" "+b.Unit)
	}
	for i, r := range b.Rows {
		b.row(s, r, [4]float64{x0, top + row*float64(i), x1, top + row*float64(i+1)}, per)
	}
	return s
}

// row draws a bar below its label, within left, top, right and bottom.
func (b Bars) row(s *scene, r Bar, in [4]float64, per float64) {
	x0, y, x1, y1 := in[0], in[1], in[2], in[3]
	total := number(sum(r.Values)) + " " + b.Unit
	s.text(x0, y+14, "fg", small, "start", shorten(strings.TrimSpace(r.Label), small, x1-x0-wide(total, small)-12))
	s.text(x1, y+14, "muted", small, "end", total)
	t := tip{x0: x0, x1: x1, y0: y, y1: y1, at: math.NaN(), head: r.Label}
	x := x0
	for k, v := range r.Values {
		if !(v > 0) {
			continue
		}
		s.rect(x, y+20, v*per, y1-y-28, colorOf(k))
		x += v * per
		t.rows = append(t.rows, tipRow{colorOf(k), b.Parts[k] + ": " + number(v) + " " + b.Unit})
	}
	if len(t.rows) > 0 {
		s.tips = append(s.tips, t)
	}
}

// sum adds up what is above 0.
func sum(values []float64) (out float64) {
	for _, v := range values {
		if v > 0 {
			out += v
		}
	}
	return out
}
