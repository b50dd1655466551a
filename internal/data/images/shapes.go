package images

import "github.com/ringo-ml/ringo/internal/data/prng"

// Random streams of the generators, independent for one seed.
const (
	shapesStream  = 0xbb67ae8584caa73b
	stripesStream = 0x3c6ef372fe94f82b
)

func shapeNames() []string {
	return []string{"disc", "square", "triangle", "ring", "plus", "cross", "rows", "columns", "diamond", "checks"}
}

// palette returns ten colours that stay distinct under noise.
func palette() [10][3]int {
	return [10][3]int{
		{220, 60, 50}, {60, 180, 75}, {70, 90, 220}, {230, 210, 50}, {220, 130, 40},
		{150, 60, 190}, {70, 210, 220}, {230, 80, 200}, {150, 100, 60}, {225, 225, 225},
	}
}

func drawShape(pix []uint8, class int, r *prng.Rand) {
	colours := palette()
	hint := class
	if r.Below(5) >= 3 {
		hint = r.Below(len(colours))
	}
	ink := colours[hint]
	var ground, slope [3]int
	for c := range ground {
		ink[c] += r.Between(-30, 30)
		ground[c], slope[c] = r.Between(30, 160), r.Between(-2, 2)
	}
	radius := r.Between(6, 12)
	cx, cy := r.Between(radius, CIFARSide-1-radius), r.Between(radius, CIFARSide-1-radius)
	for y := range CIFARSide {
		for x := range CIFARSide {
			colour := ground
			if InShape(class, x-cx, y-cy, radius) {
				colour = ink
			}
			noise := r.Next()
			for c, v := range colour {
				v += slope[c]*(x+y-CIFARSide) + int(noise&63) + int(noise>>6&63) - 63
				noise >>= 12
				pix[(y*CIFARSide+x)*3+c] = uint8(min(max(v, 0), 255))
			}
		}
	}
}

// InShape reports whether a point, relative to the centre, is on the shape. All shapes are
// symmetric, because augmentation mirrors images.
func InShape(class, dx, dy, r int) bool {
	ax, ay := max(dx, -dx), max(dy, -dy)
	inside := ax <= r && ay <= r
	square := dx*dx + dy*dy
	switch class {
	case 0:
		return square <= r*r
	case 1:
		return inside
	case 2:
		return inside && 2*ax <= dy+r
	case 3:
		return square <= r*r && 3*square >= r*r
	case 4:
		return inside && min(ax, ay) <= r/3
	case 5:
		return inside && max(ax-ay, ay-ax) <= r/3
	case 6:
		return inside && ay/2%2 == 0
	case 7:
		return inside && ax/2%2 == 0
	case 8:
		return ax+ay <= r
	}
	return inside && (ax/3+ay/3)%2 == 0
}

// SyntheticCIFAR draws two sets of 32x32 colour images in CIFAR-10's format, channels last: ten
// classes of shapes (disc, square, triangle, ring, cross, …) of any position and size on a shaded
// ground with noise. The colour suggests the class three times in five and misleads otherwise. The
// drawing is in integers, and image i depends on (seed, set, i) alone. Cost: 15 us per image.
func SyntheticCIFAR(seed uint64, train, eval int) *CIFAR {
	draw := func(set uint64, n int) *Records {
		out := &Records{make([]uint8, n*3*CIFARPlane), make([]int32, n)}
		for i := range n {
			r := prng.New(seed^shapesStream, set, uint64(i))
			out.Labels[i] = int32(r.Below(cifarClasses))
			drawShape(out.Pix[i*3*CIFARPlane:][:3*CIFARPlane], int(out.Labels[i]), &r)
		}
		return out
	}
	return &CIFAR{Train: draw(0, train), Eval: draw(1, eval), Classes: shapeNames()}
}

// Stripes draws synthetic images of any size. Class k is the direction k%10 of stripes between the
// colours k/10 and k/10+3, of any phase and width, with noise. Cost: 0.5 ms per image of 224x224.
// Images are not augmented, because a mirrored image is of another class.
type Stripes struct {
	side  int
	seed  uint64
	set   uint64
	table [][256]float32
}

// StripeClasses is the number of classes of Stripes.
const StripeClasses = 100

// NewStripes returns the images of side x side of a set.
func NewStripes(side int, seed, set uint64) *Stripes {
	return &Stripes{side, seed ^ stripesStream, set, ImageNetStatistics().Tables()}
}

// Draw writes image n, normalised, and returns the class.
func (s *Stripes) Draw(dst []float32, n int) int32 {
	r := prng.New(s.seed, s.set, uint64(n))
	class := r.Below(StripeClasses)
	s.draw(dst, class, &r)
	return int32(class)
}

func (s *Stripes) draw(dst []float32, class int, r *prng.Rand) {
	cos := [10]int{1000, 951, 809, 588, 309, 0, -309, -588, -809, -951} // steps of 18 degrees
	sin := [10]int{0, 309, 588, 809, 951, 1000, 951, 809, 588, 309}
	side := s.side
	colours := palette()
	from, to := colours[class/10], colours[(class/10+3)%10]
	for c := range from {
		from[c] += r.Between(-20, 20)
		to[c] += r.Between(-20, 20)
	}
	periods := r.Between(3, 7) // periods per image side, of 512 units
	stepX, stepY := 512*periods*cos[class%10]/side, 512*periods*sin[class%10]/side
	phase := r.Below(512 * 1000)
	for y := range side {
		at := phase + y*stepY
		for x := range side {
			wave := (at / 1000) & 511
			if wave > 255 {
				wave = 511 - wave
			}
			noise := r.Next()
			out := dst[(y*side+x)*3:][:3]
			for c := range out {
				v := from[c] + (to[c]-from[c])*wave>>8 + int(noise&63) + int(noise>>6&63) - 63
				noise >>= 12
				out[c] = s.table[c][min(max(v, 0), 255)]
			}
			at += stepX
		}
	}
}
