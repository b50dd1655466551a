package main

import (
	"math"
	"strconv"
	"strings"
)

// chart is laid out once, into a scene, and then written as SVG.
type chart interface {
	// draw lays the chart out in a size.
	draw(w, h float64) *scene
	title() string
}

// scene is the shapes of a chart. Lengths are in pixels, and colours are names of a theme: bg, fg,
// muted, grid, or s0 to s7.
type scene struct {
	w, h   float64
	shapes []shape
	tips   []tip
}

// shape is a line or an area through points, or a text at the first of them.
type shape struct {
	points [][2]float64
	color  string
	width  float64 // of a line; 0: it is an area, or a text
	text   string
	size   float64
	anchor string // of a text: start, middle or end
}

// tip is shown while the pointer is in a stretch of the chart.
type tip struct {
	x0, y0, x1, y1 float64
	head           string
	rows           []tipRow
}

type tipRow struct{ color, text string }

// line draws a line of straight stretches.
func (s *scene) line(color string, width float64, points ...[2]float64) {
	s.shapes = append(s.shapes, shape{points: points, color: color, width: width})
}

// text writes a text at a place, of its base line: start, middle or end of it lies there, as SVG has it.
// The size is in pixels.
func (s *scene) text(x, y float64, color string, size float64, anchor, text string) {
	s.shapes = append(s.shapes, shape{points: [][2]float64{{x, y}}, color: color, size: size, anchor: anchor, text: text})
}

// rect fills a rectangle by its left upper corner and its size.
func (s *scene) rect(x, y, w, h float64, color string) {
	s.shapes = append(s.shapes, shape{points: [][2]float64{{x, y}, {x + w, y}, {x + w, y + h}, {x, y + h}}, color: color})
}

// colorOf returns the colour of the i-th kind.
func colorOf(i int) string { return "s" + strconv.Itoa(i%8) }

// wide estimates the width of a text, a little above that of common fonts without serifs, because
// browsers choose the font.
func wide(text string, size float64) float64 { return 0.56 * size * float64(len([]rune(text))) }

// shorten cuts a text to a width.
func shorten(text string, size, width float64) string {
	r := []rune(text)
	if most := int(width / (0.56 * size)); len(r) > max(most, 2) {
		return string(r[:max(most, 2)-1]) + "…"
	}
	return text
}

const (
	small = 12.0 // px, of all texts but the title
	large = 14.0
)

// legend writes the names of series and returns where the chart may begin below it.
func (s *scene) legend(title string, names []string) float64 {
	s.text(8, 20, "fg", large, "start", shorten(title, large, s.w-16))
	x, y := 8.0, 38.0
	for i, name := range names {
		name = shorten(name, small, s.w-40)
		if width := wide(name, small) + 30; x > 8 && x+width > s.w {
			x, y = 8, y+17
		}
		s.line(colorOf(i), 3, [2]float64{x, y - 4}, [2]float64{x + 14, y - 4})
		s.text(x+20, y, "fg", small, "start", name)
		x += wide(name, small) + 34
	}
	if len(names) == 0 {
		y -= 12
	}
	return y + 14
}

// ticks are at most about n round places, of a step that is 1, 2 or 5 times a power of ten (Heckbert 1990), from lo to hi.
func ticks(lo, hi float64, n int) (out []float64) {
	if !(hi > lo) || math.IsInf(hi-lo, 0) {
		return []float64{lo}
	}
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if f*step*float64(n) >= (hi-lo)*0.999 {
			step *= f
			break
		}
	}
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi+1e-9*step && len(out) <= 3*n; k++ {
		out = append(out, k*step)
	}
	return out
}

// number writes a figure shortly, with four digits at most and from 10,000 on with k, M, G or T, so that a scale's numbers have room.
// What is no number is a dash.
func number(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	if math.Abs(v) >= 1e15 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if math.Abs(v) >= u.size {
			if u.name == "k" {
				u.size = 1e3
			}
			return trim(strconv.FormatFloat(v/u.size, 'f', 2, 64)) + u.name
		}
	}
	if math.Abs(v) >= 0.01 || v == 0 {
		return trim(strconv.FormatFloat(v, 'f', max(0, 3-int(math.Log10(max(1, math.Abs(v))))), 64))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// trim leaves out zeros behind the last digit after the point, and the point where nothing follows.
// A zero has no sign.
func trim(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}
