package images

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// segment is one of a JPEG.
func segment(marker byte, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(body)+2)), body...)
}

// progressive is a JPEG of 8x8 grey pixels, all 128: a table of ones, two Huffman tables with
// the one code 0, for a difference of 0 and for a block without coefficients, and of the usual
// five scans those that are wanted.
func progressive(scans ...int) []byte {
	out := []byte{0xff, 0xd8}
	out = append(out, segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)...)
	out = append(out, segment(0xc2, 8, 0, 8, 0, 8, 1, 7, 0x11, 0)...)
	for _, table := range []byte{0x00, 0x10} {
		out = append(out, segment(0xc4, append([]byte{table, 1}, make([]byte, 16)...)...)...)
	}
	all := [][3]byte{{0, 0, 0x01}, {1, 5, 0x01}, {6, 63, 0x01}, {0, 0, 0x10}, {1, 63, 0x10}}
	for _, i := range scans {
		out = append(out, segment(0xda, 1, 7, 0, all[i][0], all[i][1], all[i][2])...)
		out = append(out, 0x7f) // the code, and ones up to a byte
	}
	return append(out, 0xff, 0xd9)
}

// A progressive JPEG is whole when its scans have sent every bit of every coefficient.
func TestProgressiveNeedsAllScans(t *testing.T) {
	whole := progressive(0, 1, 2, 3, 4)
	im, _, err := decodeImage("a.jpg", whole)
	if err != nil || im.Bounds() != image.Rect(0, 0, 8, 8) {
		t.Fatalf("%v", err)
	}
	if _, _, err := decodeImage("a.jpg", append(slices.Clone(whole), "and more"...)); err != nil {
		t.Errorf("with something behind it: %v", err)
	}
	for _, c := range []struct {
		scans []int
		want  string
	}{
		{[]int{0}, "before a scan with the lowest 1 bits of coefficient 0"},
		{[]int{0, 1}, "before a scan with the lowest 1 bits of coefficient 0"},
		{[]int{0, 3}, "before a scan with coefficient 1 of component 7"},
		{[]int{0, 1, 3}, "before a scan with the lowest 1 bits of coefficient 1"},
		{[]int{0, 1, 2}, "before a scan with the lowest 1 bits of coefficient 0"},
		{[]int{0, 1, 2, 3}, "before a scan with the lowest 1 bits of coefficient 1"},
		{[]int{0, 1, 3, 4}, "a scan before this one is missing"},
	} {
		part := progressive(c.scans...)
		_, _, err := decodeImage("a.jpg", part)
		var f *datafile.FormatError
		if !errors.As(err, &f) || f.File != "a.jpg" || !strings.Contains(f.Problem, c.want) {
			t.Errorf("scans %v: %v, want %q", c.scans, err, c.want)
		} else if c.scans[len(c.scans)-1] != 4 && f.Offset != int64(len(part)-2) {
			t.Errorf("scans %v: at %d of %d", c.scans, f.Offset, len(part))
		}
	}
}

// An image cut at any byte is a fault with file and offset, with an end marker behind the cut, too, but for
// the last bytes of a scan, which decoders may not need.
func TestImagesCutAnywhere(t *testing.T) {
	for name, whole := range map[string][]byte{
		"a.jpg": datatest.EncodeJPEG(datatest.Colourful(24, 16, 1)), "b.jpg": progressive(0, 1, 2, 3, 4), "c.png": datatest.EncodePNG(datatest.Colourful(24, 16, 1)),
	} {
		if _, _, err := decodeImage(name, whole); err != nil {
			t.Fatal(err)
		}
		accepted := 0
		for n := range whole {
			_, _, err := decodeImage(name, whole[:n])
			var f *datafile.FormatError
			if !errors.As(err, &f) || f.File != name || f.Offset > int64(n) {
				t.Fatalf("%s of %d bytes cut after %d: %v", name, len(whole), n, err)
			}
			if _, _, err := decodeImage(name, append(slices.Clone(whole[:n]), 0xff, jpegEnd)); err == nil {
				accepted++
			}
		}
		if accepted > 3 {
			t.Errorf("%s: cut at %d of %d places and closed it is taken for whole", name, accepted, len(whole))
		}
	}
}

// exif is TIFF data whose first directory has an orientation between two other tags.
func exif(order binary.AppendByteOrder, magic string, o uint16) []byte {
	b := order.AppendUint32([]byte(magic), 10)
	b = order.AppendUint16(append(b, 0, 0), 3)
	for _, e := range [][3]uint16{{0x0100, 3, 9}, {0x0112, 3, o}, {0x0128, 3, 2}} {
		b = order.AppendUint16(order.AppendUint16(b, e[0]), e[1])
		b = order.AppendUint16(order.AppendUint16(order.AppendUint32(b, 1), e[2]), 0)
	}
	return order.AppendUint32(b, 0)
}

// withEXIF puts TIFF data into a JPEG or a PNG.
func withEXIF(encoded, tiff []byte) []byte {
	if bytes.HasPrefix(encoded, pngMagic) {
		at := len(pngMagic) + 12 + 13 // behind IHDR
		chunk := append([]byte("eXIf"), tiff...)
		all := binary.BigEndian.AppendUint32(nil, uint32(len(tiff)))
		all = binary.BigEndian.AppendUint32(append(all, chunk...), crc32.ChecksumIEEE(chunk))
		return slices.Concat(encoded[:at], all, encoded[at:])
	}
	app1 := segment(jpegApp1, append([]byte("Exif\x00\x00"), tiff...)...)
	return slices.Concat(encoded[:2], segment(0xe0, []byte("JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00")...), segment(jpegApp1, []byte("http://ns.adobe.com/xap/1.0/\x00<x/>")...), app1, encoded[2:])
}

// shownAs is where EXIF 2.32 (4.6.4) says that a stored pixel is to be seen, in words: which side
// of the image its row 0 and its column 0 are.
func shownAs(o, row, column, w, h int) (x, y int) {
	sides := [...][2]string{1: {"top", "left"}, {"top", "right"}, {"bottom", "right"}, {"bottom", "left"}, {"left", "top"}, {"right", "top"}, {"right", "bottom"}, {"left", "bottom"}}[o]
	for i, n := range []int{row, column} {
		most := []int{h, w}[i] - 1
		switch sides[i] {
		case "top":
			y = n
		case "bottom":
			y = most - n
		case "left":
			x = n
		case "right":
			x = most - n
		}
	}
	return x, y
}

// turnedImage is the naive twin of orientation: the image as it is to be seen.
func turnedImage(im image.Image, o int) *image.NRGBA {
	w, h := im.Bounds().Dx(), im.Bounds().Dy()
	out := image.NewNRGBA(image.Rect(0, 0, w, h))
	if o >= 5 {
		out = image.NewNRGBA(image.Rect(0, 0, h, w))
	}
	for row := range h {
		for column := range w {
			x, y := shownAs(o, row, column, w, h)
			out.Set(x, y, im.At(column, row))
		}
	}
	return out
}

// A set of images with orientations has the samples of one whose pixels were turned before:
// all eight, in both formats and byte orders, for training and evaluation.
func TestOrientation(t *testing.T) {
	orders := map[string]binary.AppendByteOrder{"II*\x00": binary.LittleEndian, "MM\x00*": binary.BigEndian}
	for _, set := range []string{"images", "cifar10"} {
		for magic, order := range orders {
			for o := 1; o <= 8; o++ {
				w, h := 40, 23
				if set == "cifar10" {
					w, h = CIFARSide, CIFARSide
				}
				noted, before := map[string][]byte{}, map[string][]byte{}
				for i, name := range []string{"train/a/0.png", "train/b/1.png", "test/a/2.png", "train/c/3.jpg"} {
					encoded := datatest.EncodePNG(datatest.Colourful(w, h, uint64(i)))
					if strings.HasSuffix(name, "jpg") {
						encoded = datatest.EncodeJPEG(datatest.Colourful(w, h, uint64(i)))
					}
					stored, _, err := decodeImage(name, encoded)
					if err != nil {
						t.Fatal(err)
					}
					noted[name], before[name] = withEXIF(encoded, exif(order, magic, uint16(o))), datatest.EncodePNG(turnedImage(stored, o))
				}
				what := fmt.Sprintf("%s, orientation %d, %q", set, o, magic)
				checkSameImages(t, what, set, datatest.WriteTree(t, noted), datatest.WriteTree(t, before))
			}
		}
	}
}

// checkSameImages compares all samples of two trees.
func checkSameImages(t *testing.T, what, name, a, b string) {
	t.Helper()
	var first []float32
	for _, dir := range []string{a, b} {
		values := samplesOf(t, name, dir)
		if first == nil {
			first = values
		} else if !slices.Equal(first, values) {
			t.Errorf("%s: other samples", what)
		}
	}
}

// samplesOf returns the training samples of a tree in two epochs, and the evaluation samples.
func samplesOf(t *testing.T, name, dir string) (values []float32) {
	t.Helper()
	if name == "cifar10" {
		set, err := ReadCIFAR(dir, [2]int{}, 2, new(datafile.Skips))
		if err != nil {
			t.Fatal(err)
		}
		for _, pix := range [][]uint8{set.Train.Pix, set.Eval.Pix} {
			for _, v := range pix {
				values = append(values, float32(v))
			}
		}
		return values
	}
	tree, err := OpenTree(name, dir)
	if err != nil {
		t.Fatal(err)
	}
	train, eval, classes, err := tree.Split(nil)
	if err != nil {
		t.Fatal(err)
	}
	for part, pictures := range [][]Picture{train, eval} {
		e := NewEncoded(pictures, LabelsOf(pictures, classes), 12, new(datafile.Skips))
		for epoch := range uint64(2) {
			for i := range int32(len(pictures)) {
				dst := make([]float32, 3*12*12)
				if _, err := e.Decode(dst, i, part == 0, prng.New(3, epoch, uint64(i))); err != nil {
					t.Fatal(err)
				}
				values = append(values, dst...)
			}
		}
	}
	return values
}

// The converter writes pixels as they are to be seen.
func TestConvertOrientation(t *testing.T) {
	files := map[string][]byte{}
	for i := range 10 {
		png := datatest.EncodePNG(datatest.Colourful(CIFARSide, CIFARSide, uint64(i)))
		files[fmt.Sprintf("train/%c/1.png", 'a'+i)] = withEXIF(png, exif(binary.BigEndian, "MM\x00*", 6))
		files[fmt.Sprintf("test/%c/1.png", 'a'+i)] = png
	}
	out := filepath.Join(t.TempDir(), "out")
	if _, err := ConvertCIFAR(datatest.WriteTree(t, files), out, 2, 0); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(out, "data_batch_1.bin"))
	if err != nil || len(got)%CIFARRecord != 0 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	want := turnedImage(datatest.Colourful(CIFARSide, CIFARSide, uint64(got[0])), 6)
	for i := range CIFARPlane {
		c := want.NRGBAAt(i%CIFARSide, i/CIFARSide)
		if [3]uint8{got[1+i], got[1+CIFARPlane+i], got[1+2*CIFARPlane+i]} != [3]uint8{c.R, c.G, c.B} {
			t.Fatalf("pixel %d", i)
		}
	}
}

// Damage in what says how to turn an image leaves it as it is.
func TestDamagedOrientation(t *testing.T) {
	good := exif(binary.LittleEndian, "II*\x00", 6)
	for n := range good {
		if o := tiffOrientation(good[:n]); o.turned() && n < 10+2+24 {
			t.Errorf("cut after %d bytes: %d", n, o)
		}
	}
	for name, tiff := range map[string][]byte{
		"nine": exif(binary.LittleEndian, "II*\x00", 9), "zero": exif(binary.LittleEndian, "II*\x00", 0), "order": exif(binary.LittleEndian, "MM\x00*", 6),
		"magic": append([]byte("XX"), good[2:]...), "far": binary.LittleEndian.AppendUint32([]byte("II*\x00"), 0xffffffff),
	} {
		for _, encoded := range [][]byte{datatest.EncodeJPEG(datatest.Colourful(16, 8, 1)), datatest.EncodePNG(datatest.Colourful(16, 8, 1))} {
			if _, o, err := decodeImage(name, withEXIF(encoded, tiff)); err != nil || o.turned() {
				t.Errorf("%s: %d, %v", name, o, err)
			}
		}
	}
}

// A header's size is not believed where the file is too short for it.
func TestImageBombs(t *testing.T) {
	grey := func(w, h uint16) []byte {
		b := progressive(0, 1, 2, 3, 4)
		at := bytes.Index(b, []byte{0xff, 0xc2}) + 5
		binary.BigEndian.PutUint16(b[at:], h)
		binary.BigEndian.PutUint16(b[at+2:], w)
		return b
	}
	png := datatest.EncodePNG(datatest.Colourful(8, 8, 1))
	binary.BigEndian.PutUint32(png[16:], 8000)
	binary.BigEndian.PutUint32(png[20:], 8000)
	binary.BigEndian.PutUint32(png[29:], crc32.ChecksumIEEE(png[12:29]))
	for name, encoded := range map[string][]byte{"a.jpg": grey(8000, 8000), "b.jpg": grey(65535, 65535), "c.png": png} {
		var f *datafile.FormatError
		if _, _, err := decodeImage(name, encoded); !errors.As(err, &f) || !strings.Contains(f.Problem, "impossible size") {
			t.Errorf("%s: %v", name, err)
		}
	}
	flat := image.NewGray(image.Rect(0, 0, 3000, 3000)) // nothing shrinks further
	for name, encoded := range map[string][]byte{"flat.png": datatest.EncodePNG(flat), "flat.jpg": datatest.EncodeJPEG(flat)} {
		if _, _, err := decodeImage(name, encoded); err != nil {
			t.Errorf("an image that is there, of %d bytes: %v", len(encoded), err)
		}
	}
}

// Whatever bytes come: an image that fits its box, or a fault of the file.
func FuzzDecodeImage(f *testing.F) {
	for _, b := range [][]byte{nil, progressive(0, 1, 2, 3, 4), progressive(0), datatest.EncodePNG(datatest.Colourful(3, 4, 1)), datatest.EncodeJPEG(datatest.Colourful(9, 4, 1))} {
		f.Add(b)
		if len(b) > 0 {
			f.Add(withEXIF(b, exif(binary.BigEndian, "MM\x00*", 5)))
		}
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		if len(encoded) > 1<<16 {
			return
		}
		im, turn, err := decodeImage("file", encoded)
		if err != nil {
			var format *datafile.FormatError
			if !errors.As(err, &format) || format.Offset < 0 || format.Offset > int64(len(encoded)) {
				t.Fatal(err)
			}
			return
		}
		if n := im.Bounds().Dx() * im.Bounds().Dy(); n > 1<<18 {
			return
		}
		w, h := turn.size(im.Bounds().Dx(), im.Bounds().Dy())
		s := new(scratch)
		s.cut(im, image.Rect(w/3, h/2, w, h), turn)
	})
}
