package evalmetrics

import (
	"math"
	"slices"
)

// ClickReport is the table of a model that predicts the probability of an event.
type ClickReport struct {
	Samples int64 `json:"samples"`
	Events  int64 `json:"events"`
	// AUC is undefined if all samples or none have the event.
	AUC     Value   `json:"auc"`
	LogLoss float64 `json:"logloss"`
	// Predicted is the mean probability, Observed the share of events. Calibration is Predicted
	// divided by Observed, undefined without events.
	Predicted   float64 `json:"predicted"`
	Observed    float64 `json:"observed"`
	Calibration Value   `json:"calibration"`
	// Reliability has the samples by ascending deciles of the probability. Deciles without
	// samples, as many equal probabilities cause, are missing.
	Reliability []Decile `json:"reliability,omitempty"`
}

// Decile is a row of ClickReport.Reliability: samples with probabilities above the previous row's
// Max, and up to Max.
type Decile struct {
	Samples     int64   `json:"samples"`
	Max         float64 `json:"max"`
	Predicted   float64 `json:"predicted"`
	Observed    float64 `json:"observed"`
	Calibration Value   `json:"calibration"`
}

// addClicks appends a word for each sample, from clickWord.
func (c *Counter) addClicks(p Pass) {
	n, out := len(p.Labels), p.Outputs
	if len(out) != n && len(out) != 2*n {
		c.foreign++
		return
	}
	for i, label := range p.Labels {
		logit := 0.0
		if len(out) == n {
			logit = float64(out[i])
		} else {
			logit = float64(out[2*i+1]) - float64(out[2*i])
		}
		c.words[0] = append(c.words[0], clickWord(logit, label == 1))
	}
}

// clickWord encodes a logit and its label as a word ordered by both. The lowest bit of the logit,
// 0 for a float32, is lost to the label.
func clickWord(logit float64, event bool) uint64 {
	w := math.Float64bits(logit)
	if w>>63 == 1 {
		w = ^w
	} else {
		w |= 1 << 63
	}
	if w &^= 1; event {
		w |= 1
	}
	return w
}

// clickOf is the inverse of clickWord.
func clickOf(w uint64) (logit float64, event bool) {
	event = w&1 == 1
	if w>>63 == 1 {
		w &^= 1 << 63
	} else {
		w = ^w
	}
	return math.Float64frombits(w &^ 1), event
}

// chance is a sample's probability, as predictions have it, and whether the event happened.
type chance struct {
	p     float64
	event bool
}

// clickReport computes the table from at least one word.
func clickReport(words []uint64) *ClickReport {
	slices.Sort(words)
	r := &ClickReport{Samples: int64(len(words))}
	samples, scores := make([]chance, len(words)), make([]uint64, len(words))
	for i, w := range words {
		x, event := clickOf(w)
		p := float32(1 / (1 + math.Exp(-x)))
		samples[i], scores[i] = chance{float64(p), event}, Scored(p, event)
		if event {
			r.Events++
		}
		r.LogLoss += logLoss(x, event)
		r.Predicted += float64(p)
	}
	n := float64(len(words))
	r.AUC.Value, r.AUC.Known = AUC(scores)
	r.LogLoss, r.Predicted, r.Observed = r.LogLoss/n, r.Predicted/n, float64(r.Events)/n
	if r.Events > 0 {
		r.Calibration = known(r.Predicted / r.Observed)
	}
	r.Reliability = deciles(samples)
	return r
}

// deciles groups samples, sorted by probability, at the deciles of the probability: a sample with a
// probability equal to a decile belongs below it.
func deciles(samples []chance) (out []Decile) {
	sorted := make([]float64, len(samples))
	for i, s := range samples {
		sorted[i] = s.p
	}
	at := 0
	for k := 1; k <= 10 && at < len(samples); k++ {
		end := len(samples)
		if k < 10 {
			edge := quantile(sorted, float64(k)/10)
			for end = at; end < len(samples) && samples[end].p <= edge; end++ {
			}
		}
		if end > at {
			out = append(out, decile(samples[at:end]))
		}
		at = end
	}
	return out
}

func decile(samples []chance) Decile {
	predicted, events := 0.0, int64(0)
	for _, s := range samples {
		if predicted += s.p; s.event {
			events++
		}
	}
	n := float64(len(samples))
	d := Decile{Samples: int64(len(samples)), Max: samples[len(samples)-1].p, Predicted: predicted / n, Observed: float64(events) / n}
	if events > 0 {
		d.Calibration = known(d.Predicted / d.Observed)
	}
	return d
}
