// Package plot holds the charts of two pages, that of a job in progress and that of `ringo report`:
// uPlot, the script that draws with it, its style, and the data of a chart as JSON. Programs in
// bench draw the pictures of the documents in its colours.
package plot

import (
	_ "embed"
	"encoding/json"
	"maps"
	"math"
	"slices"
)

// The files are uPlot 1.6.32 (MIT, https://github.com/leeoniya/uPlot), as `npm pack uplot` has it:
// dist/uPlot.iife.min.js and dist/uPlot.min.css, with its license beside them, and those of this
// package that draw with it. The colours of chart.css tell series apart for people who see colours
// otherwise, too (after Okabe and Ito, 2008), with enough contrast to the ground of each theme.
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

// Script is uPlot, and `plot`, whose function chart draws a figure.
func Script() string { return uplotScript + chartScript }

// Style is the CSS of the charts, with the colours of a page, light and dark.
func Style() string { return uplotStyle + "\n" + chartStyle }

// Number is a value of a chart; what is no finite number is null in JSON.
type Number float64

// None is no value.
var None = Number(math.NaN())

// MarshalJSON writes the number, or null.
func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = None
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// Lines is the data of a chart: one place of X for each column of Data, and a row of Data for each
// label, null where it has no value.
type Lines struct {
	XLabel  string     `json:"x_label,omitempty"`
	Unit    string     `json:"unit,omitempty"`
	Percent bool       `json:"percent,omitempty"` // 1 is 100 %
	X       []float64  `json:"x,omitempty"`
	Labels  []string   `json:"labels,omitempty"`
	Data    [][]Number `json:"data,omitempty"`
	// Low and High are the spread of Data, with as many rows; nil without one.
	Low  [][]Number `json:"low,omitempty"`
	High [][]Number `json:"high,omitempty"`
}

// Curve is a row of Lines to be. Where several points have one X the last counts; points without a
// finite X are left out.
type Curve struct {
	Label  string
	Points []Point
}

// Point is a place of a curve and the spread of what Y is the mean of.
type Point struct{ X, Y, Low, High float64 }

// Set puts curves over one axis, with their spread if asked for.
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
