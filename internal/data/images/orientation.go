package images

import (
	"bytes"
	"encoding/binary"
	"image"
)

// orientation is the rotation of an image for display, as cameras note it: EXIF's tag 0x0112, 1 to
// 8. 1 and unknown values mean no rotation.
//
// From 5 on, rows and columns are exchanged. 2, 3, 7 and 8 mirror the stored columns, 3, 4, 6 and 7
// the stored rows.
type orientation uint8

func (o orientation) turned() bool { return o >= 2 && o <= 8 }
func (o orientation) swaps() bool  { return o >= 5 && o <= 8 }

// size returns the size of a rotated image of w x h.
func (o orientation) size(w, h int) (int, int) {
	if o.swaps() {
		return h, w
	}
	return w, h
}

// stored returns the position, in a stored image of w x h, of a pixel of the rotated image.
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

// box returns the part of a stored image of w x h that becomes part b of the rotated image.
func (o orientation) box(b image.Rectangle, w, h int) image.Rectangle {
	x0, y0 := o.stored(b.Min.X, b.Min.Y, w, h)
	x1, y1 := o.stored(b.Max.X-1, b.Max.Y-1, w, h)
	return image.Rect(min(x0, x1), min(y0, y1), max(x0, x1)+1, max(y0, y1)+1)
}

// turn rotates RGB bytes, stored as w x h, into dst.
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

// orientationOf returns the orientation in the EXIF data of a JPEG or a PNG. Damaged EXIF data are
// ignored.
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
		return s.marker != jpegScan // EXIF data precede the image
	})
	return o
}

// tiffOrientation returns the tag in the first directory of TIFF data; 0 without a tag.
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
