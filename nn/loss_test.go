package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// lossNaive is the definition, in float64: the mean loss, the number of rows
// whose first largest logit is the label's, and the gradient.
func lossNaive(x []float32, labels []int32) (loss float64, correct int, dx []float64) {
	classes := len(x) / len(labels)
	n := float64(len(labels))
	for i, label := range labels {
		row := wide(x[i*classes : (i+1)*classes])
		most, best := math.Inf(-1), 0
		for j, v := range row {
			if v > most {
				most, best = v, j
			}
		}
		sum := 0.0
		for _, v := range row {
			sum += math.Exp(v - most)
		}
		loss += (math.Log(sum) - (row[label] - most)) / n
		if best == int(label) {
			correct++
		}
		for j, v := range row {
			p := math.Exp(v-most) / sum
			if j == int(label) {
				p--
			}
			dx = append(dx, p/n)
		}
	}
	return loss, correct, dx
}

func TestSoftmaxCrossEntropyOfAnyWidth(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	for _, s := range [][2]int{{1, 1}, {3, 2}, {64, 10}, {5, 15}, {4, 16}, {7, 33}, {2, 1024}, {9, 1000}, {3, 10_003}, {2, 50_000}, {700, 129}} {
		n, classes := s[0], s[1]
		x, labels := NewTensor(n, classes), make([]int32, n)
		x.needs = true
		for i := range x.Data {
			x.Data[i] = float32(math.Round(r.NormFloat64()*40) / 8) // with ties
		}
		for i := range labels {
			labels[i] = int32(r.IntN(classes))
			if i%3 == 0 { // a largest one, be it the first or not
				row := x.Data[i*classes : (i+1)*classes]
				labels[i] = int32(slices.Index(row, slices.Max(row)))
				row[r.IntN(classes)] = row[labels[i]]
			}
		}
		want, wantCorrect, wantDX := lossNaive(x.Data, labels)
		var first []float32
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			eachTape(t, func(t *testing.T, tape *Tape) {
				loss, correct := tape.SoftmaxCrossEntropy(x, labels)
				if correct != wantCorrect || !near(float64(loss.Data[0]), want, 1e-6) {
					t.Errorf("loss %v, %d correct; want %v, %d", loss.Data[0], correct, want, wantCorrect)
				}
				tape.Backward(loss, nil)
				got := append(slices.Clone(x.gradient()), loss.Data[0])
				for i, v := range wantDX {
					if math.Abs(float64(got[i])-v) > 3e-6*math.Abs(v)+1e-7/float64(n) {
						t.Fatalf("dx[%d] = %v, want %v", i, got[i], v)
					}
				}
				if first == nil {
					first = got
				}
				if !slices.Equal(first, got) {
					t.Error("other bits than the first level")
				}
			})
		})
	}
}

func TestLossDoesNotAllocate(t *testing.T) {
	x, labels := NewTensor(30, 1000), make([]int32, 30)
	x.needs = true
	tape := NewTape(TapeConfig{Threads: 2})
	defer tape.Close()
	step := func() {
		tape.Reset()
		loss, _ := tape.SoftmaxCrossEntropy(x, labels)
		tape.Backward(loss, nil)
	}
	step()
	if n := testing.AllocsPerRun(5, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// BenchmarkLoss is the loss of a language model, 35 steps of 20 sequences.
func BenchmarkLoss(b *testing.B) {
	x, labels := NewTensor(700, 10_000), make([]int32, 700)
	copy(x.Data, random(rand.New(rand.NewPCG(53, 54)), x.Len()))
	x.needs = true
	tape := NewTape(TapeConfig{})
	b.SetBytes(3 * 4 * int64(x.Len())) // logits twice, their gradient once
	for b.Loop() {
		tape.Reset()
		loss, _ := tape.SoftmaxCrossEntropy(x, labels)
		tape.Backward(loss, nil)
	}
}
