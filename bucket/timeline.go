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
	// Exposed is how long after Compute the last group is agreed, and the rows after that.
	Exposed float64
	// Total is the step: Compute + Exposed + the update, or what of the update does not
	// happen while later groups travel.
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
	t.Exposed = max(0, channel-t.Compute) + s.Rows
	t.Total = s.updated(p, t) + s.Rows
	return t
}

// updated is when the last group of a timeline is updated. Each is when it is agreed,
// backward has ended, and the one before is updated. An update beside an exchange that
// takes a share of its time from the cores delays that by as much: where they carry all
// of it, nothing is gained.
func (s Step) updated(p Plan, t Timeline) float64 {
	now, late, all := t.Compute, 0.0, 0
	for _, b := range p {
		all += b.Len()
	}
	for g, b := range p {
		now = max(now, t.Groups[g].Send.End+late)
		work := s.Costs.After.At(b.Len())
		if s.Overlap {
			work += s.Update * float64(b.Len()) / float64(max(1, all))
		}
		if g+1 < len(p) {
			beside := min(work, max(0, t.Groups[len(p)-1].Send.End+late-now))
			late += beside * s.Costs.share(p[g+1].Len())
		}
		now += work
	}
	if s.Overlap && all > 0 {
		return now
	}
	return now + s.Update
}

// share is the part of a group's exchange that the cores carry which compute.
func (c Costs) share(values int) float64 {
	way, seconds := c.Send(values)
	if seconds == 0 {
		return 0
	}
	return way.Busy(values) / seconds
}

// total is what planners make short: Predict(s, p).Total with all of the update in the
// end.
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
	return max(state.compute, state.channel) + s.Update + s.Rows
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
