package data

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/data/prng"
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

func madeText(t *testing.T, l *layout.Layout, cfg clicks.GenerateConfig) (string, clicks.Truth) {
	t.Helper()
	m, err := clicks.NewGenerator(l, 1000, 1.05)
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
	whole, truth := madeText(t, l, clicks.GenerateConfig{Rows: 5000, Seed: 1, Threads: 1})
	if sum := fmt.Sprintf("%.4x", sha256.Sum256([]byte(whole))); sum != "1f1ca9d7" {
		t.Errorf("the rows' sha256 begins with %s", sum)
	}
	threads, again := madeText(t, l, clicks.GenerateConfig{Rows: 5000, Seed: 1, Threads: 3})
	first, _ := madeText(t, l, clicks.GenerateConfig{Rows: 2048, Seed: 1, Threads: 2})
	rest, _ := madeText(t, l, clicks.GenerateConfig{Rows: 2952, First: 2048, Seed: 1, Threads: 1})
	if threads != whole || again != truth || first+rest != whole {
		t.Error("rows depend on threads or parts")
	}
	other, _ := madeText(t, l, clicks.GenerateConfig{Rows: 5000, Seed: 1, Part: 1, Threads: 1})
	if other == whole {
		t.Error("another part has the same rows")
	}
	rows, err := readSlotted("made", strings.NewReader(whole), l, 1, 0, new(datafile.Skips))
	if err != nil || rows.Len() != 5000 {
		t.Fatal(err)
	}
	var b Batch
	if err := rows.Fill(&b, upTo32(5000), Draw{}); err != nil {
		t.Fatal(err)
	}
	clicked, seen := 0, 0
	for i, label := range b.Labels {
		clicked += int(label)
		seen += len(b.Bags.Bag(2, b.N, i))
	}
	if truth.Rows != 5000 || truth.Clicks != int64(clicked) || clicked < 1050 || clicked > 1450 || seen < 9500 || seen > 10500 {
		t.Errorf("%+v; %d clicks, %d keys in sequences", truth, clicked, seen)
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
	r := prng.New(1, 2, 3)
	all := clicks.NewTruth()
	var clicked, not []int
	loss := 0.0
	for range 500 {
		bin, click := clicks.OddsBins/2+r.Between(-300, 300), r.Below(3) == 0
		all.Add(bin, click)
		p := 1 / (1 + math.Exp2(-float64(bin-clicks.OddsBins/2)/clicks.OddsFine))
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
	got := all.Summary()
	if math.Abs(got.AUC-pairs/float64(len(clicked)*len(not))) > 1e-12 || math.Abs(got.LogLoss-loss/500) > 1e-12 || got.Clicks != int64(len(clicked)) {
		t.Errorf("%+v, want AUC %v, log-loss %v", got, pairs/float64(len(clicked)*len(not)), loss/500)
	}
}

// Whole numbers make the probabilities that floating-point ones do.
func TestOddsAreProbabilities(t *testing.T) {
	o := clicks.NewOdds()
	for _, x := range []float64{-30, -5, -0.5, 0, 0.25, 3, 24, 99} {
		want := 1 / (1 + math.Exp2(-min(max(x, -clicks.OddsMost), clicks.OddsMost)))
		if got := float64(o.Probability(int64(x*clicks.OddsOne))) / (1 << 32); math.Abs(got-want) > 1e-6 {
			t.Errorf("odds of 2^%v are %v, want %v", x, got, want)
		}
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
			_, err = clicks.NewGenerator(l, 10, 1)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	m, err := clicks.NewGenerator(layoutOf(t, madeLayout), 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []clicks.GenerateConfig{{Threads: 1}, {Rows: 5}, {Rows: 5, Threads: 1, First: 3}} {
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
	m, err := clicks.NewGenerator(l, 1000, 1.05)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var out bytes.Buffer
		if _, err := m.Write(b.Context(), &out, clicks.GenerateConfig{Rows: 2048, Seed: 1, Threads: 1}); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(out.Len()))
	}
}
