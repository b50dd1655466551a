package images

// pen draws smooth strokes on a canvas by stamping discs along a curve.
type pen struct {
	canvas []uint8
	points []point // control points of the stroke being drawn
	soft   int     // width of the grey edge, 1/256 pixel
	slope  int     // slope of the grey edge, 1/256 grey per 1/256 pixel
	// root[i] is the square root of i, with i in (1/16 pixel)^2 and the root in 1/256 pixel: a
	// table instead of a square root per pixel. Squares reach 5 pixels in both directions; the
	// widest pen needs 4.
	root [rootSize]uint16
}

// rootSize is a power of two: a masked index needs no bounds check.
const rootSize = 1 << 14

func newPen() *pen {
	p := new(pen)
	for i, r := 0, 0; i < rootSize; i++ {
		for (r+1)*(r+1) <= i*256 {
			r++
		}
		p.root[i] = uint16(r)
	}
	return p
}

// stroke draws the Catmull-Rom curve through the control points (Catmull & Rom 1974), with a radius
// from r0 to r1.
func (p *pen) stroke(r0, r1 int) {
	last := len(p.points) - 1
	radius := r0
	for i := range last {
		a, b := p.points[max(i-1, 0)], p.points[i]
		c, d := p.points[i+1], p.points[min(i+2, last)]
		end := r0 + (r1-r0)*(i+1)/last
		dx, dy := abs(c.x-b.x), abs(c.y-b.y)
		steps := (max(dx, dy)+min(dx, dy)/2)/(pixel/2) + 1 // half a pixel each
		step := 256 * 256 / steps
		for k := range steps {
			t := k * step >> 8
			p.stamp(catmull(a.x, b.x, c.x, d.x, t), catmull(a.y, b.y, c.y, d.y, t), radius+(end-radius)*t>>8)
		}
		radius = end
	}
	p.stamp(p.points[last].x, p.points[last].y, r1)
}

// catmull evaluates the curve between b and c at t/256.
func catmull(a, b, c, d, t int) int {
	cubic := -a + 3*b - 3*c + d
	square := 2*a - 5*b + 4*c - d
	return b + (((cubic*t>>8+square)*t>>8+c-a)*t)>>9
}

// stamp darkens the canvas with a disc: full inside, none beyond the soft edge.
func (p *pen) stamp(x, y, radius int) {
	outer := radius + p.soft/2
	x0, x1 := max((x-outer)>>8, 0), min((x+outer)>>8, mnistSide-1)
	y0, y1 := max((y-outer)>>8, 0), min((y+outer)>>8, mnistSide-1)
	if x0 > x1 {
		return // outside the canvas
	}
	slope := p.slope
	for py := y0; py <= y1; py++ {
		dy := py*pixel + pixel/2 - y
		row := p.canvas[py*mnistSide+x0 : py*mnistSide+x1+1]
		dx := x0*pixel + pixel/2 - x
		for i, old := range row {
			d := outer - int(p.root[(dx*dx+dy*dy)>>8&(rootSize-1)])
			dx += pixel
			// max and min compile to moves: a branch would be mispredicted.
			row[i] = uint8(max(min(d*slope>>8, 255), int(old)))
		}
	}
}

func abs(x int) int { return max(x, -x) }
