package data

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"

	"github.com/ringo-ml/ringo/data/table"
)

// tableRows are the rows of a table that are samples, in order.
type tableRows struct {
	table.Reader                      // nil: unknown
	all          func(row int64) bool // whether a row is a sample
}

// places returns the places (file and line) of samples, and the values of the first columns.
func (t tableRows) places(samples []int32, columns int) (places []string, values [][]string) {
	if t.Reader == nil {
		return make([]string, len(samples)), make([][]string, len(samples))
	}
	at, last := map[int32]int64{}, int32(0) // rows of the samples
	for _, n := range samples {
		at[n], last = -1, max(last, n)
	}
	row := int64(-1)
	for n := int32(0); n <= last; n++ {
		for row++; !t.all(row); row++ {
		}
		if _, ok := at[n]; ok {
			at[n] = row
		}
	}
	rows := make([]int64, len(samples))
	for i, n := range samples {
		rows[i] = at[n]
	}
	return table.Rows(t.Reader, rows, columns)
}

// shownColumns is the number of columns of a table in Places.
const shownColumns = 8

// Places returns the places of evaluation samples by number: file and line of a row, or the file of
// an image; "" if unknown, as after skipped rows. values has the first columns of a table as
// NAME=VALUE, and pictures the samples that are images, as the data: URL of a PNG file. Cost: a
// pass over a table.
func (s *Dataset) Places(samples []int32) (places []string, values [][]string, pictures []string) {
	places, values = s.rows[1].places(samples, shownColumns)
	for i, n := range samples {
		if places[i] == "" {
			places[i] = placeOf(s.Eval, n, s.evalFile)
		}
		pictures = append(pictures, s.picture(n))
	}
	return places, values, pictures
}

// maxPicture is the longest side of a picture, in pixels. Larger images are drawn from every second
// or third pixel, and so on.
const maxPicture = 48

// picture returns the picture of an evaluation sample, "" if it is no image or cannot be read.
// Values without a known normalisation are stretched from the smallest to the largest.
func (s *Dataset) picture(n int32) string {
	shape := s.Eval.Shape()
	if len(shape.Values) != 3 || shape.Values[2] != 1 && shape.Values[2] != 3 {
		return ""
	}
	var b Batch
	if s.Eval.Fill(&b, []int32{n}, Draw{}) != nil {
		return ""
	}
	h, w, planes := shape.Values[0], shape.Values[1], shape.Values[2]
	mean, deviation, ok := s.Description().Normalisation()
	if !ok {
		low, high := slices.Min(b.Values), slices.Max(b.Values)
		mean, deviation = slices.Repeat([]float32{-low / max(high-low, 1e-30)}, planes), slices.Repeat([]float32{1 / max(high-low, 1e-30)}, planes)
	}
	every := (max(h, w) + maxPicture - 1) / maxPicture
	out := image.NewNRGBA(image.Rect(0, 0, (w+every-1)/every, (h+every-1)/every))
	for y := range out.Rect.Max.Y {
		for x := range out.Rect.Max.X {
			at := func(plane int) uint8 {
				plane = min(plane, planes-1)
				v := b.Values[(y*every*w+x*every)*planes+plane]
				return uint8(255*min(max(v*deviation[plane]+mean[plane], 0), 1) + 0.5)
			}
			out.SetNRGBA(x, y, color.NRGBA{at(0), at(1), at(2), 255})
		}
	}
	var file bytes.Buffer
	if png.Encode(&file, out) != nil {
		return ""
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(file.Bytes())
}

// placeOf returns the place (file and row) of a source's sample. Rows of arrays count from 0, as in
// NumPy; rows of file, if it is not "", from 1.
func placeOf(src Source, n int32, file string) string {
	switch s := src.(type) {
	case head:
		return placeOf(s.Source, n, file)
	case subset:
		return placeOf(s.Source, s.at[n], file)
	case *encoded:
		for s.Known(n) { // bad: the next good image is read in its place
			n = (n + 1) % int32(len(s.Pictures))
		}
		return s.Pictures[n].Path
	case *arrays:
		return fmt.Sprintf("%s: row %d", s.path, n)
	}
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s: row %d", file, n+1)
}
