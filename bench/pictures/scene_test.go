package main

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"
)

// sampleTracks are two tracks with labels that are no XML and longer than the place for them.
func sampleTracks() tracks {
	return tracks{name: "Step & <b>more</b>", unit: "ms", kinds: []string{"computes", `ex<changes>`}, rows: []track{
		{head: "rank 0", label: "forward", boxes: []box{{from: 2, to: 5, text: `forward & "more"`}}}, {label: "a label that is longer than the place for it", boxes: []box{{from: 4, to: 9, kind: 1}, {from: 9, to: 9, kind: 1}}}}}
}

// elements are those of a well-formed document, and its texts.
func elements(t *testing.T, text string) (names map[string]int, texts []string) {
	t.Helper()
	names = map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return names, texts
		}
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		switch x := token.(type) {
		case xml.StartElement:
			names[x.Name.Local]++
		case xml.CharData:
			texts = append(texts, string(x))
		}
	}
}

// TestSVGEscapes has well-formed documents of any labels, with their texts and no other elements.
func TestSVGEscapes(t *testing.T) {
	odd := tracks{name: "\x00\xff</svg><image href=x>", rows: []track{{}}}
	for _, c := range []chart{sampleTracks(), odd, ranges{name: "<x>", kinds: []string{"a", "b"}, rows: []valueRange{{"<y>", 0.5, 2}}}} {
		text := svg(c, 330, 300, "")
		names, texts := elements(t, text)
		for name := range names {
			if !strings.Contains(" svg style rect polyline polygon text g ", " "+name+" ") {
				t.Errorf("an element %s", name)
			}
		}
		all := strings.Join(texts, "\n")
		if _, ok := c.(tracks); ok && strings.Contains(text, "Step") && (!strings.Contains(all, `forward & "more"`) || !strings.Contains(all, "Step & <b>more</b>")) {
			t.Errorf("texts %q", texts)
		}
		if strings.Contains(text, "url(") || strings.Count(text, "http") != 1 { // of the name space
			t.Error("the picture asks for a file")
		}
	}
}

// TestRangesAreLogarithmic has a line at 1, equal distances of a ratio and its inverse from it, and the bounds of a range in its tip.
func TestRangesAreLogarithmic(t *testing.T) {
	r := ranges{name: "x", kinds: []string{"ahead", "behind"}, rows: []valueRange{{"across", 0.5, 2}, {"above", 1, 1.71}, {"one", 15.9, 15.9}}}
	s := r.draw(460, 0)
	var line float64
	bars := map[string][][2]float64{}
	for _, x := range s.shapes {
		switch {
		case x.color == "fg" && x.width > 1:
			line = x.points[0][0]
		case x.text == "" && x.width == 0:
			bars[x.color] = append(bars[x.color], [2]float64{x.points[0][0], x.points[1][0]})
		}
	}
	ahead, behind := bars["s0"], bars["s1"]
	if line == 0 || len(ahead) != 3 || len(behind) != 1 || ahead[0][0] != line || math.Abs(behind[0][1]-line) > 1e-9 || ahead[1][0] != line {
		t.Fatalf("the line at %v, bars %v", line, bars)
	}
	if right, left := ahead[0][1]-line, line-behind[0][0]; math.Abs(right-left) > 1e-9 {
		t.Errorf("2 is %v from 1, and 0.5 %v", right, left)
	}
	if width := ahead[2][1] - ahead[2][0]; math.Abs(width-6) > 1e-9 {
		t.Errorf("a ratio alone is a bar of %v px", width)
	}
	_, texts := elements(t, svg(r, 460, 0, ""))
	all := strings.Join(texts, "\n")
	for _, want := range []string{"0.5 to 2 x", "1 to 2 x: ahead", "0.5 to 1 x: behind", "1 to 1.71 x: ahead", "15.9 x: ahead"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not shown in %q", want, texts)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		n      int
		want   string
	}{{0, 1, 5, "0 0.2 0.4 0.6 0.8 1"}, {0.3, 0.9, 3, "0.4 0.6 0.8"}, {0, 1200, 6, "0 200 400 600 800 1000 1200"}, {5, 5, 3, "5"}, {-1, 1, 2, "-1 0 1"}, {0, math.Inf(1), 3, "0"}} {
		var got []string
		for _, v := range ticks(c.lo, c.hi, c.n) {
			got = append(got, number(v))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%v to %v: %s, want %s", c.lo, c.hi, text, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.1234: "0.123", 12.345: "12.35", 1200: "1200", 12345: "12.35k", 2.5e6: "2.5M", 3e9: "3G", 4e12: "4T", 0.000123: "0.000123", -0.5: "-0.5", math.NaN(): "–"} {
		if got := number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}
