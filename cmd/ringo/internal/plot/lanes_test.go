package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// drawnPage returns a page's text, after a check that its tags nest.
func drawnPage(t *testing.T, p Page) string {
	t.Helper()
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	svg := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(b.String(), -1)
	if len(svg) != len(p.Pictures) {
		t.Fatalf("%d drawings of %d pictures", len(svg), len(p.Pictures))
	}
	for _, s := range svg {
		for d := xml.NewDecoder(strings.NewReader(s)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, s)
			}
		}
	}
	return b.String()
}

// A bar stands at its times on the axis, an open one reaches the end, and one that overlaps another
// stands in a row below.
func TestLanesPlaceBars(t *testing.T) {
	p := Picture{Lanes: []Lane{{Name: "a", Bars: []Bar{{Start: 50, End: 100, Color: 1}, {Start: 0, End: 60}, {Start: 75, Open: true}}}, {Name: "b"}}}
	d := p.draw()
	var got []drawnBar
	for _, r := range d.Rows {
		got = append(got, r.Bars...)
	}
	want := []drawnBar{
		{X: nameWidth, Width: 0.6 * axisWidth},
		{X: nameWidth + 0.5*axisWidth, Width: 0.5 * axisWidth, Y: rowHeight, Color: 1},
		{X: nameWidth + 0.75*axisWidth, Width: 0.25 * axisWidth, Open: true},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if math.Abs(got[i].X-want[i].X) > 0.06 || math.Abs(got[i].Width-want[i].Width) > 0.11 || got[i].Y != want[i].Y || got[i].Color != want[i].Color || got[i].Open != want[i].Open {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	if want := 2*rowHeight + laneGap + rowHeight + laneGap + axisHeight; d.Height != want || d.Rows[1].Y != 2*rowHeight+laneGap {
		t.Errorf("height %d, second lane at %d", d.Height, d.Rows[1].Y)
	}
}

// No bar of a row overlaps another one, whatever the times.
func TestLanesNeverOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	for range 200 {
		var l Lane
		for range 1 + r.IntN(30) {
			start := r.Float64() * 100
			l.Bars = append(l.Bars, Bar{Start: start, End: start + 20*r.Float64(), Open: r.IntN(9) == 0})
		}
		bars := Picture{Lanes: []Lane{l}}.draw().Rows[0].Bars
		for i, a := range bars {
			for _, b := range bars[:i] {
				if a.Y == b.Y && a.X < b.X+b.Width-leastBar-0.2 && b.X < a.X+a.Width-leastBar-0.2 {
					t.Fatalf("%+v and %+v", a, b)
				}
			}
		}
	}
}

// Texts of a user's files are text, colours beyond the eighth repeat, and a picture without times
// has an axis.
func TestLanesPage(t *testing.T) {
	const hostile = `<script>alert("1")</script>`
	text := drawnPage(t, Page{
		Title: hostile, Facts: []string{hostile},
		Pictures: []Picture{
			{Title: hostile, Legend: []string{hostile}, Lanes: []Lane{{Name: hostile, Note: hostile, Bars: []Bar{{Start: 1, End: 2, Color: 9, Text: hostile}}}}, Moment: &Moment{MS: 3, Name: hostile}},
			{Lanes: []Lane{{Name: "empty"}}}, {}, {Lanes: []Lane{{Bars: []Bar{{Start: 5, End: 5}}}}},
		},
	})
	if strings.Contains(text, "<script") || !strings.Contains(text, `class="c1"`) || strings.Contains(text, `"c9`) {
		t.Error(text)
	}
	for _, n := range regexp.MustCompile(` (?:x|x1|x2|y|width)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if v, err := strconv.ParseFloat(n[1], 64); err != nil || v < 0 || v > nameWidth+axisWidth+leastBar {
			t.Errorf("%s: %v", n[0], err)
		}
	}
}
