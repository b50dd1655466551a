package plot

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Page is a page of pictures with horizontal lanes over one time axis each. The page needs no
// script and no other file.
type Page struct {
	Title    string
	Facts    []string
	Pictures []Picture
}

// Picture is a set of lanes over one time axis, in milliseconds.
type Picture struct {
	Title  string
	Facts  []string
	Legend []string // names of the colours, by Bar.Color
	Lanes  []Lane
	// Moment, if not nil, is a time with a vertical line and a name, such as the end of a job.
	Moment *Moment
}

// Moment is a named time.
type Moment struct {
	MS   float64
	Name string
}

// Lane is the bars of one process or path. Bars that overlap in time stand below each other.
type Lane struct {
	Name string
	Note string // behind the name, such as the reason of an empty lane
	Bars []Bar
}

// Bar is a time from Start to End, in milliseconds. Open bars have not ended, and reach the end of
// the axis. Text is shown while the pointer is on the bar.
type Bar struct {
	Start, End float64
	Color      int
	Open       bool
	Text       string
}

//go:embed assets/lanes.html
var lanesSource string

var lanesPage = template.Must(template.New("lanes").Parse(lanesSource))

// Sizes of a picture, in units of the drawing.
const (
	nameWidth, axisWidth = 170, 830
	rowHeight, laneGap   = 14, 8
	axisHeight, ticks    = 24, 8
	momentWidth          = 140 // around the moment's name, without ticks
	leastBar             = 1.5 // a shorter bar would be invisible
	nameLetters          = 24
)

// Write writes the page.
func (p Page) Write(w io.Writer) error {
	type view struct {
		Page
		Style   template.CSS
		Drawn   []drawing
		Columns int
		Colors  []int
	}
	v := view{Page: p, Style: template.CSS(chartStyle), Columns: nameWidth + axisWidth, Colors: []int{0, 1, 2, 3, 4, 5, 6, 7}}
	for _, picture := range p.Pictures {
		v.Drawn = append(v.Drawn, picture.draw())
	}
	return lanesPage.Execute(w, v)
}

// drawing is a picture in units of the drawing.
type drawing struct {
	Picture
	Height int
	Rows   []drawnLane
	Ticks  []tick
	Moment *tick
}

type drawnLane struct {
	Name, Note string
	Y          int
	Bars       []drawnBar
}

type drawnBar struct {
	X, Width float64
	Y        int
	Color    int
	Open     bool
	Text     string
}

type tick struct {
	X    float64
	Text string
}

func (p Picture) draw() drawing {
	low, high := p.ends()
	x := func(ms float64) float64 {
		return math.Round(10*(nameWidth+axisWidth*(ms-low)/(high-low))) / 10
	}
	d := drawing{Picture: p}
	for _, l := range p.Lanes {
		lane := drawnLane{Name: shortened(l.Name), Note: l.Note, Y: d.Height}
		var ends []float64 // ends of the rows' last bars
		bars := slices.Clone(l.Bars)
		slices.SortStableFunc(bars, func(a, b Bar) int { return cmp.Compare(a.Start, b.Start) })
		for _, b := range bars {
			end := b.End
			if b.Open {
				end = high
			}
			row := slices.IndexFunc(ends, func(e float64) bool { return e <= b.Start })
			if row < 0 {
				row, ends = len(ends), append(ends, 0)
			}
			ends[row] = end
			lane.Bars = append(lane.Bars, drawnBar{X: x(b.Start), Y: d.Height + rowHeight*row, Width: max(leastBar, x(end)-x(b.Start)), Color: b.Color % 8, Open: b.Open, Text: b.Text})
		}
		d.Rows = append(d.Rows, lane)
		d.Height += rowHeight*max(1, len(ends)) + laneGap
	}
	d.Height += axisHeight
	if p.Moment != nil {
		d.Moment = &tick{x(p.Moment.MS), p.Moment.Name}
	}
	step := niceStep((high - low) / ticks)
	for k := math.Ceil(low / step); k*step <= high; k++ {
		if at := x(k * step); d.Moment == nil || math.Abs(at-d.Moment.X) > momentWidth {
			d.Ticks = append(d.Ticks, tick{at, quantity.FloatDigits(k*step, 4) + " ms"})
		}
	}
	return d
}

// ends returns the ends of the axis: those of all bars and the moment, never equal.
func (p Picture) ends() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range p.Lanes {
		for _, b := range l.Bars {
			low, high = min(low, b.Start), max(high, b.Start)
			if !b.Open {
				high = max(high, b.End)
			}
		}
	}
	if p.Moment != nil {
		low, high = min(low, p.Moment.MS), max(high, p.Moment.MS)
	}
	if !(low < high) {
		if math.IsInf(low, 0) || math.IsNaN(low) {
			low = 0
		}
		high = low + 1
	}
	return low, high
}

// niceStep returns 1, 2 or 5 times a power of ten, at least s.
func niceStep(s float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(s)))
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= s {
			return m * unit
		}
	}
	return 10 * unit
}

func shortened(name string) string {
	if runes := []rune(name); len(runes) > nameLetters {
		return string(runes[:nameLetters-1]) + "…"
	}
	return name
}
