package schedule

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

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
