package progressive

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// seen is a sample of the naive implementation.
type seen struct {
	score    float32
	positive bool
}

// naiveFigures are metrics by definition.
func naiveFigures(all []seen) (f Figures) {
	scores, positive := make([]float32, len(all)), make([]bool, len(all))
	expected := 0.0
	for i, s := range all {
		scores[i], positive[i] = s.score, s.positive
		right := 1 - float64(s.score)
		if s.positive {
			right = float64(s.score)
			f.Positives++
		}
		f.LogLoss -= math.Log(max(right, leastLog)) / float64(len(all))
		expected += float64(s.score)
	}
	f.Samples, f.AUC, f.Calibration = int64(len(all)), naiveAUC(scores, positive), expected/float64(f.Positives)
	return f
}

func drawSeen(r *rand.Rand, spread float64) seen {
	score := float32(1 / (1 + math.Exp(-spread*r.NormFloat64())))
	switch r.IntN(40) {
	case 0:
		score = 0
	case 1:
		score = 1
	case 2:
		score = 0.5
	}
	return seen{score, r.Float32() < score}
}

// The window's metrics match the definitions on the last samples: the area within its small bound,
// the rest up to rounding; and merged ranks give the same bits as one.
func TestWindow(t *testing.T) {
	for trial, spread := range []float64{0.3, 1, 4, 40} {
		r := rand.New(rand.NewPCG(7, uint64(trial)))
		const window, ranks = 900, 3
		whole := New(window)
		parts := [ranks]*Window{}
		for i := range parts {
			parts[i] = New(window / ranks)
		}
		var all []seen
		for step := range 800 {
			for k := range ranks { // in turns, as ranks in step
				s := drawSeen(r, spread)
				all = append(all, s)
				whole.Add(s.score, s.positive)
				parts[k].Add(s.score, s.positive)
			}
			if step != 50 && step != 300 && step != 799 {
				continue
			}
			got, want := whole.Counts().Figures(), naiveFigures(all[max(0, len(all)-window):])
			if got.Samples != want.Samples || got.Positives != want.Positives || !got.Ranked {
				t.Fatalf("spread %v: %+v, want %+v", spread, got, want)
			}
			if math.Abs(got.AUC-want.AUC) > got.AUCError+1e-12 || got.AUCError > 0.01 || got.AUCError < 0 {
				t.Errorf("spread %v: an area of %v ± %v, want %v", spread, got.AUC, got.AUCError, want.AUC)
			}
			if math.Abs(got.LogLoss-want.LogLoss) > 1e-6*(1+want.LogLoss) || math.Abs(got.Calibration-want.Calibration) > 1e-8 {
				t.Errorf("spread %v: log-loss %v, calibration %v, want %v and %v", spread, got.LogLoss, got.Calibration, want.LogLoss, want.Calibration)
			}
			var merged Counts
			for k := range slices.Backward(parts[:]) {
				if err := merged.Merge(parts[k].Counts().Append(nil)); err != nil {
					t.Fatal(err)
				}
			}
			if merged.Figures() != got {
				t.Errorf("spread %v: of three ranks %+v, of one %+v", spread, merged.Figures(), got)
			}
		}
	}
}

// A window whose other samples are gone equals a new window bit for bit; invalid scores do no harm.
func TestWindowEdges(t *testing.T) {
	if f := New(5).Counts().Figures(); f != (Figures{}) {
		t.Errorf("of nothing: %+v", f)
	}
	p := New(1)
	for _, score := range []float32{0.3, float32(math.NaN()), float32(math.Inf(1)), -1, float32(math.Copysign(0, -1))} {
		p.Add(score, true)
		p.Add(score, false)
	}
	p.Add(0.25, true)
	f := p.Counts().Figures()
	if f.Samples != 1 || f.Positives != 1 || f.Ranked || f.Calibration != 0.25 || math.Abs(f.LogLoss-math.Log(4)) > 1e-7 {
		t.Errorf("of one sample: %+v", f)
	}
}

// Bins follow the order of scores, with a width of at most 1/512 of the score or of the distance to
// 1.
func TestScoreBins(t *testing.T) {
	last := -1
	for bits := uint32(0); bits <= math.Float32bits(1); bits += 977 {
		score := math.Float32frombits(bits)
		bin := binOf(score)
		if bin < last || bin >= scoreBins {
			t.Fatalf("score %v is in bin %d after bin %d", score, bin, last)
		}
		last = bin
	}
	if binOf(0) != 0 || binOf(1) != scoreBins-1 {
		t.Errorf("bins of 0 and 1: %d and %d of %d", binOf(0), binOf(1), scoreBins)
	}
	for _, score := range []float32{1e-6, 0.003, 0.1, 0.3, 0.7, 0.99, 1 - 1e-5} {
		width := min(score, 1-score) / 256
		if binOf(score-width) == binOf(score) || binOf(score+width) == binOf(score) {
			t.Errorf("the bin of %v is wider than %v", score, width)
		}
	}
}

// Merge reads Append's output and refuses invalid bytes without a panic.
func FuzzMerge(f *testing.F) {
	p := New(9)
	for i := range 20 {
		p.Add(float32(i)/20, i%3 == 0)
	}
	f.Add(p.Counts().Append(nil))
	f.Add([]byte{0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, again Counts
		if c.Merge(b) != nil {
			return
		}
		if err := again.Merge(c.Append(nil)); err != nil || again != c {
			t.Fatalf("what was read is not what is written: %v", err)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	p, r := New(1_000_000), rand.New(rand.NewPCG(1, 1))
	samples := make([]seen, 1<<12)
	for i := range samples {
		samples[i] = drawSeen(r, 2)
	}
	for i := 0; b.Loop(); i++ {
		s := samples[i%len(samples)]
		p.Add(s.score, s.positive)
	}
}

// naiveAUC compares every positive with every negative.
func naiveAUC(scores []float32, positive []bool) float64 {
	won, pairs := 0.0, 0.0
	for i := range scores {
		for j := range scores {
			if !positive[i] || positive[j] {
				continue
			}
			pairs++
			switch {
			case scores[i] > scores[j]:
				won++
			case scores[i] == scores[j]:
				won += 0.5
			}
		}
	}
	return won / pairs
}
