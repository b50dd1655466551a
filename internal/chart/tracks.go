package chart

import "math"

// Tracks are what happened when: a line for each of what goes on at once, such as stages of ranks, with a box for each stretch.
type Tracks struct {
	Title string
	// Unit is that of the axis; "": it has no scale, and boxes are in order alone.
	Unit string
	// Kinds are what boxes may be of, each with a colour of its own.
	Kinds []string
	Rows  []Track
}

// Track is a line of it. Head stands above it, where another part begins; "": none does.
type Track struct {
	Head, Label string
	Boxes       []Box
}

// Box is a stretch of a track. Text is told under the pointer.
type Box struct {
	From, To float64
	Kind     int
	Text     string
}

func (t Tracks) title() string { return t.Title }

// Heights of a track, of its box, and of a head above.
const trackRow, trackBox, trackHead = 24.0, 15.0, 26.0

// draw lays out the tracks one below the other, by one scale. The height is theirs, whatever was asked for. Boxes that begin while another one
// of their track goes on lie over its end.
func (t Tracks) draw(w, h float64) *scene {
	s := &scene{w: w, h: h}
	top := s.legend(t.Title, t.Kinds)
	// One scale for all tracks, from the first box on: what went on at once is one above the other. Labels stand to the left of it,
	// and have a third of the width at most.
	lo, hi, label := math.Inf(1), math.Inf(-1), 0.0
	for _, r := range t.Rows {
		label = max(label, wide(r.Label, small))
		for _, b := range r.Boxes {
			lo, hi = min(lo, b.From), max(hi, b.To)
		}
	}
	if !(hi > lo) {
		s.text(w/2, h/2, "muted", small, "middle", "no figures")
		return s
	}
	x0, x1 := min(label, w/3)+18, w-14
	per := (x1 - x0) / (hi - lo)
	bottom := top
	for _, r := range t.Rows {
		if bottom += trackRow; r.Head != "" {
			bottom += trackHead
		}
	}
	s.h = bottom + 14
	if t.Unit != "" {
		s.h = bottom + 30
		for _, v := range ticks(0, hi-lo, max(2, int((x1-x0)/90))) {
			x := x0 + v*per
			s.line("grid", 1, [2]float64{x, top}, [2]float64{x, bottom})
			anchor := "middle"
			if x+wide(number(v)+" "+t.Unit, small)/2 > w {
				anchor = "end"
			}
			s.text(x, bottom+16, "muted", small, anchor, number(v)+" "+t.Unit)
		}
	}
	y := top
	for _, r := range t.Rows {
		if r.Head != "" {
			s.text(8, y+18, "fg", small, "start", shorten(r.Head, small, w-16))
			y += trackHead
		}
		s.text(12, y+14, "muted", small, "start", shorten(r.Label, small, x0-14))
		s.line("grid", 1, [2]float64{x0, y + trackBox + 3}, [2]float64{x1, y + trackBox + 3})
		// A box that is shorter than a pixel is one pixel wide, so that it is seen, and one that is longer leaves a pixel to the next, so
		// that two are told apart.
		for _, b := range r.Boxes {
			x, width := x0+(b.From-lo)*per, max(1, (b.To-b.From)*per-1)
			s.rect(x, y+3, width, trackBox, colorOf(b.Kind))
			s.tips = append(s.tips, tip{x0: x, x1: x + max(3, width), y0: y, y1: y + trackRow, at: math.NaN(), head: r.Label, rows: []tipRow{{colorOf(b.Kind), b.Text}}})
		}
		y += trackRow
	}
	return s
}
