// Package plot has the charts of the dashboard and of `ringo report`: uPlot, the script that uses
// uPlot, the style, and a chart's data as JSON. Programs in bench use the same colours for
// pictures.
package plot

import (
	_ "embed"
	"encoding/json"
	"maps"
	"math"
	"slices"
)

// The files are uPlot 1.6.32 (MIT, https://github.com/leeoniya/uPlot), from `npm pack uplot`:
// dist/uPlot.iife.min.js and dist/uPlot.min.css, with the license, and this package's files that
// use uPlot. The colours of chart.css are distinguishable for colour-blind users (after Okabe and
// Ito, 2008), with enough contrast in both themes.
var (
	//go:embed assets/uplot.js
	uplotScript string
	//go:embed assets/chart.js
	chartScript string
	//go:embed assets/uplot.css
	uplotStyle string
	//go:embed assets/chart.css
	chartStyle string
)

// Script returns the JavaScript of uPlot, and of `plot` with the function chart to draw a figure.
func Script() string { return uplotScript + chartScript }

// Style returns the CSS of the charts, with the colours of a page, light and dark.
func Style() string { return uplotStyle + "\n" + chartStyle }

// Number is a value of a chart; NaN and infinities are null in JSON.
type Number float64

// None is the missing value.
var None = Number(math.NaN())

// MarshalJSON writes the number, or null.
func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON parses the output of MarshalJSON.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = None
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// Lines is a chart's data: a column of Data per X, a row per label, null for missing values.
type Lines struct {
	XLabel  string     `json:"x_label,omitempty"`
	Unit    string     `json:"unit,omitempty"`
	Percent bool       `json:"percent,omitempty"` // value 1 is 100 %
	X       []float64  `json:"x,omitempty"`
	Labels  []string   `json:"labels,omitempty"`
	Data    [][]Number `json:"data,omitempty"`
	// Low and High are the spread of Data, with the same rows; nil without a spread.
	Low  [][]Number `json:"low,omitempty"`
	High [][]Number `json:"high,omitempty"`
}

// Curve is a row of Lines before Lines.Set, which uses the last point of each finite X.
type Curve struct {
	Label  string
	Points []Point
}

// Point is a point of a curve, with the spread around the mean Y.
type Point struct{ X, Y, Low, High float64 }

// Set sets curves on one axis, optionally with their spread.
func (l *Lines) Set(curves []Curve, spread bool) {
	columns := map[float64][]Point{}
	nan := math.NaN()
	for i, c := range curves {
		for _, p := range c.Points {
			if math.IsNaN(p.X) || math.IsInf(p.X, 0) {
				continue
			}
			if columns[p.X] == nil {
				columns[p.X] = slices.Repeat([]Point{{nan, nan, nan, nan}}, len(curves))
			}
			columns[p.X][i] = p
		}
	}
	l.X = slices.Sorted(maps.Keys(columns))
	for i, c := range curves {
		row := func(of func(Point) float64) (out []Number) {
			for _, x := range l.X {
				out = append(out, Number(of(columns[x][i])))
			}
			return out
		}
		l.Labels, l.Data = append(l.Labels, c.Label), append(l.Data, row(func(p Point) float64 { return p.Y }))
		if spread {
			l.Low, l.High = append(l.Low, row(func(p Point) float64 { return p.Low })), append(l.High, row(func(p Point) float64 { return p.High }))
		}
	}
}
