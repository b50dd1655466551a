package chart

import "math"

// plot is where a chart's curves are, and what it shows there.
type plot struct {
	x0, y0, x1, y1     float64 // px
	left, right        float64 // values
	lowest, highest    float64
	perX, perY         float64
	narrow             bool
	xTicks, yTicks     []float64
	xFormat, valueText func(float64) string
}

// x and y are where a value is drawn. The vertical axis of a picture goes down, that of values up.
func (p *plot) x(v float64) float64 { return p.x0 + (v-p.left)*p.perX }
func (p *plot) y(v float64) float64 { return p.y1 - (v-p.lowest)*p.perY }

// bounds are what the curves cover; false without any number.
func (l Lines) bounds() (left, right, lowest, highest float64, any bool) {
	left, lowest = math.Inf(1), math.Inf(1)
	right, highest = math.Inf(-1), math.Inf(-1)
	for _, s := range l.Series {
		for _, p := range s.Points {
			if !p.finite() {
				continue
			}
			any = true
			left, right = min(left, p.X), max(right, p.X)
			lowest, highest = min(lowest, p.Low), max(highest, p.High)
		}
	}
	return left, right, lowest, highest, any
}

// finite says that a point can be drawn: differences of larger numbers are none any more.
func (p Point) finite() bool {
	for _, v := range [...]float64{p.X, p.Y, p.Low, p.High} {
		if !(math.Abs(v) < 1e100) {
			return false
		}
	}
	return true
}

// widened makes room around a range, and some where it is one value.
func widened(lo, hi, by float64) (float64, float64) {
	if hi > lo {
		return lo - by*(hi-lo), hi + by*(hi-lo)
	}
	room := max(math.Abs(lo)*0.1, 1e-9)
	return lo - room, hi + room
}

// draw lays out the legend, then the axes below it, the curves in their order, so that later ones lie over earlier, and at last what is
// told under the pointer, which lies over everything. Points that cannot be drawn are left out, and a chart without any says so.
func (l Lines) draw(w, h float64) *scene {
	s := &scene{w: w, h: h}
	var names []string
	for _, x := range l.Series {
		names = append(names, x.Label)
	}
	top := s.legend(l.Title, names)
	left, right, lowest, highest, any := l.bounds()
	if !any {
		s.text(w/2, h/2, "muted", small, "middle", "no figures")
		return s
	}
	p := plot{y0: top + 12, y1: h - 40, left: left, right: right, narrow: w < 500, valueText: l.value, xFormat: number}
	if l.FromZero {
		p.left = min(left, 0)
	}
	if p.right == p.left {
		p.left, p.right = widened(left, right, 0)
	}
	p.lowest, p.highest = widened(lowest, highest, 0.05)
	// What is never below 0, such as a loss or a rate, has no axis below it because of the room around its curves.
	if lowest >= 0 {
		p.lowest = max(p.lowest, 0)
	}
	p.axes(s, l)
	for i, x := range l.Series {
		p.curve(s, x, i)
	}
	p.tips(s, l)
	return s
}

// axes settles the scales and draws the grid and its numbers.
func (p *plot) axes(s *scene, l Lines) {
	p.yTicks = ticks(p.lowest, p.highest, max(2, int((p.y1-p.y0)/45)))
	margin := 0.0
	for _, v := range p.yTicks {
		margin = max(margin, wide(p.valueText(v), small))
	}
	p.x0, p.x1 = margin+16, s.w-20
	p.perX, p.perY = (p.x1-p.x0)/(p.right-p.left), (p.y1-p.y0)/(p.highest-p.lowest)
	for _, v := range p.yTicks {
		s.line("grid", 1, [2]float64{p.x0, p.y(v)}, [2]float64{p.x1, p.y(v)})
		s.text(p.x0-6, p.y(v)+4, "muted", small, "end", p.valueText(v))
	}
	p.xTicks = ticks(p.left, p.right, max(2, int((p.x1-p.x0)/70)))
	for _, v := range p.xTicks {
		s.line("grid", 1, [2]float64{p.x(v), p.y1}, [2]float64{p.x(v), p.y1 + 4})
		anchor := "middle"
		// The last number would else be cut at the edge.
		if half := wide(p.xFormat(v), small) / 2; p.x(v)+half > s.w {
			anchor = "end"
		}
		s.text(p.x(v), p.y1+17, "muted", small, anchor, p.xFormat(v))
	}
	s.text(p.x0, p.y0-6, "muted", small, "start", shorten(l.YLabel, small, s.w-p.x0))
	s.text(p.x1, p.y1+33, "muted", small, "end", shorten(l.XLabel, small, s.w-16))
}

// curve draws a series: its spread, then its means, a dot where one stands alone.
func (p *plot) curve(s *scene, x Series, i int) {
	for _, part := range unbroken(x.Points) {
		var mean, low, high [][2]float64
		spread := false
		for _, v := range part {
			spread = spread || v.Low < v.High
			mean = append(mean, [2]float64{p.x(v.X), p.y(v.Y)})
			low = append([][2]float64{{p.x(v.X), p.y(v.Low)}}, low...)
			high = append(high, [2]float64{p.x(v.X), p.y(v.High)})
		}
		if spread {
			s.shapes = append(s.shapes, shape{points: append(high, low...), color: colorOf(i), alpha: 0.18})
		}
		if len(part) == 1 {
			at := mean[0]
			s.rect(at[0]-3, at[1]-3, 6, 6, colorOf(i))
			continue
		}
		s.shapes = append(s.shapes, shape{points: mean, color: colorOf(i), width: 2, alpha: 1, dash: i >= colors})
	}
}

// unbroken cuts points where one has no number.
func unbroken(points []Point) (out [][]Point) {
	begin := 0
	for i := 0; i <= len(points); i++ {
		if i == len(points) || !points[i].finite() {
			if i > begin {
				out = append(out, points[begin:i])
			}
			begin = i + 1
		}
	}
	return out
}

// tips cuts the plot into stretches, in each of which the pointer finds the figures of all curves there.
func (p *plot) tips(s *scene, l Lines) {
	// Each stretch is an element of the page, and a finger needs about 12 px.
	stretches := 60
	if p.narrow {
		stretches = 24
	}
	width := (p.x1 - p.x0) / float64(stretches)
	for i := range stretches {
		x0 := p.x0 + float64(i)*width
		t := tip{x0: x0, x1: x0 + width, y0: p.y0, y1: p.y1, at: math.NaN()}
		middle := p.left + (x0+width/2-p.x0)/p.perX
		// A curve that ended long before, or has its next point far away, has no figure here.
		reach := max(width, (p.x1-p.x0)/12) / p.perX
		for n, series := range l.Series {
			v, ok := nearest(series.Points, middle)
			if !ok || math.Abs(v.X-middle) > reach {
				continue
			}
			if math.IsNaN(t.at) {
				t.at, t.head = p.x(v.X), l.XLabel+" "+p.xFormat(v.X)
			}
			text := series.Label + ": " + p.valueText(v.Y)
			if v.Low < v.High {
				text += " (" + p.valueText(v.Low) + " to " + p.valueText(v.High) + ")"
			}
			t.rows = append(t.rows, tipRow{colorOf(n), text})
		}
		if len(t.rows) > 0 {
			s.tips = append(s.tips, t)
		}
	}
}

// nearest is the point that is nearest to x.
func nearest(points []Point, x float64) (best Point, ok bool) {
	for _, p := range points {
		if p.finite() && (!ok || math.Abs(p.X-x) < math.Abs(best.X-x)) {
			best, ok = p, true
		}
	}
	return best, ok
}
