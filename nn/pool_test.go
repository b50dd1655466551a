package nn

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// unevenJob has one part that needs working memory.
type unevenJob struct{ big int }

func (j *unevenJob) part(w *worker, i int) {
	if i == j.big {
		w.floats(2, 1000)
		x := make([]float32, 9)
		w.k.Gemm(&w.gemm, true, false, 3, 3, 3, x, 3, x, 3, false, make([]float32, 9), 3)
	}
}

// Whoever ran the part that needs memory, all have it afterwards.
func TestPoolLevelsMemory(t *testing.T) {
	p := newPool(simd.Host(), 3)
	defer p.close()
	p.run(&unevenJob{big: 1}, 3)
	p.level()
	for i := range p.workers {
		w := &p.workers[i]
		if cap(w.buf[2]) < 1000 {
			t.Errorf("worker %d has room for %d values, want 1000", i, cap(w.buf[2]))
		}
	}
}

// A tape's threads run others' work between its operations, each part once.
func TestTapeRuns(t *testing.T) {
	tape := NewTape(TapeConfig{Threads: 3})
	defer tape.Close()
	var parts [40]int
	tape.Run(len(parts), func(i int) { parts[i]++ })
	for i, n := range parts {
		if n != 1 || tape.Threads() != 3 {
			t.Errorf("part %d ran %d times on %d threads", i, n, tape.Threads())
		}
	}
}

func TestDryPoolRunsNothing(t *testing.T) {
	p := newPool(simd.Host(), 1)
	p.dry = true
	p.run(&unevenJob{big: 0}, 1)
	if cap(p.workers[0].buf[2]) != 0 {
		t.Error("a dry pool ran a part")
	}
}
