package data

import (
	"math"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

const clicksStream = 0x510e527fade682d1

// hiddenWeight is how much a category speaks for a click: a number, normal to
// the eye, that depends on the slot and the value alone.
func hiddenWeight(slot int, value uint64) float64 {
	r := prng.New(clicksStream, uint64(slot), value)
	sum := 0.0
	for range 4 {
		sum += r.Unit()
	}
	return (sum - 2) * math.Sqrt(3)
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// syntheticCriteo makes rows in Criteo's format: categories by Zipf's law over
// slots of 4 to 200,000 values, counts of very unequal size, a fifth of the
// fields missing. Whether a row is a click is drawn from a hidden logistic
// model of both, one in four on average; the best possible AUC is about 0.8.
// 100,000 rows to train on and 20,000 to evaluate; about 3 us per row.
func syntheticCriteo(c Config) *Dataset {
	rows := or(c.Rows, clickTableRows)
	p := newClickParser(c.criteoRows())
	p.keys = c.Keys
	source := func(set uint64, n int) Source {
		out := &clicks{shape: p.shape()}
		var row clickRows
		for i := range n {
			row.reset()
			r := prng.New(c.Seed^clicksStream, set, uint64(i))
			makeClick(&row, p, &r)
			out.add(&row, 0)
		}
		return out
	}
	return &Dataset{
		Train: source(0, or(c.TrainLimit, 100_000)), Eval: source(1, or(c.EvalLimit, 20_000)),
		Classes: 2, Rows: rows,
	}
}

// makeClick appends one row.
func makeClick(row *clickRows, p *clickParser, r *prng.Rand) {
	logit := -1.45
	for column := range clickNumbers {
		x := int64(0)
		if r.Below(5) > 0 {
			x = int64(math.Exp(r.Unit()*float64(2+column%6))) - 1
		}
		v := p.number(x)
		row.numbers = append(row.numbers, v)
		logit += 0.15 * hiddenWeight(clickSlots, uint64(column)) * (float64(v) - 1)
	}
	for slot := range clickSlots {
		id, key := int32(0), uint64(0)
		if r.Below(5) > 0 {
			size := 4 * math.Pow(50_000, float64(slot)/(clickSlots-1))
			value := uint64(math.Pow(size, r.Unit())) // probability about 1/value
			if key = ClickKey(slot, value); p.rows > 0 {
				id = slotID(slot, value, p.rows)
			}
			logit += 0.35 * hiddenWeight(slot, value)
		}
		if p.rows > 0 {
			row.ids = append(row.ids, id)
		}
		if p.keys {
			row.keys = append(row.keys, key)
		}
	}
	label := int32(0)
	if r.Unit() < sigmoid(logit) {
		label = 1
	}
	row.labels = append(row.labels, label)
}
