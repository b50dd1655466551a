package steptrace

// Change is a figure of two timelines, A of the first and B of the second. Names stay as they are: programs find figures by them.
// Of what a timeline does not have, such as codecs, the figure is 0.
type Change struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"` // ms, B, or "" of a share of 1
	A    float64 `json:"a"`
	B    float64 `json:"b"`
}

// Compare puts the figures of two timelines beside each other: times of a step, as means over ranks, then shares and bytes.
func Compare(a, b Summary) []Change {
	out := []Change{{"step", "ms", a.StepMS, b.StepMS}}
	for k := range kinds {
		if k != kindOther { // which is not part of a step
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

// kindMS is the time of a kind in a step, as a mean over ranks: the kinds but kindOther add up to
// the step, whether its parts lie behind each other or not, because each moment counts once.
func (s Summary) kindMS(k spanKind) float64 {
	return s.Mean.Of(k) * s.WallMS / float64(max(1, s.Steps))
}
