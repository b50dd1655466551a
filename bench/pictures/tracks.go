package main

import "math"

// tracks are what happened when: a line for each of what goes on at once, such as stages of ranks,
// with a box for each stretch.
type tracks struct {
	name string
	// unit is that of the axis; "": it has no scale, and boxes are in order alone.
	unit string
	// kinds are what boxes may be of, each with a colour of its own.
	kinds []string
	rows  []track
}

// track is a line of it. head stands above it, where another part begins; "": none does.
type track struct {
	head, label string
	boxes       []box
}

// box is a stretch of a track. text is shown under the pointer.
type box struct {
	from, to float64
	kind     int
	text     string
}

func (t tracks) title() string { return t.name }

// Heights of a track, of its box, and of a head above.
const trackRow, trackBox, trackHead = 24.0, 15.0, 26.0

// draw lays out the tracks one below the other, by one scale. The height is theirs, whatever was asked for. Boxes that begin while another one
// of their track goes on lie over its end.
func (t tracks) draw(w, h float64) *scene {
	s := &scene{w: w, h: h}
	top := s.legend(t.name, t.kinds)
	// One scale for all tracks, from the first box on: what went on at once is one above the other. Labels stand to the left of it,
	// and have a third of the width at most.
	lo, hi, label := math.Inf(1), math.Inf(-1), 0.0
	for _, r := range t.rows {
		label = max(label, wide(r.label, small))
		for _, b := range r.boxes {
			lo, hi = min(lo, b.from), max(hi, b.to)
		}
	}
	if !(hi > lo) {
		s.text(w/2, h/2, "muted", small, "middle", "no figures")
		return s
	}
	x0, x1 := min(label, w/3)+18, w-14
	per := (x1 - x0) / (hi - lo)
	bottom := top
	for _, r := range t.rows {
		if bottom += trackRow; r.head != "" {
			bottom += trackHead
		}
	}
	s.h = bottom + 14
	if t.unit != "" {
		s.h = bottom + 30
		for _, v := range ticks(0, hi-lo, max(2, int((x1-x0)/90))) {
			x := x0 + v*per
			s.line("grid", 1, [2]float64{x, top}, [2]float64{x, bottom})
			anchor := "middle"
			if x+wide(number(v)+" "+t.unit, small)/2 > w {
				anchor = "end"
			}
			s.text(x, bottom+16, "muted", small, anchor, number(v)+" "+t.unit)
		}
	}
	y := top
	for _, r := range t.rows {
		if r.head != "" {
			s.text(8, y+18, "fg", small, "start", shorten(r.head, small, w-16))
			y += trackHead
		}
		s.text(12, y+14, "muted", small, "start", shorten(r.label, small, x0-14))
		s.line("grid", 1, [2]float64{x0, y + trackBox + 3}, [2]float64{x1, y + trackBox + 3})
		// A box that is shorter than a pixel is one pixel wide, so that it is seen, and one that is longer leaves a pixel to the next, so
		// that two are told apart.
		for _, b := range r.boxes {
			x, width := x0+(b.from-lo)*per, max(1, (b.to-b.from)*per-1)
			s.rect(x, y+3, width, trackBox, colorOf(b.kind))
			s.tips = append(s.tips, tip{x0: x, x1: x + max(3, width), y0: y, y1: y + trackRow, head: r.label, rows: []tipRow{{colorOf(b.kind), b.text}}})
		}
		y += trackRow
	}
	return s
}
