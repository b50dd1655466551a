package images

import (
	"image"
	"image/color"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// Every kind of image that the decoders return becomes the same RGB as by the
// image's own colours.
func TestRGB(t *testing.T) {
	src := datatest.Colourful(13, 9, 1)
	grey, deep := image.NewGray(src.Rect), image.NewRGBA64(src.Rect)
	opaque := image.NewRGBA(src.Rect)
	paletted := image.NewPaletted(src.Rect, color.Palette{color.NRGBA{1, 2, 3, 255}, color.NRGBA{200, 100, 50, 255}})
	for y := range 9 {
		for x := range 13 {
			grey.Set(x, y, src.At(x, y))
			deep.Set(x, y, src.At(x, y))
			opaque.Set(x, y, src.At(x, y))
			paletted.Set(x, y, src.At(x, y))
		}
	}
	kinds := []image.Image{src, grey, deep, opaque, paletted}
	for _, ratio := range []image.YCbCrSubsampleRatio{image.YCbCrSubsampleRatio444, image.YCbCrSubsampleRatio420, image.YCbCrSubsampleRatio422} {
		im := image.NewYCbCr(src.Rect, ratio)
		copy(im.Y, datatest.Noise(len(im.Y)))
		copy(im.Cb, datatest.Noise(len(im.Cb)))
		copy(im.Cr, datatest.Noise(len(im.Cr)))
		kinds = append(kinds, im)
	}
	box := image.Rect(2, 1, 11, 9)
	for _, im := range kinds {
		got := make([]uint8, 3*box.Dx()*box.Dy())
		rgb(got, im, box)
		for y := range box.Dy() {
			for x := range box.Dx() {
				c := color.NRGBAModel.Convert(im.At(box.Min.X+x, box.Min.Y+y)).(color.NRGBA)
				if p := got[(y*box.Dx()+x)*3:][:3]; !slices.Equal(p, []uint8{c.R, c.G, c.B}) {
					t.Fatalf("%T (%d, %d): %v, want %v", im, x, y, p, c)
				}
			}
		}
	}
}

func BenchmarkDecodeCIFAR(b *testing.B) { // one 32x32 JPEG into memory
	p := Picture{Path: "x", Encoded: datatest.EncodeJPEG(datatest.Colourful(32, 32, 1))}
	dst := make([]uint8, 3*CIFARPlane)
	for b.Loop() {
		if err := decodeSmall(dst, &p); err != nil {
			b.Fatal(err)
		}
	}
}
