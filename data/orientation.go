package data

import (
	"bytes"
	"encoding/binary"
	"image"
)

// orientation says how an image is to be turned before it is shown, as cameras
// note it: EXIF's tag 0x0112, 1 to 8. 1 and what is not known: not at all.
//
// From 5 on, rows and columns change places. 2, 3, 7 and 8 mirror the columns of what
// is stored, 3, 4, 6 and 7 its rows.
type orientation uint8

func (o orientation) turned() bool { return o >= 2 && o <= 8 }
func (o orientation) swaps() bool  { return o >= 5 && o <= 8 }

// size is how large an image of w x h is when it is turned.
func (o orientation) size(w, h int) (int, int) {
	if o.swaps() {
		return h, w
	}
	return w, h
}

// stored is the place in an image of w x h of a pixel of the turned image.
func (o orientation) stored(x, y, w, h int) (int, int) {
	if o.swaps() {
		x, y = y, x
	}
	if o == 2 || o == 3 || o == 7 || o == 8 {
		x = w - 1 - x
	}
	if o == 3 || o == 4 || o == 6 || o == 7 {
		y = h - 1 - y
	}
	return x, y
}

// box is the part of an image of w x h that a part of the turned image shows.
func (o orientation) box(b image.Rectangle, w, h int) image.Rectangle {
	x0, y0 := o.stored(b.Min.X, b.Min.Y, w, h)
	x1, y1 := o.stored(b.Max.X-1, b.Max.Y-1, w, h)
	return image.Rect(min(x0, x1), min(y0, y1), max(x0, x1)+1, max(y0, y1)+1)
}

// turn writes RGB bytes, stored as w x h, turned to dst.
func (o orientation) turn(dst, src []uint8, w, h int) {
	tw, th := o.size(w, h)
	for y := range th {
		for x := range tw {
			sx, sy := o.stored(x, y, w, h)
			at := 3 * (sy*w + sx)
			dst[0], dst[1], dst[2] = src[at], src[at+1], src[at+2]
			dst = dst[3:]
		}
	}
}

// orientationOf is what the EXIF data of a JPEG or a PNG say. Damage in them is no fault of
// the image.
func orientationOf(encoded []byte) (o orientation) {
	if bytes.HasPrefix(encoded, pngMagic) {
		pngChunks(encoded, func(kind string, body []byte) bool {
			if kind == "eXIf" {
				o = tiffOrientation(body)
			}
			return kind != "eXIf"
		})
		return o
	}
	jpegSegments(encoded, func(s jpegSegment) bool {
		exif, ok := bytes.CutPrefix(s.body, []byte("Exif\x00\x00"))
		if s.marker == jpegApp1 && ok {
			o = tiffOrientation(exif)
			return false
		}
		return s.marker != jpegScan // EXIF data come before the image
	})
	return o
}

// tiffOrientation looks for the tag in the first directory of TIFF data; 0: it is not there.
func tiffOrientation(tiff []byte) orientation {
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case len(tiff) < 8:
		return 0
	case string(tiff[:4]) == "MM\x00*":
		order = binary.BigEndian
	case string(tiff[:4]) != "II*\x00":
		return 0
	}
	at := int64(order.Uint32(tiff[4:]))
	if at+2 > int64(len(tiff)) {
		return 0
	}
	entries := tiff[at+2:]
	for range order.Uint16(tiff[at:]) {
		const tag, short, size = 0x0112, 3, 12
		if len(entries) < size {
			return 0
		}
		if order.Uint16(entries) == tag {
			if order.Uint16(entries[2:]) != short || order.Uint32(entries[4:]) != 1 || order.Uint16(entries[8:]) > 8 {
				return 0
			}
			return orientation(order.Uint16(entries[8:]))
		}
		entries = entries[size:]
	}
	return 0
}

var pngMagic = []byte("\x89PNG\r\n\x1a\n") // never written

// pngChunks calls visit with the chunks of a PNG until it returns false.
func pngChunks(encoded []byte, visit func(kind string, body []byte) bool) {
	for rest := encoded[len(pngMagic):]; len(rest) >= 12; {
		n := int64(binary.BigEndian.Uint32(rest))
		if n > int64(len(rest)-12) || !visit(string(rest[4:8]), rest[8:8+n]) {
			return
		}
		rest = rest[12+n:]
	}
}
