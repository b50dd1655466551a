package chart

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"strconv"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// rgb is a colour of the screen's usual space, as CSS writes it.
type rgb [3]uint8

// The colours of series tell them apart for people who see colours otherwise, too (after Okabe and Ito, 2008), with enough contrast
// to the ground of each theme.
var (
	light = map[string]rgb{
		"bg": {255, 255, 255}, "fg": {28, 33, 40}, "muted": {93, 103, 115}, "grid": {224, 228, 233},
		"s0": {0, 114, 178}, "s1": {213, 94, 0}, "s2": {0, 140, 104}, "s3": {190, 90, 150}, "s4": {176, 128, 0}, "s5": {60, 150, 200}, "s6": {110, 80, 180}, "s7": {85, 85, 85},
	}
	dark = map[string]rgb{
		"bg": {20, 24, 30}, "fg": {226, 231, 237}, "muted": {150, 160, 172}, "grid": {48, 55, 65},
		"s0": {86, 180, 233}, "s1": {240, 130, 50}, "s2": {40, 190, 145}, "s3": {225, 140, 190}, "s4": {230, 190, 60}, "s5": {120, 150, 255}, "s6": {180, 150, 245}, "s7": {180, 180, 180},
	}
)

// names are those of the colours, in the order in which a theme's CSS has them: ground, letters, small letters, lines behind the
// curves, then the series.
func names() []string {
	out := []string{"bg", "fg", "muted", "grid"}
	for i := range colors {
		out = append(out, "s"+strconv.Itoa(i))
	}
	return out
}

// regular is the font of PNG files, parsed once: it never changes.
var regular = sync.OnceValues(func() (*opentype.Font, error) { return opentype.Parse(goregular.TTF) })

// PNG writes a chart of a size in light or dark colours, with so many pixels for each of it.
func PNG(to io.Writer, c Chart, w, h, scale float64, inDark bool) error {
	s := c.draw(w, h)
	f, err := regular()
	if err != nil {
		return fmt.Errorf("chart: the font: %w", err)
	}
	p := painter{scale: scale, theme: light, font: f, faces: map[float64]font.Face{}}
	if inDark {
		p.theme = dark
	}
	p.img = image.NewRGBA(image.Rect(0, 0, int(math.Ceil(s.w*scale)), int(math.Ceil(s.h*scale))))
	draw.Draw(p.img, p.img.Bounds(), image.NewUniform(p.color("bg", 1)), image.Point{}, draw.Src)
	for _, x := range s.shapes {
		if err := p.shape(x); err != nil {
			return fmt.Errorf("chart: %w", err)
		}
	}
	return png.Encode(to, p.img)
}

// painter draws shapes into an image.
type painter struct {
	img   *image.RGBA
	scale float64
	theme map[string]rgb
	font  *opentype.Font
	faces map[float64]font.Face
	// raster is the one of the shape that is painted, whose left upper corner is at a place of the image.
	raster vector.Rasterizer
	at     [2]float64
}

// color is a named colour of the theme, as opaque as alpha says, from 0 to 1.
func (p *painter) color(name string, alpha float64) color.Color {
	c := p.theme[name]
	return color.NRGBA{c[0], c[1], c[2], uint8(math.Round(255 * alpha))}
}

// shape paints one shape over what is there.
func (p *painter) shape(x shape) error {
	switch {
	case x.text != "":
		return p.text(x)
	case x.width > 0:
		p.fill(x, func(z *vector.Rasterizer) { p.stroke(z, x) })
	default:
		p.fill(x, func(z *vector.Rasterizer) { p.path(z, x.points) })
	}
	return nil
}

// fill paints what is drawn into a rasterizer, which has the size of the shape alone: most are small.
func (p *painter) fill(x shape, path func(*vector.Rasterizer)) {
	lo, hi := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{}
	for _, at := range x.points {
		for i, v := range at {
			lo[i], hi[i] = min(lo[i], (v-x.width)*p.scale), max(hi[i], (v+x.width)*p.scale)
		}
	}
	in := image.Rect(int(math.Floor(lo[0])), int(math.Floor(lo[1])), int(math.Ceil(hi[0]))+1, int(math.Ceil(hi[1]))+1).Intersect(p.img.Bounds())
	if in.Empty() {
		return
	}
	p.at = [2]float64{float64(in.Min.X), float64(in.Min.Y)}
	p.raster.Reset(in.Dx(), in.Dy())
	path(&p.raster)
	p.raster.Draw(p.img, in, image.NewUniform(p.color(x.color, x.alpha)), image.Point{})
}

// path adds a closed outline.
func (p *painter) path(z *vector.Rasterizer, points [][2]float64) {
	for i, at := range points {
		x, y := float32(at[0]*p.scale-p.at[0]), float32(at[1]*p.scale-p.at[1])
		if i == 0 {
			z.MoveTo(x, y)
			continue
		}
		z.LineTo(x, y)
	}
	z.ClosePath()
}

// stroke adds a line as an outline for each of its stretches and a disc at each point, all in one sense: what they have in common
// is painted once.
func (p *painter) stroke(z *vector.Rasterizer, x shape) {
	half := x.width / 2
	for _, l := range dashes(x) {
		a, b := l[0], l[1]
		dx, dy := b[0]-a[0], b[1]-a[1]
		long := math.Hypot(dx, dy)
		if long == 0 {
			continue
		}
		nx, ny := -dy/long*half, dx/long*half
		p.path(z, [][2]float64{{a[0] - nx, a[1] - ny}, {b[0] - nx, b[1] - ny}, {b[0] + nx, b[1] + ny}, {a[0] + nx, a[1] + ny}})
		// Lines of the grid are upright or level, and need no round ends.
		if x.width > 1 {
			p.path(z, disc(b, half))
		}
	}
}

// disc is a circle's outline, in the sense of stroke's stretches.
func disc(at [2]float64, r float64) (out [][2]float64) {
	const corners = 12
	for i := range corners {
		a := 2 * math.Pi * float64(i) / corners
		out = append(out, [2]float64{at[0] + r*math.Cos(a), at[1] + r*math.Sin(a)})
	}
	return out
}

// dashes are the stretches of a line, cut where it is dashed: 6 px of 10 are drawn.
func dashes(x shape) (out [][2][2]float64) {
	gone := 0.0
	for i := 1; i < len(x.points); i++ {
		a, b := x.points[i-1], x.points[i]
		if !x.dash {
			out = append(out, [2][2]float64{a, b})
			continue
		}
		long := math.Hypot(b[0]-a[0], b[1]-a[1])
		at := func(d float64) [2]float64 { return [2]float64{a[0] + (b[0]-a[0])*d/long, a[1] + (b[1]-a[1])*d/long} }
		for d := 0.0; d < long; {
			phase := math.Mod(gone, 10)
			step := min(long-d, max(0.01, 10-phase))
			if phase < 6 {
				step = min(long-d, max(0.01, 6-phase))
				out = append(out, [2][2]float64{at(d), at(d + step)})
			}
			d, gone = d+step, gone+step
		}
	}
	return out
}

// text writes a text with the font of Go's own. A face is made once for each size; its widths are the font's own, so that what
// ends at a place does so to the pixel, while the layout has reckoned with an estimate.
func (p *painter) text(x shape) error {
	face, ok := p.faces[x.size]
	if !ok {
		var err error
		if face, err = opentype.NewFace(p.font, &opentype.FaceOptions{Size: x.size * p.scale, DPI: 72, Hinting: font.HintingNone}); err != nil {
			return err
		}
		p.faces[x.size] = face
	}
	d := font.Drawer{Dst: p.img, Src: image.NewUniform(p.color(x.color, 1)), Face: face}
	left := x.points[0][0] * p.scale
	switch width := float64(d.MeasureString(x.text)) / 64; x.anchor {
	case "middle":
		left -= width / 2
	case "end":
		left -= width
	}
	d.Dot = fixed.Point26_6{X: fixed.Int26_6(left * 64), Y: fixed.Int26_6(x.points[0][1] * p.scale * 64)}
	d.DrawString(x.text)
	return nil
}
