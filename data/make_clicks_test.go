package data

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/layout"
)

const madeLayout = `
columns:
  - {name: y, kind: label}
  - {name: n, kind: number, transform: log}
  - {name: m, kind: number}
  - {kind: ignore}
  - {name: c, kind: category, values: hex, make: {values: 50}}
  - {name: item, kind: category, values: key, table: items}
  - {name: seen, kind: sequence, values: key, table: items, make: {values: 300, least: 1, most: 3}}
  - {name: tags, kind: bag}
`

func madeText(t *testing.T, l *layout.Layout, cfg GenerateConfig) (string, ClickTruth) {
	t.Helper()
	m, err := NewClickMaker(l, 1000, 1.05)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	truth, err := m.Write(t.Context(), &out, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), truth
}

// Rows are the same bytes whatever the threads and the machine, parts of them are what the whole has, and the layout reads them.
func TestMadeClicks(t *testing.T) {
	l := layoutOf(t, madeLayout)
	whole, truth := madeText(t, l, GenerateConfig{Rows: 5000, Seed: 1, Threads: 1})
	if sum := fmt.Sprintf("%.4x", sha256.Sum256([]byte(whole))); sum != "1f1ca9d7" {
		t.Errorf("the rows' sha256 begins with %s", sum)
	}
	threads, again := madeText(t, l, GenerateConfig{Rows: 5000, Seed: 1, Threads: 3})
	first, _ := madeText(t, l, GenerateConfig{Rows: 2048, Seed: 1, Threads: 2})
	rest, _ := madeText(t, l, GenerateConfig{Rows: 2952, First: 2048, Seed: 1, Threads: 1})
	if threads != whole || again != truth || first+rest != whole {
		t.Error("rows depend on threads or parts")
	}
	other, _ := madeText(t, l, GenerateConfig{Rows: 5000, Seed: 1, Part: 1, Threads: 1})
	if other == whole {
		t.Error("another part has the same rows")
	}
	rows, err := readSlotted("made", strings.NewReader(whole), l, 1, 0, new(skips))
	if err != nil || rows.Len() != 5000 {
		t.Fatal(err)
	}
	var b Batch
	if err := rows.Fill(&b, upTo32(5000), Draw{}); err != nil {
		t.Fatal(err)
	}
	clicks, seen := 0, 0
	for i, label := range b.Labels {
		clicks += int(label)
		seen += len(b.Bags.Bag(2, b.N, i))
	}
	if truth.Rows != 5000 || truth.Clicks != int64(clicks) || clicks < 1050 || clicks > 1450 || seen < 9500 || seen > 10500 {
		t.Errorf("%+v; %d clicks, %d keys in sequences", truth, clicks, seen)
	}
	if truth.AUC < 0.75 || truth.AUC > 0.95 || truth.LogLoss < 0.3 || truth.LogLoss > 0.55 {
		t.Errorf("%+v", truth)
	}
}

func upTo32(n int) (out []int32) {
	for i := range n {
		out = append(out, int32(i))
	}
	return out
}

// What the best model finds is what a naive count of its scores does.
func TestClickTruth(t *testing.T) {
	r := stream(1, 2, 3)
	all := newTruth()
	var clicked, not []int
	loss := 0.0
	for range 500 {
		bin, click := oddsBins/2+r.between(-300, 300), r.below(3) == 0
		all.add(bin, click)
		p := 1 / (1 + math.Exp2(-float64(bin-oddsBins/2)/oddsFine))
		if click {
			clicked, loss = append(clicked, bin), loss-math.Log(p)
		} else {
			not, loss = append(not, bin), loss-math.Log(1-p)
		}
	}
	pairs := 0.0
	for _, c := range clicked {
		for _, n := range not {
			if c > n {
				pairs++
			} else if c == n {
				pairs += 0.5
			}
		}
	}
	got := all.told()
	if math.Abs(got.AUC-pairs/float64(len(clicked)*len(not))) > 1e-12 || math.Abs(got.LogLoss-loss/500) > 1e-12 || got.Clicks != int64(len(clicked)) {
		t.Errorf("%+v, want AUC %v, log-loss %v", got, pairs/float64(len(clicked)*len(not)), loss/500)
	}
}

// Whole numbers make the powers, logarithms and probabilities that floating-point ones do.
func TestWholeNumbers(t *testing.T) {
	roots := newPowers()
	for x := int64(-20 << 16); x <= 0; x += 4999 {
		if got, want := float64(roots.of(x))/(1<<32), math.Exp2(float64(x)/(1<<16)); math.Abs(got-want) > 1e-9 {
			t.Errorf("2^%v is %v, want %v", float64(x)/(1<<16), got, want)
		}
	}
	for x := uint64(1); x < 1<<62; x = x*3/2 + 1 {
		if got, want := float64(log2(x))/(1<<16), math.Log2(float64(x)); math.Abs(got-want) > 1.0/(1<<15) {
			t.Errorf("log2 of %d is %v, want %v", x, got, want)
		}
	}
	o := newOdds()
	for _, x := range []float64{-30, -5, -0.5, 0, 0.25, 3, 24, 99} {
		want := 1 / (1 + math.Exp2(-min(max(x, -oddsMost), oddsMost)))
		if got := float64(o.probability(int64(x*oddsOne))) / (1 << 32); math.Abs(got-want) > 1e-6 {
			t.Errorf("odds of 2^%v are %v, want %v", x, got, want)
		}
	}
}

// Values come as often as Zipf's law says, in ranges and each.
func TestHeat(t *testing.T) {
	for _, c := range []struct {
		values   uint64
		exponent float64
	}{{1, 1}, {10, 0.5}, {100_000, 1.05}, {1 << 30, 0.8}, {1 << 30, 2}} {
		h, err := newHeat(c.values, c.exponent)
		if err != nil {
			t.Fatal(err)
		}
		weight := func(lo, hi uint64) float64 { // of values from lo to below hi, from 0
			sum := 0.0
			for v := lo; v < min(hi, lo+1000); v++ {
				sum += math.Pow(float64(v+1), -c.exponent)
			}
			if hi > lo+1000 { // by Euler and Maclaurin's first terms
				a, b := float64(lo+1000)+0.5, float64(hi)+0.5
				sum += (math.Pow(b, 1-c.exponent) - math.Pow(a, 1-c.exponent)) / (1 - c.exponent)
			}
			return sum
		}
		const draws = 200_000
		edges := []uint64{0, 1, 2, 10, 100, 1000, 1 << 20, 1 << 30}
		counts := make([]int, len(edges))
		r := stream(7, 8, 9)
		for range draws {
			v := h.draw(&r)
			if v >= c.values {
				t.Fatalf("value %d of %d", v, c.values)
			}
			at, _ := slices.BinarySearch(edges, v+1)
			counts[at-1]++
		}
		for i := range len(edges) - 1 {
			lo, hi := min(edges[i], c.values), min(edges[i+1], c.values)
			want := draws * weight(lo, hi) / weight(0, c.values)
			if got := float64(counts[i]); math.Abs(got-want) > 5*math.Sqrt(want)+0.01*want+5 {
				t.Errorf("%+v: values from %d to %d come %v times, want %v", c, lo, hi, got, want)
			}
		}
	}
	if _, err := newHeat(0, 1); err == nil {
		t.Error("no values at all are taken")
	}
}

func TestClickMakerFaults(t *testing.T) {
	for says, text := range map[string]string{
		`one of "\tx" stands`: "columns:\n  - {name: y, kind: label}\n  - {name: b, kind: bag, separator: x}\n",
		"32 bits":             "columns:\n  - {name: y, kind: label}\n  - {name: b, kind: category, values: hex, make: {values: 5000000000}}\n",
		"exponent 11":         "columns:\n  - {name: y, kind: label}\n  - {name: b, kind: category, make: {zipf: 11}}\n",
	} {
		l, err := layout.Read("x", strings.NewReader(text))
		if err == nil {
			_, err = NewClickMaker(l, 10, 1)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	m, err := NewClickMaker(layoutOf(t, madeLayout), 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []GenerateConfig{{Threads: 1}, {Rows: 5}, {Rows: 5, Threads: 1, First: 3}} {
		if _, err := m.Write(t.Context(), new(bytes.Buffer), cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

func BenchmarkMadeClicks(b *testing.B) {
	l, err := layout.Open("mlperf")
	if err != nil {
		b.Fatal(err)
	}
	m, err := NewClickMaker(l, 1000, 1.05)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var out bytes.Buffer
		if _, err := m.Write(b.Context(), &out, GenerateConfig{Rows: 2048, Seed: 1, Threads: 1}); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(out.Len()))
	}
}
