package data

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// epoch collects the batches of one epoch.
func epoch(t *testing.T, cfg SamplerConfig, number int) (batches [][]int32) {
	t.Helper()
	s, err := NewSampler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Start(number)
	for idx, ok := s.Next(); ok; idx, ok = s.Next() {
		batches = append(batches, slices.Clone(idx))
	}
	if len(batches) != s.Steps() {
		t.Fatalf("%+v: %d batches, Steps says %d", cfg, len(batches), s.Steps())
	}
	return batches
}

// shared is the naive twin of a rank's part: full batches, then the rest. A part without a rest,
// where others have one, gives up the last sample of its last batch for it.
func shared(part []int32, batch, steps int) (out [][]int32) {
	for len(part) > batch {
		out, part = append(out, part[:batch]), part[batch:]
	}
	if out = append(out, part); len(out) < steps {
		out = append(out[:len(out)-1], part[:len(part)-1], part[len(part)-1:])
	}
	return out
}

var trainingCases = []struct{ n, batch, size, steps int }{
	{100, 10, 1, 10}, {100, 10, 5, 2}, {103, 10, 2, 6}, {103, 10, 5, 3}, {64, 64, 1, 1}, {129, 64, 2, 2}, {128, 64, 2, 1}, {93, 64, 1, 2}, {60001, 64, 4, 235}, {5, 2, 2, 2},
}

// Training batches are those of the naive twin: shuffle, cut into parts, cut into batches.
func TestTrainingBatches(t *testing.T) {
	for _, c := range trainingCases {
		order := permutation(7, 2, c.n, nil)
		for rank := range c.size {
			cfg := SamplerConfig{N: c.n, Batch: c.batch, Rank: rank, Size: c.size, Seed: 7}
			got := epoch(t, cfg, 2)
			lo, hi := partition(c.n, rank, c.size, false)
			if want := shared(order[lo:hi], c.batch, c.steps); len(got) != c.steps || !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%+v, rank %d: %v differ from the twin's %v", c, rank, got, want)
			}
			for i, b := range got {
				if len(b) != cfg.Samples(i) || len(b) == 0 {
					t.Errorf("%+v, rank %d: batch %d has %d samples, %d announced: want them equal, and some", c, rank, i, len(b), cfg.Samples(i))
				}
			}
			if n := cfg.Samples(c.steps); n != 0 {
				t.Errorf("%+v: %d samples after the last batch", c, n)
			}
		}
	}
}

// An epoch of training has every sample once, but for those that ranks cannot share with a batch of
// one.
func TestTrainingSeesEverySampleOnce(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		for _, c := range append(trainingCases, struct{ n, batch, size, steps int }{7, 1, 2, 3}) {
			seen := map[int32]int{}
			for rank := range c.size {
				for _, b := range epoch(t, SamplerConfig{N: c.n, Batch: c.batch, Rank: rank, Size: c.size, Seed: 3, Fixed: fixed}, 1) {
					for _, i := range b {
						seen[i]++
					}
				}
			}
			want := c.n
			if c.batch == 1 {
				want -= c.n % c.size
			}
			if len(seen) != want || slices.Max(slices.Collect(maps.Values(seen))) != 1 {
				t.Errorf("%+v, fixed %v: %d samples of %d, want %d, each once", c, fixed, len(seen), c.n, want)
			}
		}
	}
}

// The naive twin: cut into parts, shuffle each, cut into batches, no more than are wanted.
func TestFixedBatches(t *testing.T) {
	for _, c := range []struct{ n, batch, size, most, steps int }{{100, 10, 1, 0, 10}, {103, 10, 2, 0, 6}, {103, 10, 5, 1, 1}, {129, 64, 2, 7, 2}} {
		for rank := range c.size {
			cfg := SamplerConfig{N: c.n, Batch: c.batch, Rank: rank, Size: c.size, Seed: 7, Fixed: true, Most: c.most}
			s, err := NewSampler(cfg)
			if err != nil {
				t.Fatal(err)
			}
			lo, hi := partition(c.n, rank, c.size, false)
			for _, number := range []int{3, 1, 3} { // what an epoch is does not depend on those before
				part := permutation(7, number, hi-lo, nil)
				for i := range part {
					part[i] += int32(lo)
				}
				want := shared(part, c.batch, c.steps)[:c.steps]
				var got [][]int32
				s.Start(number)
				for idx, ok := s.Next(); ok; idx, ok = s.Next() {
					got = append(got, slices.Clone(idx))
				}
				if len(got) != c.steps || s.Steps() != c.steps || !slices.EqualFunc(got, want, slices.Equal) {
					t.Errorf("%+v, rank %d, epoch %d: %v, want %v", c, rank, number, got, want)
				}
			}
		}
	}
	if got := len(epoch(t, SamplerConfig{N: 100, Batch: 5, Size: 2, Streams: true, Most: 3}, 0)); got != 3 {
		t.Errorf("streams of 10 steps make %d of at most 3", got)
	}
}

func TestEvaluationSeesEverySampleOnce(t *testing.T) {
	for _, c := range []struct{ n, batch, size int }{{10, 3, 1}, {129, 64, 2}, {5, 2, 8}, {10000, 100, 3}, {1, 1, 1}} {
		var all []int32
		steps := -1
		for rank := range c.size {
			got := epoch(t, SamplerConfig{N: c.n, Batch: c.batch, Rank: rank, Size: c.size, Evaluate: true}, 0)
			if steps >= 0 && len(got) != steps {
				t.Errorf("%+v: rank %d makes %d steps, others %d", c, rank, len(got), steps)
			}
			steps = len(got)
			all = append(all, slices.Concat(got...)...)
		}
		for i, v := range all {
			if int(v) != i {
				t.Fatalf("%+v: sample %d at %d", c, v, i)
			}
		}
		if len(all) != c.n {
			t.Errorf("%+v: %d samples", c, len(all))
		}
	}
}

func TestSamplerStartsAnyEpochAfresh(t *testing.T) {
	cfg := SamplerConfig{N: 50, Batch: 5, Rank: 1, Size: 2, Seed: 3}
	s, err := NewSampler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Next(); ok {
		t.Error("a batch before Start")
	}
	for _, e := range []int{4, 0, 4} {
		s.Start(e)
		s.Next()
		s.Start(e) // given up in the middle
		for i, want := range epoch(t, cfg, e) {
			if got, ok := s.Next(); !ok || !slices.Equal(got, want) {
				t.Fatalf("epoch %d batch %d: %v, want %v", e, i, got, want)
			}
		}
	}
}

func TestSamplerDoesNotAllocate(t *testing.T) {
	s, err := NewSampler(SamplerConfig{N: 1000, Batch: 10, Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(5, func() {
		s.Start(1)
		for _, ok := s.Next(); ok; _, ok = s.Next() {
		}
	}); n != 0 {
		t.Errorf("an epoch allocates %v times", n)
	}
}

func TestSamplerConfigFaults(t *testing.T) {
	for _, c := range []struct {
		cfg  SamplerConfig
		want []string
	}{
		{SamplerConfig{N: 0, Batch: -1, Rank: 3, Size: 2}, []string{"0 samples", "batch -1", "rank 3 of 2"}},
		{SamplerConfig{N: 5, Batch: 1}, []string{"world size 0"}},
		{SamplerConfig{N: 100, Batch: 64, Size: 2}, []string{"100 samples over 2 ranks give each 50, fewer than one batch of 64", "fewer ranks, a smaller batch"}},
		{SamplerConfig{N: -5, Batch: 1, Size: 1}, []string{"-5 samples"}},
	} {
		_, err := NewSampler(c.cfg)
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v, want it to say %q", c.cfg, err, w)
			}
		}
	}
	if err := (SamplerConfig{N: 10, Batch: 64, Size: 2, Evaluate: true}).Validate(); err != nil {
		t.Errorf("evaluation of a small set: %v", err)
	}
}
