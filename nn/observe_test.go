package nn

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Each pass of each operation is told once, in the order in which they are made, with times that fit into the step's.
func TestObserve(t *testing.T) {
	for threads := 1; threads <= 2; threads++ {
		ps := NewParams(1)
		a, b := ps.Dense("a", 20, 30), ps.Dense("b", 30, 4)
		x, labels := NewTensor(6, 20), make([]int32, 6)
		loss := func(t *Tape) *Tensor {
			l, _ := t.SoftmaxCrossEntropy(t.Dense(t.Dense(x, a, ReLU), b, Identity), labels)
			return l
		}
		if err := ps.Arrange(loss); err != nil {
			t.Fatal(err)
		}
		tape := NewTape(TapeConfig{Threads: threads})
		var told []string
		var sum time.Duration
		begun := time.Now()
		tape.Observe(func(p Timing) {
			told = append(told, fmt.Sprintf("%d%s %s%v", p.Index, p.Node.Op, p.Pass, p.Node.Output.Shape))
			sum += p.Took
			if p.Took < p.Shared || p.Shared < 0 {
				t.Errorf("%v: %v of %v were shared", p.Node.Op, p.Shared, p.Took)
			}
		})
		tape.Reset()
		tape.Backward(loss(tape), func(int) {})
		tape.ResetEval()
		tape.Dense(x, a, ReLU)
		tape.Observe(nil)
		if all := time.Since(begun); sum <= 0 || sum > all {
			t.Errorf("operations took %v of %v", sum, all)
		}
		tape.Dense(x, a, ReLU) // not told of
		tape.Reset()
		want := []string{
			"0dense forward[6 30]", "1dense forward[6 4]", "2softmaxcrossentropy forward[1]",
			"2softmaxcrossentropy backward[1]", "1dense backward[6 4]", "1dense weights[6 4]", "1dense input[6 4]",
			"0dense backward[6 30]", "0dense weights[6 30]", "0dense forward[6 30]",
		}
		if !slices.Equal(told, want) {
			t.Errorf("%d threads: told of\n%q, want\n%q", threads, told, want)
		}
		tape.Close()
	}
}
