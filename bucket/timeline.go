package bucket

// Timeline is what a step under a plan is predicted to be. Times are in
// seconds from the step's start.
type Timeline struct {
	Layers []Interval // the backward of each layer
	Groups []GroupTimes
	// Compute is when the compute path ends: backward, and the selection of the
	// last group.
	Compute float64
	// Selecting is the part of Compute that selections take.
	Selecting float64
	// Busy is the part of Compute that exchanges took from the computation.
	Busy float64
	// Exposed is how long after Compute the last group is agreed.
	Exposed float64
	// Total is the step: Compute + Exposed + the update.
	Total float64
}

// Interval is a time from Start to End.
type Interval struct{ Start, End float64 }

// GroupTimes is what happens to one group. Its gradients are final at
// Select.Start.
type GroupTimes struct {
	Select Interval
	Send   Interval
	By     string  // the Send that was cheapest
	Bytes  float64 // its payload
}

// Predict is the step's timeline under a valid plan. With groups g = 1, 2, …,
// in the order in which backward finishes them:
//
//	ready(g)      = end of select(g-1) + backward of g's layers
//	select(g)     = ready(g) .. ready(g) + t_s(values)
//	send(g)       starts at max(end of select(g), end of send(g-1)), takes t_c(values)
//
// and, where exchanges are carried by the cores that compute, ready(g+1) is later by
// the Busy of g.
//
// It costs O(layers).
func Predict(s Step, p Plan) Timeline {
	t := Timeline{Layers: make([]Interval, 0, len(s.Layers)), Groups: make([]GroupTimes, 0, len(p))}
	now, channel, busy := s.Forward, 0.0, 0.0 // busy: of the group before
	for _, b := range p {
		now += busy
		t.Busy += busy
		for i := b.First; i <= b.Last; i++ {
			t.Layers = append(t.Layers, Interval{now, now + s.Backward[i]})
			now += s.Backward[i]
		}
		way, took := s.Costs.Send(b.Len())
		g := GroupTimes{By: way.Name, Bytes: way.Payload.Bytes(b.Len())}
		g.Select = Interval{now, now + s.Costs.Select.At(b.Len())}
		t.Selecting += s.Costs.Select.At(b.Len())
		now = g.Select.End
		g.Send.Start = max(now, channel)
		g.Send.End = g.Send.Start + took
		channel = g.Send.End
		t.Groups = append(t.Groups, g)
		busy = way.Busy(b.Len())
	}
	t.Compute = now
	t.Exposed = max(0, channel-t.Compute)
	t.Total = max(t.Compute, channel) + s.Update
	return t
}

// total is Predict(s, p).Total without the timeline.
func (s Step) total(p Plan) float64 {
	state := finish{compute: s.Forward}
	for _, b := range p {
		backward := 0.0
		for i := b.First; i <= b.Last; i++ {
			backward += s.Backward[i]
		}
		sel, send, busy := s.Costs.group(b.Len())
		state = state.then(backward, sel, send, busy)
	}
	return max(state.compute, state.channel) + s.Update
}

// finish is when the compute path and the channel are done with the groups so
// far.
type finish struct{ compute, channel float64 }

// then appends a group. What the last one's exchange takes from the computation is
// within that exchange, so that the end is that of the channel.
func (f finish) then(backward, sel, send, busy float64) finish {
	f.compute += backward + sel
	f.channel = max(f.compute, f.channel) + send
	f.compute += busy
	return f
}
