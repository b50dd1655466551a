package data

import "github.com/ringo-ml/ringo/internal/data/prng"

// syntheticCIFAR draws two sets of 32x32 colour images in CIFAR-10's format,
// channels last: ten classes of shapes (disc,
// square, triangle, ring, cross, …) of any place and size on a shaded ground
// with noise. Its colour hints at the class three times in five and misleads
// otherwise. The drawing is in integers and image i depends on (seed, set, i)
// alone. About 15 us per image.
func syntheticCIFAR(c Config) *Dataset {
	draw := func(set uint64, n int) *records {
		out := &records{make([]uint8, n*3*cifarPlane), make([]int32, n)}
		for i := range n {
			r := prng.New(c.Seed^shapesStream, set, uint64(i))
			out.labels[i] = int32(r.Below(cifarClasses))
			drawShape(out.pix[i*3*cifarPlane:][:3*cifarPlane], int(out.labels[i]), &r)
		}
		return out
	}
	s, err := cifarSet(draw(0, or(c.TrainLimit, 50000)), draw(1, or(c.EvalLimit, 10000)), shapeNames())
	if err != nil {
		panic(err) // limits are positive or stand for a positive number
	}
	return s
}

// Streams of the generator, so that sets of one seed share nothing.
const (
	shapesStream  = 0xbb67ae8584caa73b
	stripesStream = 0x3c6ef372fe94f82b
)

func shapeNames() []string {
	return []string{"disc", "square", "triangle", "ring", "plus", "cross", "rows", "columns", "diamond", "checks"}
}

// palette are ten colours that noise does not confuse.
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
	cx, cy := r.Between(radius, cifarSide-1-radius), r.Between(radius, cifarSide-1-radius)
	for y := range cifarSide {
		for x := range cifarSide {
			colour := ground
			if inShape(class, x-cx, y-cy, radius) {
				colour = ink
			}
			noise := r.Next()
			for c, v := range colour {
				v += slope[c]*(x+y-cifarSide) + int(noise&63) + int(noise>>6&63) - 63
				noise >>= 12
				pix[(y*cifarSide+x)*3+c] = uint8(min(max(v, 0), 255))
			}
		}
	}
}

// inShape says whether a point, relative to the centre, lies on the shape. All
// shapes are their own mirror images, for the augmentation mirrors them.
func inShape(class, dx, dy, r int) bool {
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

// stripes is the source of synthetic images of any size, drawn when they are
// asked for: class k is the direction k%10 of stripes between the colours k/10
// and k/10+3, of any phase and width, with noise. About 0.5 ms per image of
// 224x224. Nothing is augmented: images are mirrored nowhere, for that would
// change their class.
type stripes struct {
	n     int
	shape Shape
	seed  uint64
	set   uint64
	table [][256]float32
}

const stripeClasses = 100

// syntheticImages is the twin of an ImageNet-like set.
func syntheticImages(c Config) *Dataset {
	size := or(c.ImageSize, 224)
	source := func(set uint64, n int) Source {
		return &stripes{n, Shape{Values: []int{size, size, 3}, Labels: 1}, c.Seed ^ stripesStream, set, imagenetStatistics().tables()}
	}
	return &Dataset{Train: source(0, or(c.TrainLimit, 10000)), Eval: source(1, or(c.EvalLimit, 1000)), Classes: stripeClasses}
}

func (s *stripes) Len() int     { return s.n }
func (s *stripes) Shape() Shape { return s.shape }

func (s *stripes) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(s.shape, len(idx))
	size := s.shape.Size()
	for i, n := range idx {
		if n < 0 || int(n) >= s.n {
			panic("data: index out of range")
		}
		r := prng.New(s.seed, s.set, uint64(n))
		class := r.Below(stripeClasses)
		b.Labels[i] = int32(class)
		s.draw(b.Values[i*size:][:size], class, &r)
	}
	return nil
}

func (s *stripes) draw(dst []float32, class int, r *prng.Rand) {
	cos := [10]int{1000, 951, 809, 588, 309, 0, -309, -588, -809, -951} // of 18 degrees each
	sin := [10]int{0, 309, 588, 809, 951, 1000, 951, 809, 588, 309}
	side := s.shape.Values[0]
	colours := palette()
	from, to := colours[class/10], colours[(class/10+3)%10]
	for c := range from {
		from[c] += r.Between(-20, 20)
		to[c] += r.Between(-20, 20)
	}
	periods := r.Between(3, 7) // across the image; a period is 512 units
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
