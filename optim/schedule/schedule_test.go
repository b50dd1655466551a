package schedule

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// twin is the schedule's definition, epoch by epoch and case by case.
func twin(s Schedule, step, stepsPerEpoch, epochs int) float64 {
	warmup := float64(s.Warmup.Steps)
	if s.Warmup.Epochs > 0 {
		warmup = math.Round(s.Warmup.Epochs * float64(stepsPerEpoch))
	}
	at := float64(step)
	lr := s.LR
	for i := len(s.Drops) - 1; i >= 0; i-- {
		if step >= s.Drops[i].Epoch*stepsPerEpoch {
			lr = s.Drops[i].LR
			break
		}
	}
	total := float64(stepsPerEpoch * epochs)
	switch {
	case at < warmup:
		return lr * (at + 1) / warmup
	case s.Cosine && at >= total:
		return s.Floor
	case s.Cosine:
		return s.Floor + (s.LR-s.Floor)*(1+math.Cos(math.Pi*(at-warmup)/(total-warmup)))/2
	}
	return lr
}

// draw makes a valid schedule.
func draw(r *rand.Rand) Schedule {
	s := Schedule{LR: math.Exp(10*r.Float64() - 8)}
	switch r.IntN(3) {
	case 0:
		epoch := 0
		for range r.IntN(4) {
			epoch += 1 + r.IntN(4)
			s.Drops = append(s.Drops, Drop{epoch, s.LR * r.Float64() * 2})
		}
	case 1:
		s.Cosine, s.Floor = true, s.LR*float64(r.IntN(3))/2
	}
	switch r.IntN(3) {
	case 0:
		s.Warmup.Steps = r.IntN(200)
	case 1:
		s.Warmup.Epochs = 3 * r.Float64()
	}
	return s
}

func TestAgainstTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		s, perEpoch, epochs := draw(r), 1+r.IntN(50), 1+r.IntN(12)
		if err := s.Validate(); err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		for step := range perEpoch*epochs + 20 {
			got, want := s.At(step, perEpoch, epochs), twin(s, step, perEpoch, epochs)
			if !(math.Abs(got-want) <= 1e-14*s.LR+1e-15*want) {
				t.Fatalf("%v: step %d of %d epochs of %d: rate %v, want %v", s, step, epochs, perEpoch, got, want)
			}
		}
	}
}

// What holds of every schedule: the rate is positive until the end, at most
// the largest of its settings, rises while it warms up and only falls after.
func TestProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		s, perEpoch, epochs := draw(r), 1+r.IntN(50), 1+r.IntN(12)
		top := s.LR
		for i := range s.Drops {
			s.Drops[i].LR = s.LR / float64(i+2) // falling
		}
		warmup, before := s.Warmup.steps(perEpoch), 0.0
		for step := range perEpoch * epochs {
			lr := s.At(step, perEpoch, epochs)
			if !(lr > 0 && lr <= top) {
				t.Fatalf("%v: rate %v in step %d", s, lr, step)
			}
			inWarmup := step < warmup
			if len(s.Drops) == 0 && inWarmup && lr <= before || !inWarmup && step > warmup && lr > before {
				t.Fatalf("%v: step %d of %d: rate %v after %v", s, step, perEpoch*epochs, lr, before)
			}
			before = lr
		}
		if end := s.At(perEpoch*epochs, perEpoch, epochs); s.Cosine && warmup <= perEpoch*epochs && end != s.Floor {
			t.Fatalf("%v ends at %v", s, end)
		}
		if len(s.Drops) == 0 && 0 < warmup && s.At(warmup-1, perEpoch, epochs) != s.LR {
			t.Fatalf("%v: the warm-up's last step has rate %v", s, s.At(warmup-1, perEpoch, epochs))
		}
	}
}

// Golden bits, which every architecture must give.
func TestCosineBits(t *testing.T) {
	s := Schedule{LR: 0.1, Cosine: true, Floor: 0.001, Warmup: Warmup{Steps: 3}}
	var sum uint64
	for step := range 1000 {
		sum = sum*31 + math.Float64bits(s.At(step, 100, 10))
	}
	const want = 0xdbab657611f74b79
	if sum != want {
		t.Errorf("the rates' bits hash to %#x, want %#x", sum, uint64(want))
	}
}

func TestCosPi(t *testing.T) {
	for i := range 10001 {
		x := float64(i) / 10000
		if got, want := cosPi(x), math.Cos(math.Pi*x); math.Abs(got-want) > 4e-16 {
			t.Fatalf("cos(pi*%v) is %v, want %v", x, got, want)
		}
	}
}

func TestAtPanics(t *testing.T) {
	for _, c := range [][2]int{{-1, 1}, {0, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("step %d of %d: no panic", c[0], c[1])
				}
			}()
			Schedule{LR: 1}.At(c[0], c[1], 1)
		}()
	}
}

func TestAtAllocatesNothing(t *testing.T) {
	s := Schedule{LR: 1, Cosine: true, Warmup: Warmup{Epochs: 0.5}}
	if n := testing.AllocsPerRun(10, func() { s.At(77, 10, 10) }); n != 0 {
		t.Errorf("At makes %v allocations", n)
	}
}

func TestString(t *testing.T) {
	for want, s := range map[string]Schedule{
		"0.1":                   {LR: 0.1},
		"0.001, cosine to 1e-5": {LR: 1e-3, Cosine: true, Floor: 1e-5},
		"0.1, 0.01 from epoch 80, 0.001 from epoch 120, warm-up 500 steps": {
			LR: 0.1, Drops: []Drop{{80, 0.01}, {120, 0.001}}, Warmup: Warmup{Steps: 500}},
		"1, warm-up 1 step":                  {LR: 1, Warmup: Warmup{Steps: 1}},
		"2, cosine to 0, warm-up 2.5 epochs": {LR: 2, Cosine: true, Warmup: Warmup{Epochs: 2.5}},
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Every fault is in the one error, with its value.
func TestValidate(t *testing.T) {
	s := Schedule{
		LR: -1, Floor: 3, Drops: []Drop{{0, 0.1}, {5, -2}, {4, 0.1}}, Cosine: true,
		Warmup: Warmup{Steps: -7, Epochs: math.NaN()},
	}
	err := s.Validate()
	for _, want := range []string{"training.lr -1", "training.lr-schedule at epoch 0", "training.lr-schedule -2 from epoch 5", "epoch 4 after epoch 5",
		"0:0.1,5:-2,4:0.1", "training.lr-schedule cosine:3", "training.warmup -7 steps", "NaN epochs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	for _, bad := range []Schedule{
		{}, {LR: math.NaN()}, {LR: math.Inf(1)}, {LR: 1, Floor: 0.1}, {LR: 1, Cosine: true, Floor: 2},
		{LR: 1, Cosine: true, Floor: math.NaN()}, {LR: 1, Warmup: Warmup{Steps: 1, Epochs: 1}}, {LR: 1, Drops: []Drop{{2, 1}, {2, 1}}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestParseDrops(t *testing.T) {
	got, err := ParseDrops("80:0.01, 120:1e-3")
	if want := []Drop{{80, 0.01}, {120, 0.001}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseDrops(" "); got != nil || err != nil {
		t.Errorf("no text: %v, %v", got, err)
	}
	for text, want := range map[string][]string{
		"80":                       {`part 1, "80"`, "EPOCH:LR"},
		"80:0.01,":                 {`part 2, ""`, "EPOCH:LR"},
		"a:0.1,3:b,0:1,4:-1,5:NaN": {`epoch "a"`, `learning rate "b"`, `epoch "0"`, `learning rate "-1"`, `"NaN"`},
		"120:0.1,80:0.01":          {`part 2, "80:0.01"`, "epoch 80 comes after epoch 120"},
		"80:0.1,80:0.01":           {"part 2"},
		"1:1e99":                   {`"1e99"`},
	} {
		_, err := ParseDrops(text)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v does not hold %q", text, err, w)
			}
		}
	}
}

func TestParseWarmup(t *testing.T) {
	for text, want := range map[string]Warmup{
		"": {}, "500": {Steps: 500}, " 500 steps ": {Steps: 500}, "2epochs": {Epochs: 2}, "1 epoch": {Epochs: 1}, "0.5 epochs": {Epochs: 0.5},
	} {
		if got, err := ParseWarmup(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"-1", "1.5", "x", "epochs", "-1epochs", "NaN epochs", "infepochs", "3 seconds"} {
		if _, err := ParseWarmup(text); err == nil || !strings.HasPrefix(err.Error(), "want a number of") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What is read of a warm-up is written so that it is read alike.
func FuzzParseWarmup(f *testing.F) {
	for _, s := range []string{"500", "1", "2epochs", "0.1 epochs", "1 epoch", "1e300epochs", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWarmup(text)
		if err != nil {
			return
		}
		if again, err := ParseWarmup(w.String()); err != nil || again != w {
			t.Fatalf("%q is %+v, written as %q and read as %+v, %v", text, w, w, again, err)
		}
	})
}

// What is read is written so that it is read alike, and is valid.
func FuzzParseDrops(f *testing.F) {
	for _, s := range []string{"80:0.01,120:0.001", "1:1", ",", "1:0x1p-3", "9:1e-300"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		drops, err := ParseDrops(text)
		if err != nil {
			return
		}
		if err := (Schedule{LR: 1, Drops: drops}).Validate(); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if again, err := ParseDrops(FormatDrops(drops)); err != nil || !slices.Equal(again, drops) {
			t.Fatalf("%q is %v, written and read again %v, %v", text, drops, again, err)
		}
	})
}
