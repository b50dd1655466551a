package plot

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
)

// TestSetAlignsCurves has curves of different places, one without a point and one with a place that is no number on one axis.
func TestSetAlignsCurves(t *testing.T) {
	var l Lines
	l.Set([]Curve{{"a", []Point{{1, 10, 9, 11}, {3, 30, 30, 30}}}, {Label: "empty"}, {"b", []Point{{math.NaN(), 5, 5, 5}, {2, 20, 19, math.Inf(1)}}}}, true)
	got, err := json.Marshal(l)
	want := `{"x":[1,2,3],"labels":["a","empty","b"],"data":[[10,null,30],[null,null,null],[null,20,null]],` +
		`"low":[[9,null,30],[null,null,null],[null,19,null]],"high":[[11,null,30],[null,null,null],[null,null,null]]}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	var back Lines
	if err := json.Unmarshal(got, &back); err != nil || !math.IsNaN(float64(back.Data[1][0])) || back.Data[0][2] != 30 {
		t.Errorf("%+v, %v", back, err)
	}
}

// TestAssetsNameNoHost has no address of another host in scripts and styles, but for uPlot's own in its first comment.
func TestAssetsNameNoHost(t *testing.T) {
	for _, text := range []string{strings.Replace(Script(), "https://github.com/leeoniya/uPlot", "", 1), Style()} {
		for _, word := range []string{"http:", "https:", "//cdn", "@import", "eval(", "</script"} {
			if strings.Contains(text, word) {
				t.Errorf("a script or style holds %s", word)
			}
		}
	}
	if strings.Contains(chartScript, "innerHTML") {
		t.Error("chart.js writes HTML")
	}
}

var color = regexp.MustCompile(`--(\w+):#(\w\w)(\w\w)(\w\w);`)

// TestContrast has all colours differ from their ground by what WCAG 2.1 asks of letters, or of what is drawn.
func TestContrast(t *testing.T) {
	luminance := func(c []string) (l float64) {
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			var n int
			if _, err := fmt.Sscanf(c[i+2], "%x", &n); err != nil {
				t.Fatal(err)
			}
			v := float64(n) / 255
			if v <= 0.04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+0.055)/1.055, 2.4)
			}
			l += weight * v
		}
		return l
	}
	themes := strings.Split(chartStyle, "\n")[:2]
	for i, theme := range themes {
		all := color.FindAllStringSubmatch(theme, -1)
		if len(all) != 12 || all[0][1] != "bg" {
			t.Fatalf("theme %d has %d colours, the first %v", i, len(all), all[0])
		}
		for _, c := range all {
			least := 3.0
			switch c[1] {
			case "bg", "grid":
				continue
			case "fg", "muted":
				least = 4.5
			}
			a, b := luminance(c), luminance(all[0])
			if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < least {
				t.Errorf("theme %d: the contrast of %s is %.2f, want %v", i, c[1], got, least)
			}
		}
	}
}
