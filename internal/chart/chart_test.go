package chart

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func sample() Lines {
	l := Lines{Title: "Loss & <b>more</b>", XLabel: "step", YLabel: "loss", Series: []Series{{Label: `a"<script>`}, {Label: "b"}}}
	for i := range 40 {
		x := float64(i)
		l.Series[0].Points = append(l.Series[0].Points, Point{x, 1 / (1 + x), 0.9 / (1 + x), 1.1 / (1 + x)})
		l.Series[1].Points = append(l.Series[1].Points, Point{x, 2 / (1 + x), 2 / (1 + x), 2 / (1 + x)})
	}
	return l
}

func bars() Bars {
	return Bars{Title: "Parts", Unit: "ms", Parts: []string{"compute", "exchange"}, Rows: []Bar{{"a", []float64{3, 1}}, {"b", []float64{2, math.NaN()}}}}
}

func tracks() Tracks {
	return Tracks{Title: "Step", Unit: "ms", Kinds: []string{"computes", `ex<changes>`}, Rows: []Track{
		{Head: "rank 0", Label: "forward", Boxes: []Box{{From: 2, To: 5, Text: "forward & more"}}}, {Label: "a label that is longer than what there is room for", Boxes: []Box{{From: 4, To: 9, Kind: 1}, {From: 9, To: 9, Kind: 1}}}}}
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

// Whatever labels are, the document is well-formed, shows them and has no other elements.
func TestSVGEscapes(t *testing.T) {
	l := sample()
	l.Series[1].Label = "\x00\xff</svg><image href=x>"
	for _, text := range []string{SVG(l, 680, 380), File(l, 330, 300), SVG(bars(), 330, 300), File(tracks(), 330, 300), SVG(Tracks{Rows: []Track{{}}}, 330, 300)} {
		names, texts := elements(t, text)
		for name := range names {
			if !strings.Contains(" svg style rect polyline polygon text g path ", " "+name+" ") {
				t.Errorf("an element %s", name)
			}
		}
		if all := strings.Join(texts, "\n"); strings.Contains(text, "loss") && (!strings.Contains(all, `a"<script>`) || !strings.Contains(all, "Loss & <b>more</b>")) {
			t.Errorf("texts %q", texts)
		}
		if strings.Contains(text, "url(") || strings.Count(text, "http") != 1 { // of the name space
			t.Error("it asks for something")
		}
	}
}

var coordinates = regexp.MustCompile(`\s(?:points|x|y)="([^"]*)"`)

// Whatever is drawn lies within the chart, and what cannot be drawn is left out.
func TestChartsStayInside(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 27))
	odd := []float64{0, 1, -1, math.NaN(), math.Inf(1), 1e99, -1e99, 1e-300, 1e308, 0.5}
	for i := range 100 {
		l := Lines{Title: "t", XLabel: "x", YLabel: "y", Percent: r.IntN(2) == 0, FromZero: r.IntN(2) == 0}
		for range r.IntN(11) {
			s := Series{Label: strings.Repeat("l", r.IntN(60))}
			for x := range r.IntN(9) {
				v := odd[r.IntN(len(odd))]
				s.Points = append(s.Points, Point{float64(x) * odd[r.IntN(len(odd))], v, v, v + r.Float64()})
			}
			l.Series = append(l.Series, s)
		}
		const w, h = 400.0, 320.0
		text := SVG(l, w, h)
		for _, m := range coordinates.FindAllStringSubmatch(text, -1) {
			for k, number := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ' ' || r == ',' }) {
				v, err := strconv.ParseFloat(number, 64)
				if limit := max(w, h) + 60; err != nil || math.IsNaN(v) || v < -60 || v > limit {
					t.Fatalf("coordinate %d of %s: %v\n%+v", k, m[0], err, l)
				}
			}
		}
		if i%10 > 0 {
			continue
		}
		if err := PNG(io.Discard, l, 100, 80, 1, true); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTipsTellFigures(t *testing.T) {
	_, texts := elements(t, SVG(sample(), 680, 380))
	all := strings.Join(texts, "\n")
	for _, want := range []string{"step 0\n", `a"<script>: 1 (0.9 to 1.1)`, "b: 2", "step 39"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not told", want)
		}
	}
	_, texts = elements(t, SVG(bars(), 680, 380))
	if all := strings.Join(texts, "\n"); !strings.Contains(all, "exchange: 1 ms") || !strings.Contains(all, "4 ms") {
		t.Errorf("bars tell %q", texts)
	}
}

// The picture has the colours of its theme, and each curve's where it is.
func TestPNG(t *testing.T) {
	for _, inDark := range []bool{false, true} {
		theme := light
		if inDark {
			theme = dark
		}
		var file bytes.Buffer
		if err := PNG(&file, sample(), 680, 380, 2, inDark); err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(&file)
		if err != nil || img.Bounds().Dx() != 1360 || img.Bounds().Dy() != 760 {
			t.Fatalf("%v, %v", img.Bounds(), err)
		}
		seen := map[rgb]int{}
		for y := range img.Bounds().Dy() {
			for x := range img.Bounds().Dx() {
				r, g, b, _ := img.At(x, y).RGBA()
				seen[rgb{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)}]++
			}
		}
		for _, name := range []string{"bg", "fg", "grid", "muted", "s0", "s1"} {
			if seen[theme[name]] < 50 {
				t.Errorf("dark %v: %d pixels of %s", inDark, seen[theme[name]], name)
			}
		}
		if seen[theme["s2"]] > 0 || seen[theme["bg"]] < 1360*760/2 {
			t.Errorf("dark %v: %d pixels of a curve that there is not, %d of the ground", inDark, seen[theme["s2"]], seen[theme["bg"]])
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
	if got := (Lines{Percent: true}).value(0.98155); got != "98.16 %" && got != "98.15 %" {
		t.Error(got)
	}
}

// Colours can be told from their ground: by the contrast that WCAG 2.1 asks of letters, or of what is drawn.
func TestContrast(t *testing.T) {
	luminance := func(c rgb) (l float64) {
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v := float64(c[i]) / 255
			if v <= 0.04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+0.055)/1.055, 2.4)
			}
			l += weight * v
		}
		return l
	}
	for i, theme := range []map[string]rgb{light, dark} {
		for _, name := range names() {
			least := 3.0
			switch name {
			case "bg", "grid":
				continue
			case "fg", "muted":
				least = 4.5
			}
			a, b := luminance(theme[name]), luminance(theme["bg"])
			if c := (max(a, b) + 0.05) / (min(a, b) + 0.05); c < least {
				t.Errorf("theme %d: the contrast of %s is %.2f, want %v", i, name, c, least)
			}
		}
	}
}
