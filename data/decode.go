package data

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
)

// maxPixels is the largest image that is decoded: what a header claims is
// allocated before the content is seen.
const maxPixels = 1 << 26

// decodeImage decodes a JPEG or a PNG, known by its first bytes. A fault is a
// *FormatError; of where in the file it lies the decoders say nothing, so the
// offset is what they had read.
func decodeImage(path string, encoded []byte) (image.Image, error) {
	decode, header := jpeg.Decode, jpeg.DecodeConfig
	switch {
	case bytes.HasPrefix(encoded, []byte("\xff\xd8")):
	case bytes.HasPrefix(encoded, []byte("\x89PNG\r\n\x1a\n")):
		decode, header = png.Decode, png.DecodeConfig
	case len(encoded) == 0:
		return nil, &FormatError{path, 0, "empty file, want a JPEG or a PNG"}
	default:
		return nil, &FormatError{path, 0, fmt.Sprintf("neither a JPEG nor a PNG: it begins with % x", encoded[:min(len(encoded), 8)])}
	}
	r := bytes.NewReader(encoded)
	cfg, err := header(r)
	if err == nil && (cfg.Width < 1 || cfg.Height < 1 || cfg.Width > maxPixels/cfg.Height) {
		return nil, &FormatError{path, 0, fmt.Sprintf("impossible size %dx%d, want 1 to %d pixels", cfg.Width, cfg.Height, maxPixels)}
	}
	if err == nil {
		r.Reset(encoded)
		var im image.Image
		if im, err = decode(r); err == nil {
			return im, nil
		}
	}
	at := int64(len(encoded) - r.Len())
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, &FormatError{path, at, "truncated: the image ends here"}
	}
	return nil, &FormatError{path, at, "damaged: " + err.Error()}
}

// rgb writes the box of an image to dst, three bytes per pixel in rows. Grey
// becomes three equal channels; transparency is ignored, as PIL does.
func rgb(dst []uint8, im image.Image, box image.Rectangle) {
	switch im := im.(type) {
	case *image.YCbCr:
		rgbYCbCr(dst, im, box)
	case *image.Gray:
		for y := box.Min.Y; y < box.Max.Y; y++ {
			row := im.Pix[im.PixOffset(box.Min.X, y):][:box.Dx()]
			for _, v := range row {
				dst[0], dst[1], dst[2] = v, v, v
				dst = dst[3:]
			}
		}
	case *image.RGBA: // the PNG decoder's choice for opaque colour
		rgbFour(dst, im.Pix, im.Stride, im.PixOffset(box.Min.X, box.Min.Y), box)
	case *image.NRGBA:
		rgbFour(dst, im.Pix, im.Stride, im.PixOffset(box.Min.X, box.Min.Y), box)
	default:
		for y := box.Min.Y; y < box.Max.Y; y++ {
			for x := box.Min.X; x < box.Max.X; x++ {
				c := color.NRGBAModel.Convert(im.At(x, y)).(color.NRGBA)
				dst[0], dst[1], dst[2] = c.R, c.G, c.B
				dst = dst[3:]
			}
		}
	}
}

func rgbFour(dst, pix []uint8, stride, offset int, box image.Rectangle) {
	for range box.Dy() {
		for x := range box.Dx() {
			src := pix[offset+4*x:][:3]
			dst[0], dst[1], dst[2] = src[0], src[1], src[2]
			dst = dst[3:]
		}
		offset += stride
	}
}

// rgbYCbCr converts as the image/color package does (JFIF).
func rgbYCbCr(dst []uint8, im *image.YCbCr, box image.Rectangle) {
	for y := box.Min.Y; y < box.Max.Y; y++ {
		luma := im.Y[im.YOffset(box.Min.X, y):][:box.Dx()]
		row := dst[:3*len(luma)]
		dst = dst[len(row):]
		if im.SubsampleRatio == image.YCbCrSubsampleRatio444 {
			o := im.COffset(box.Min.X, y)
			cb, cr := im.Cb[o:][:len(luma)], im.Cr[o:][:len(luma)]
			for i, v := range luma {
				row[3*i], row[3*i+1], row[3*i+2] = color.YCbCrToRGB(v, cb[i], cr[i])
			}
			continue
		}
		for i, v := range luma {
			o := im.COffset(box.Min.X+i, y)
			row[3*i], row[3*i+1], row[3*i+2] = color.YCbCrToRGB(v, im.Cb[o], im.Cr[o])
		}
	}
}
