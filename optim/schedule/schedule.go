// Package schedule holds learning-rate schedules: the rate of each step as a pure function of the
// step's number, with the same bits on every machine. A resumed run, from its step number alone,
// has the rates of an uninterrupted run.
package schedule

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Schedule is the learning rate over a run: a linear warm-up, then a rate that is constant, falls
// at given epochs, or falls along a cosine. The zero value has rate 0 and fails Validate.
type Schedule struct {
	// LR is the rate after warm-up, positive.
	LR float64
	// Drops change the rate at the start of epochs, ascending; see [ParseDrops].
	Drops []Drop
	// Cosine lets the rate fall from LR to Floor along half a cosine over the steps after the
	// warm-up (Loshchilov and Hutter 2017, without restarts). It excludes Drops.
	Cosine bool
	// Floor is the rate at a cosine's end, from 0 to LR; 0 without Cosine.
	Floor float64
	// Warmup is the beginning of the run, with a linearly rising rate; its last step has the full
	// rate. See [ParseWarmup].
	Warmup Warmup
}

// Drop changes the rate to LR from the start of an epoch on.
type Drop struct {
	// Epoch is the number of completed epochs when the rate changes, at least 1.
	Epoch int
	// LR is the rate from then on, positive.
	LR float64
}

// Warmup is a length in steps or in epochs; at most one may be above 0.
type Warmup struct {
	// Steps is the length in steps, 0 or more.
	Steps int
	// Epochs is the length in epochs, 0 or more; a fraction is rounded to the nearest step.
	Epochs float64
}

// Validate reports every invalid setting.
func (s Schedule) Validate() error {
	var faults setting.ErrorList
	want := func(ok bool, p setting.Path, format string, args ...any) {
		if !ok {
			faults = append(faults, setting.Errorf(p, format, args...))
		}
	}
	const falls, warmup setting.Path = "training.lr-schedule", "training.warmup"
	want(positive(s.LR), "training.lr", "%s: want a positive number", quantity.Exact(s.LR))
	epoch := 0
	for i, d := range s.Drops {
		want(d.Epoch >= 1, falls, "at epoch %d: want at least 1", d.Epoch)
		want(i == 0 || d.Epoch > epoch, falls, "at epoch %d after epoch %d: want ascending epochs", d.Epoch, epoch)
		want(positive(d.LR), falls, "%s from epoch %d: want a positive number", quantity.Exact(d.LR), d.Epoch)
		epoch = d.Epoch
	}
	want(!s.Cosine || len(s.Drops) == 0, falls, "%s with a cosine: want one of them", FormatDrops(s.Drops))
	want(s.Cosine || s.Floor == 0, falls, "without a cosine has no rate %s at the end", quantity.Exact(s.Floor))
	want(!s.Cosine || s.Floor >= 0 && s.Floor <= s.LR, falls, "cosine:%s: want a number from 0 to the learning rate %s", quantity.Exact(s.Floor), quantity.Exact(s.LR))
	w := s.Warmup
	want(w.Steps >= 0, warmup, "%d steps: want 0 or more", w.Steps)
	want(w.Epochs >= 0 && !math.IsInf(w.Epochs, 0), warmup, "%s epochs: want a number from 0", quantity.Exact(w.Epochs))
	want(w.Steps == 0 || w.Epochs == 0, warmup, "%d steps and %s epochs: want one of them", w.Steps, quantity.Exact(w.Epochs))
	return faults.Err()
}

// positive reports whether v is a positive number in float32.
func positive(v float64) bool {
	return float32(v) > 0 && !math.IsInf(float64(float32(v)), 0)
}

// At is the rate of step number `step`, from 0, of a run with this many epochs of stepsPerEpoch
// steps. Steps after the run's end have the last rate: the floor, for a cosine. A warm-up longer
// than the run does not reach the full rate. At panics if step < 0 or stepsPerEpoch < 1.
func (s Schedule) At(step, stepsPerEpoch, epochs int) float64 {
	if step < 0 || stepsPerEpoch < 1 {
		panic(fmt.Sprintf("schedule: step %d of a run with %d steps an epoch", step, stepsPerEpoch))
	}
	lr := s.LR
	for _, d := range s.Drops {
		if step/stepsPerEpoch >= d.Epoch {
			lr = d.LR
		}
	}
	warmup := s.Warmup.steps(stepsPerEpoch)
	if step < warmup {
		return lr * (float64(step+1) / float64(warmup))
	}
	if s.Cosine {
		done, all := float64(step-warmup), float64(epochs)*float64(stepsPerEpoch)-float64(warmup)
		if done >= all {
			return s.Floor
		}
		return s.Floor + float64((s.LR-s.Floor)*((1+cosPi(done/all))/2))
	}
	return lr
}

// cosPi is cos(pi*x) for x from 0 to 1, by the sine's series around 1/2 with every product rounded.
// (math.Cos may be fused differently by architecture, and replicas on mixed hosts would diverge.)
func cosPi(x float64) float64 {
	y := float64(math.Pi * (0.5 - x)) // cos(pi*x) = sin(y), |y| <= pi/2
	y2, sum := float64(y*y), 0.0
	for k := 25; k >= 3; k -= 2 { // the next term is below 1e-21
		sum = float64(y2 * (1 - sum) / float64(k*(k-1)))
	}
	return float64(y * (1 - sum))
}

func (w Warmup) steps(stepsPerEpoch int) int {
	if w.Epochs > 0 {
		return int(math.Round(w.Epochs * float64(stepsPerEpoch)))
	}
	return w.Steps
}

// String describes the schedule in a few words, such as
// "0.1, 0.01 from epoch 80, warm-up 500 steps".
func (s Schedule) String() string {
	var b strings.Builder
	b.WriteString(number(s.LR))
	for _, d := range s.Drops {
		fmt.Fprintf(&b, ", %s from epoch %d", number(d.LR), d.Epoch)
	}
	if s.Cosine {
		fmt.Fprintf(&b, ", cosine to %s", number(s.Floor))
	}
	if s.Warmup != (Warmup{}) {
		fmt.Fprintf(&b, ", warm-up %s", s.Warmup)
	}
	return b.String()
}

// String is such as "500 steps" or "2.5 epochs".
func (w Warmup) String() string {
	n, unit := strconv.Itoa(w.Steps), " step"
	if w.Epochs > 0 {
		n, unit = number(w.Epochs), " epoch"
	}
	if n != "1" {
		unit += "s"
	}
	return n + unit
}

func number(v float64) string { return quantity.Exact(v) }

// ParseDrops parses drops written as EPOCH:LR,EPOCH:LR,..., such as "80:0.01,120:0.001"; the empty
// text means none. The error names every part that is invalid or out of order; the caller adds the
// name of the text.
func ParseDrops(text string) ([]Drop, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var drops []Drop
	var faults []string
	for i, part := range strings.Split(text, ",") {
		d, err := parseDrop(strings.TrimSpace(part))
		if err == nil && len(drops) > 0 && d.Epoch <= drops[len(drops)-1].Epoch {
			err = fmt.Errorf("epoch %d comes after epoch %d: want ascending epochs", d.Epoch, drops[len(drops)-1].Epoch)
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("part %d, %q: %v", i+1, part, err))
			continue
		}
		drops = append(drops, d)
	}
	if len(faults) > 0 {
		return nil, errors.New(strings.Join(faults, "; "))
	}
	return drops, nil
}

func parseDrop(part string) (Drop, error) {
	epoch, lr, ok := strings.Cut(part, ":")
	if !ok {
		return Drop{}, errors.New("want EPOCH:LR, such as 80:0.01")
	}
	var d Drop
	var err error
	if d.Epoch, err = strconv.Atoi(strings.TrimSpace(epoch)); err != nil || d.Epoch < 1 {
		return Drop{}, fmt.Errorf("epoch %q: want a whole number of at least 1", epoch)
	}
	if d.LR, err = strconv.ParseFloat(strings.TrimSpace(lr), 64); err != nil || !positive(d.LR) {
		return Drop{}, fmt.Errorf("learning rate %q: want a positive number", lr)
	}
	return d, nil
}

// FormatDrops returns the text for ParseDrops.
func FormatDrops(drops []Drop) string {
	var parts []string
	for _, d := range drops {
		parts = append(parts, fmt.Sprintf("%d:%s", d.Epoch, strconv.FormatFloat(d.LR, 'g', -1, 64)))
	}
	return strings.Join(parts, ",")
}

// ParseWarmup parses a warm-up's length: "500" or "500 steps", "2 epochs" or "0.5epochs"; the empty
// text means none. The caller adds the name of the text to the error.
func ParseWarmup(text string) (Warmup, error) {
	t := strings.TrimSpace(text)
	if t == "" {
		return Warmup{}, nil
	}
	if n, ok := cutUnit(t, "epoch"); ok {
		epochs, err := strconv.ParseFloat(n, 64)
		if err != nil || !(epochs >= 0) || math.IsInf(epochs, 0) {
			return Warmup{}, errors.New("want a number of epochs from 0")
		}
		return Warmup{Epochs: epochs}, nil
	}
	n, _ := cutUnit(t, "step")
	steps, err := strconv.Atoi(n)
	if err != nil || steps < 0 {
		return Warmup{}, errors.New("want a number of steps, such as 500, or of epochs, such as 2epochs")
	}
	return Warmup{Steps: steps}, nil
}

// cutUnit returns the number before a unit or its plural.
func cutUnit(text, unit string) (number string, found bool) {
	number, found = strings.CutSuffix(text, unit+"s")
	if !found {
		number, found = strings.CutSuffix(text, unit)
	}
	return strings.TrimSpace(number), found
}
