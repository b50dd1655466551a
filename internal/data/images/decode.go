package images

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"

	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// maxPixels limits the size of an image, because memory is allocated by the header.
const maxPixels = 1 << 26

// decodeImage decodes a JPEG or a PNG, recognised by the first bytes, and returns its orientation.
// An error is a *FormatError. The decoders report no position, so the offset is the number of bytes
// read. Decoding needs up to 24 bytes of memory per pixel.
func decodeImage(path string, encoded []byte) (image.Image, orientation, error) {
	decode, header := jpeg.Decode, jpeg.DecodeConfig
	isPNG := bytes.HasPrefix(encoded, pngMagic)
	switch {
	case bytes.HasPrefix(encoded, []byte("\xff\xd8")):
	case isPNG:
		decode, header = png.Decode, png.DecodeConfig
	case len(encoded) == 0:
		return nil, 0, datafile.Errorf(path, 0, "empty file, want a JPEG or a PNG")
	default:
		return nil, 0, datafile.Errorf(path, 0, "neither a JPEG nor a PNG: it begins with % x", encoded[:min(len(encoded), 8)])
	}
	r := bytes.NewReader(encoded)
	cfg, err := header(r)
	if err == nil {
		if problem := impossible(cfg, encoded); problem != "" {
			return nil, 0, datafile.Errorf(path, 0, "%s", problem)
		}
		r.Reset(encoded)
		var im image.Image
		if im, err = decode(r); err == nil {
			if isPNG {
				return im, orientationOf(encoded), nil
			}
			if at, problem := unsent(encoded); problem != "" {
				return nil, 0, datafile.Errorf(path, int64(at), "%s", problem)
			}
			return im, orientationOf(encoded), nil
		}
	}
	at := int64(len(encoded) - r.Len())
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, 0, datafile.Errorf(path, at, "truncated: the image ends here")
	}
	return nil, 0, datafile.Errorf(path, at, "%s", "damaged: "+err.Error())
}

// impossible returns why the size in a header cannot be right, or "", before memory is allocated.
func impossible(cfg image.Config, encoded []byte) string {
	if cfg.Width < 1 || cfg.Height < 1 || cfg.Width > maxPixels/cfg.Height {
		return fmt.Sprintf("impossible size %dx%d, want 1 to %d pixels", cfg.Width, cfg.Height, maxPixels)
	}
	// A JPEG has at least one bit per block of 8x8. Rows of a PNG are deflated.
	most := int64(len(encoded)) * 8 * 64
	if bytes.HasPrefix(encoded, pngMagic) {
		depth, channels := int64(encoded[24]), [8]int64{0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[encoded[25]&7]
		most = int64(len(encoded)) * datafile.MaxExpansion * 8 / max(1, depth*channels)
	}
	if pixels := int64(cfg.Width) * int64(cfg.Height); pixels > max(most, 64*64) {
		return fmt.Sprintf("impossible size %dx%d: a file of %d bytes has %d pixels at most", cfg.Width, cfg.Height, len(encoded), most)
	}
	return ""
}

// rgb writes a box of an image to dst, three bytes per pixel in rows. Grey becomes three equal
// channels; transparency is ignored, as in PIL.
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
	case *image.RGBA: // PNG decoder, opaque colour
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

// rgbYCbCr converts as package image/color (JFIF).
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
