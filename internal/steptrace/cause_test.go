package steptrace

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// usual are steps of four ranks that nothing slows, over a link of 1 GB/s that takes 0.05 ms for an exchange.
func usual() Job {
	j := Job{PerStep: 4, Together: 0.7, Foreign: 0.05}
	for n := range 4 {
		j.Ranks = append(j.Ranks, RankTimes{Number: 2 * n, StepMS: 10, ComputeMS: 6, DataMS: 0.5, CompressMS: 0.5, UpdateMS: 0.5, ExposedMS: 2.5, QueuedMS: 0.3})
	}
	j.Exchanges = over(1e9, 0.05, 100e3, 200e3, 300e3, 400e3)
	return j
}

// over are exchanges over a link.
func over(rate, each float64, sizes ...float64) (out []ExchangeTime) {
	for _, bytes := range sizes {
		out = append(out, ExchangeTime{bytes, each + bytes/rate*1e3})
	}
	return out
}

func many(n int, bytes float64) (out []float64) {
	for i := range n {
		out = append(out, bytes*(0.5+float64(i)/float64(n)))
	}
	return out
}

func TestFindCause(t *testing.T) {
	tensors := many(65, 4e3)
	for name, c := range map[string]struct {
		change func(*Job)
		kind   CauseKind // "": nothing
		rank   int
		says   string
	}{
		"undisturbed":   {func(*Job) {}, "", 0, ""},
		"no ranks":      {func(j *Job) { j.Ranks = nil }, "", 0, ""},
		"a slow rank":   {func(j *Job) { j.Ranks[2].ComputeMS += 3 }, SlowRank, 4, "rank 4 holds up the others"},
		"hardly slower": {func(j *Job) { j.Ranks[2].ComputeMS += 1.9 }, "", 0, ""},
		"a limit of its own: it queues though nobody else runs": {func(j *Job) { j.Ranks[1].ComputeMS += 5; j.Ranks[1].QueuedMS = 5; j.Foreign = 0.02 }, SlowRank, 2, ""},
		"its core is taken": {func(j *Job) { j.Ranks[1].ComputeMS += 5; j.Ranks[1].QueuedMS = 5.2; j.Foreign = 0.5 }, CoreTaken, 2, "on 0.5 processors"},
		"all share what is left": {func(j *Job) {
			for i := range j.Ranks {
				j.Ranks[i].QueuedMS = 2.5
			}
			j.Foreign = 1
		}, CoreTaken, 0, ""},
		"more ranks than processors": {func(j *Job) {
			for i := range j.Ranks {
				j.Ranks[i].QueuedMS = 5
				j.Ranks[i].ExposedMS = 7
			}
			j.Exchanges = over(50e6, 0, 100e3, 400e3)
		}, "", 0, ""},
		"others run elsewhere": {func(j *Job) { j.Foreign = 3 }, "", 0, ""},
		"a slow disk": {func(j *Job) {
			for i := range j.Ranks {
				j.Ranks[i].DataMS = 4
				j.Ranks[i].StorageBytes = 2e6
			}
		}, SlowDisk, -1, "storage reads at 2 MB/s"},
		"a slow disk of one rank": {func(j *Job) { j.Ranks[3].DataMS = 4; j.Ranks[3].StorageBytes = 2e6 }, SlowDisk, 6, "rank 6 waits 4.00 ms"},
		"slow preparation": {func(j *Job) {
			for i := range j.Ranks {
				j.Ranks[i].DataMS = 4
			}
		}, SlowData, -1, "in memory"},
		"a slow link":                                    {func(j *Job) { slow(j, over(12e6, 0.1, 100e3, 200e3, 300e3, 400e3)) }, SlowLink, -1, "12 MB/s"},
		"a slow link and one bucket":                     {func(j *Job) { slow(j, over(12e6, 0.1, 1e6, 1e6, 1e6)); j.PerStep = 1 }, SlowLink, -1, "MB/s"},
		"much over a fast link":                          {func(j *Job) { slow(j, over(1e9, 0.1, 1e7, 2e7)) }, "", 0, ""},
		"they wait for a rank":                           {func(j *Job) { slow(j, over(12e6, 0.1, 1e5, 4e5)); j.Together = 0.05 }, "", 0, ""},
		"small buckets":                                  {func(j *Job) { slow(j, over(1e9, 0.3, tensors...)); j.PerStep = 65 }, SmallBuckets, -1, "65 exchanges of 3.97 kB"},
		"small buckets, all the same":                    {func(j *Job) { slow(j, over(1e9, 0.3, 4e3, 4e3, 4e3, 4e3, 4e3)); j.PerStep = 5 }, SmallBuckets, -1, ""},
		"small ones on a link whose bytes take the time": {func(j *Job) { slow(j, over(1e6, 0.3, tensors...)); j.PerStep = 65 }, SlowLink, -1, "1 MB/s"},
		"few buckets far away":                           {func(j *Job) { slow(j, over(1e9, 5, 1e3, 2e3)); j.PerStep = 2 }, "", 0, ""},
		"they share memory":                              {func(j *Job) { slow(j, []ExchangeTime{{0, 5}, {0, 5}}) }, "", 0, ""},
		"the larger of two":                              {func(j *Job) { j.Ranks[2].ComputeMS += 3; j.Ranks[1].DataMS += 5 }, SlowData, 2, ""},
		"no figures": {func(j *Job) {
			for i := range j.Ranks {
				j.Ranks[i] = RankTimes{StepMS: math.NaN()}
			}
		}, "", 0, ""},
		"no steps": {func(j *Job) { j.Ranks = make([]RankTimes, 4) }, "", 0, ""},
	} {
		j := usual()
		c.change(&j)
		got, ok := FindCause(j)
		if ok != (c.kind != "") || ok && (got.Kind != c.kind || got.Rank != c.rank || !strings.Contains(got.Text, c.says) || got.Text == "" || !(got.Share > conspicuous)) {
			t.Errorf("%s: %+v, %v; want %s of rank %d, %q", name, got, ok, c.kind, c.rank, c.says)
		}
	}
}

// slow makes exchanges half of the step.
func slow(j *Job, all []ExchangeTime) {
	j.Exchanges = all
	for i := range j.Ranks {
		j.Ranks[i].StepMS += 8
		j.Ranks[i].ExposedMS += 8
	}
}

// The line through exchanges is found though each of them is far from it.
func TestLine(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []ExchangeTime
	for range 2000 {
		x := ExchangeTime{Bytes: 1e6 * rng.Float64()}
		x.MS = (0.2 + x.Bytes/1e8*1e3) * 2 * rng.Float64()
		all = append(all, x)
	}
	if each, perByte := line(all); math.Abs(each-0.2) > 0.2 || math.Abs(perByte*1e5-1) > 0.1 {
		t.Errorf("%v ms each and %v ms a byte", each, perByte)
	}
	// Longer with fewer bytes: not the bytes.
	if each, perByte := line([]ExchangeTime{{1e5, 3}, {4e5, 1}}); each != 2 || perByte != 0 {
		t.Errorf("%v, %v", each, perByte)
	}
	// As long as the bytes say, and not below zero each.
	if each, perByte := line([]ExchangeTime{{1e5, 0.1}, {4e5, 4}}); each < 0 || perByte < 0 {
		t.Errorf("%v, %v", each, perByte)
	}
}

func TestStragglers(t *testing.T) {
	with := func(change func(r *RankTimes)) []RankTimes {
		all := usual().Ranks
		change(&all[2])
		return all
	}
	for _, c := range []struct {
		all  []RankTimes
		want string
	}{
		{with(func(r *RankTimes) {}), ""},
		{with(func(r *RankTimes) { r.ComputeMS += 1; r.ExposedMS -= 1 }), ""},
		{with(func(r *RankTimes) { r.ComputeMS += 3; r.ExposedMS -= 2 }), "rank 4 holds up the others: its step takes 3.00 ms of its own more than theirs; it computes 3.00 ms longer"},
		{with(func(r *RankTimes) { r.ComputeMS += 0.5; r.DataMS += 3.5 }), "it waits for data 3.50 ms longer"},
		{with(func(r *RankTimes) { r.CompressMS += 3 }), "it is in codecs 3.00 ms longer"},
		{with(func(r *RankTimes) { r.UpdateMS += 3 }), "it updates 3.00 ms longer"},
		{with(func(r *RankTimes) { r.ExposedMS += 3; r.ServersMS += 3 }), ""}, // it waits for others
		{usual().Ranks[:1], ""},
		{nil, ""},
		{with(func(r *RankTimes) { r.ComputeMS = math.NaN() }), ""},
	} {
		got := Stragglers(c.all)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0].Text, c.want) || got[0].Rank != 4) {
			t.Errorf("%+v: %+v, want %q", c.all, got, c.want)
		}
	}
}

// medianWithout is column.without by sorting anew.
func medianWithout(all []float64, rank int) float64 {
	rest := slices.Sorted(slices.Values(slices.Delete(slices.Clone(all), rank, rank+1)))
	return (rest[(len(rest)-1)/2] + rest[len(rest)/2]) / 2
}

// The median of the others is that which sorting them finds, with equal figures, and ones that are no numbers, too.
func TestMedianOfTheOthers(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		ranks := make([]RankTimes, 2+random.IntN(9))
		for i := range ranks {
			if ranks[i].StepMS = float64(random.IntN(6)); random.IntN(20) == 0 {
				ranks[i].StepMS = math.NaN()
			}
		}
		c := columnOf(ranks, func(r RankTimes) float64 { return r.StepMS })
		for i := range ranks {
			if got, want := c.without(i), medianWithout(c.of, i); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Fatalf("of %v without %d: %v, want %v", c.of, i, got, want)
			}
		}
	}
}

// BenchmarkStragglers looks for them among 64 ranks, of which one is slow.
func BenchmarkStragglers(b *testing.B) {
	ranks := make([]RankTimes, 64)
	for i := range ranks {
		ranks[i] = RankTimes{Number: i, StepMS: 10, ComputeMS: 5 + float64(i%7)/10}
	}
	ranks[40].ComputeMS = 9
	for b.Loop() {
		Stragglers(ranks)
	}
}
