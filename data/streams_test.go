package data

import (
	"slices"
	"testing"
)

// The naive twin: the sequences in a row, cut into as many streams as there
// are places in the batches of all ranks.
func TestStreams(t *testing.T) {
	for _, c := range []struct{ n, batch, size int }{{100, 5, 2}, {103, 5, 2}, {20, 20, 1}, {41, 20, 1}, {7, 1, 7}, {9, 2, 2}} {
		streams := c.batch * c.size
		each := c.n / streams
		for rank := range c.size {
			got := epoch(t, SamplerConfig{N: c.n, Batch: c.batch, Rank: rank, Size: c.size, Streams: true}, 3)
			if len(got) != each {
				t.Fatalf("%+v: %d steps, want %d", c, len(got), each)
			}
			for s, idx := range got {
				for b, i := range idx {
					if want := (rank*c.batch+b)*each + s; int(i) != want || len(idx) != c.batch {
						t.Errorf("%+v: rank %d, step %d, place %d is %d, want %d", c, rank, s, b, i, want)
					}
				}
			}
		}
	}
}

// Evaluation sees every sequence once, each place one after the other.
func TestStreamsEvaluate(t *testing.T) {
	for _, c := range []struct{ n, batch, size int }{{100, 5, 2}, {103, 5, 2}, {3, 4, 2}, {41, 20, 1}, {1, 1, 3}, {17, 3, 2}} {
		var all []int32
		n := -1
		for rank := range c.size {
			got := epoch(t, SamplerConfig{N: c.n, Batch: c.batch, Rank: rank, Size: c.size, Streams: true, Evaluate: true}, 0)
			if n >= 0 && len(got) != n {
				t.Errorf("%+v: rank %d makes %d steps, others %d", c, rank, len(got), n)
			}
			n = len(got)
			for s, idx := range got {
				for b, i := range idx {
					if s > 0 && i != got[s-1][b]+1 {
						t.Errorf("%+v: %d follows %d", c, i, got[s-1][b])
					}
				}
				all = append(all, idx...)
			}
		}
		slices.Sort(all)
		for i, v := range all {
			if int(v) != i {
				t.Fatalf("%+v: saw %v", c, all)
			}
		}
		if len(all) != c.n {
			t.Errorf("%+v: %d sequences", c, len(all))
		}
	}
}

func TestSeek(t *testing.T) {
	for _, cfg := range []SamplerConfig{
		{N: 103, Batch: 5, Rank: 1, Size: 2, Seed: 1}, {N: 103, Batch: 5, Rank: 1, Size: 2, Seed: 1, Streams: true},
		{N: 103, Batch: 5, Rank: 1, Size: 2, Evaluate: true}, {N: 103, Batch: 5, Rank: 1, Size: 2, Evaluate: true, Streams: true},
	} {
		want := epoch(t, cfg, 2)
		s, err := NewSampler(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.Start(2)
		for step := len(want); step >= 0; step-- {
			s.Seek(step)
			for _, w := range want[step:] {
				if idx, ok := s.Next(); !ok || !slices.Equal(idx, w) {
					t.Fatalf("%+v: from step %d: %v, want %v", cfg, step, idx, w)
				}
			}
			if _, ok := s.Next(); ok {
				t.Errorf("%+v: more steps than there are", cfg)
			}
		}
		if n := testing.AllocsPerRun(5, func() {
			s.Seek(0)
			for _, ok := s.Next(); ok; _, ok = s.Next() {
			}
		}); n != 0 {
			t.Errorf("%+v: %v allocations", cfg, n)
		}
		for _, step := range []int{-1, len(want) + 1} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%+v: no panic at step %d", cfg, step)
					}
				}()
				s.Seek(step)
			}()
		}
	}
}
