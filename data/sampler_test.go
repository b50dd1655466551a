package data

import (
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

// The naive twin: shuffle, cut into shards, cut into batches.
func TestTrainingBatches(t *testing.T) {
	for _, c := range []struct{ n, batch, size, steps int }{
		{100, 10, 1, 10}, {103, 10, 2, 5}, {103, 10, 5, 2}, {64, 64, 1, 1}, {129, 64, 2, 1}, {60000, 64, 4, 234},
	} {
		order := permutation(7, 2, c.n, nil)
		for rank := range c.size {
			got := epoch(t, SamplerConfig{N: c.n, Batch: c.batch, Rank: rank, Size: c.size, Seed: 7}, 2)
			shard := order[rank*(c.n/c.size):][:c.n/c.size]
			var want [][]int32
			for len(shard) >= c.batch {
				want = append(want, shard[:c.batch])
				shard = shard[c.batch:]
			}
			if len(got) != c.steps || !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%+v, rank %d: %d batches differ from the twin's %d", c, rank, len(got), len(want))
			}
		}
	}
}

// The naive twin: cut into parts, shuffle each, cut into batches, no more than are wanted.
func TestFixedBatches(t *testing.T) {
	for _, c := range []struct{ n, batch, size, most, steps int }{{100, 10, 1, 0, 10}, {103, 10, 2, 0, 5}, {103, 10, 5, 1, 1}, {129, 64, 2, 7, 1}} {
		each := c.n / c.size
		for rank := range c.size {
			cfg := SamplerConfig{N: c.n, Batch: c.batch, Rank: rank, Size: c.size, Seed: 7, Fixed: true, Most: c.most}
			s, err := NewSampler(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for _, number := range []int{3, 1, 3} { // what an epoch is does not depend on those before
				var want [][]int32
				for part := permutation(7, number, each, nil); len(part) >= c.batch && len(want) < c.steps; part = part[c.batch:] {
					batch := slices.Clone(part[:c.batch])
					for i := range batch {
						batch[i] += int32(rank * each)
					}
					want = append(want, batch)
				}
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
