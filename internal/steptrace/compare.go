package steptrace

// Change is a value of two timelines: A of the first and B of the second. Names are stable, because
// programs depend on them. Values missing from a timeline, such as codecs, are 0.
type Change struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"` // ms, B, or "" for a share of 1
	A    float64 `json:"a"`
	B    float64 `json:"b"`
}

// Compare returns the values of two timelines: mean times of a step, then shares and bytes.
func Compare(a, b Summary) []Change {
	out := []Change{{"step", "ms", a.StepMS, b.StepMS}}
	for k := range kinds {
		if k != kindOther { // outside of steps
			out = append(out, Change{k.String(), "ms", a.kindMS(k), b.kindMS(k)})
		}
	}
	for _, t := range tracks {
		if kindOf(t) == kindCompute || kindOf(t) == kindExchange {
			name := t.String()
			if kindOf(t) == kindExchange {
				name += ", hidden or not"
			}
			out = append(out, Change{name, "ms", a.Mean.TracksMS[t.String()], b.Mean.TracksMS[t.String()]})
		}
	}
	out = append(out, Change{"overlap", "", a.Mean.Overlap, b.Mean.Overlap})
	for k := range kinds {
		out = append(out, Change{"critical path: " + k.String(), "", a.Path.Of(k), b.Path.Of(k)})
	}
	return append(out, Change{"sent by a rank in a step", "B", a.Mean.StepBytesSent, b.Mean.StepBytesSent})
}

// kindMS returns the time of a kind per step, as a mean over ranks. The kinds except kindOther add
// up to the step, because each moment counts once.
func (s Summary) kindMS(k spanKind) float64 {
	return s.Mean.Of(k) * s.WallMS / float64(max(1, s.Steps))
}
