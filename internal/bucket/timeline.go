package bucket

// Timeline is the prediction of a step under a plan. Times are in seconds from the step's start.
type Timeline struct {
	Layers  []Interval // the backward of each layer
	Buckets []BucketTimes
	// Compute is the end of the compute path: backward, and the last bucket's selection.
	Compute float64
	// Selecting is the selections' part of Compute.
	Selecting float64
	// Busy is the computation's loss to exchanges, as a part of Compute.
	Busy float64
	// Exposed is the time from Compute to the end of the last bucket's exchange, plus the rows'
	// exchange.
	Exposed float64
	// Total is the step: Compute + Exposed + the update, or the update's rest after the last
	// exchange.
	Total float64
}

// Interval is a time from Start to End.
type Interval struct{ Start, End float64 }

// BucketTimes are a bucket's times. The gradients are final at Select.Start.
type BucketTimes struct {
	Select Interval
	Send   Interval
	By     string  // cheapest Send
	Bytes  float64 // payload
}

// Predict is the step's timeline under a valid plan. With buckets g = 1, 2, …, in backward's order:
//
//	ready(g)      = end of select(g-1) + backward of g's layers
//	select(g)     = ready(g) .. ready(g) + t_s(values)
//	send(g)       starts at max(end of select(g), end of send(g-1)), takes t_c(values)
//
// Overlapping exchange and computation slow each other by Costs.Contention: the computation loses a
// share of its speed, and some time per message; the exchange takes longer. Planners minimise this
// model, with the whole update at the end.
//
// The cost is O(layers).
func Predict(s Step, p Plan) Timeline {
	t := Timeline{Layers: make([]Interval, 0, len(s.Layers)), Buckets: make([]BucketTimes, 0, len(p))}
	contention := s.Costs.Contention
	now, channel, alone := s.Forward, 0.0, s.Forward // channel: with endless computation
	for k, b := range p {
		now = contention.work(now, channel, contention.afterMessages(k, 0))
		for i := b.First; i <= b.Last; i++ {
			start := now
			now = contention.work(now, channel, s.Backward[i])
			t.Layers = append(t.Layers, Interval{start, now})
			alone += s.Backward[i]
		}
		way, took := s.Costs.Send(b.Len())
		g := BucketTimes{By: way.Name, Bytes: way.Payload.Bytes(b.Len()), Select: Interval{Start: now}}
		selecting := s.Costs.Select.At(b.Len())
		t.Selecting += selecting
		now = contention.work(now, channel, selecting)
		g.Select.End = now
		g.Send.Start = max(now, channel)
		g.Send.End = g.Send.Start + contention.send(took)
		channel = g.Send.End
		t.Buckets = append(t.Buckets, g)
	}
	t.Compute = now
	t.Busy = max(0, now-alone-t.Selecting)
	s.settle(p, &t)
	if n := len(t.Buckets); n > 0 {
		t.Exposed = max(0, t.Buckets[n-1].Send.End-t.Compute)
	}
	t.Exposed += s.Rows
	t.Total = s.updated(p, t) + s.Rows
	return t
}

// settle corrects the times of exchanges after the computation's end, when there is no contention.
// The last bucket's exchange has none at all.
func (s Step) settle(p Plan, t *Timeline) {
	for g := range t.Buckets {
		send := &t.Buckets[g].Send
		send.Start = s.Costs.Contention.settle(send.Start, t.Compute)
		send.End = s.Costs.Contention.settle(send.End, t.Compute)
		if g == len(p)-1 {
			send.End = send.Start + s.Costs.send(p[g].Len())
		}
	}
}

// updated is the time of the last bucket's update. A bucket is updated after its exchange,
// backward, and the previous bucket's update. Updates and overlapping exchanges slow each other as
// backward and exchanges do.
func (s Step) updated(p Plan, t Timeline) float64 {
	now, late, all := t.Compute, 0.0, 0
	for _, b := range p {
		all += b.Len()
	}
	for g, b := range p {
		now = max(now, t.Buckets[g].Send.End+late)
		work := s.Costs.After.At(b.Len())
		if s.Overlap {
			work += s.Update * float64(b.Len()) / float64(max(1, all))
		}
		left := max(0, t.Buckets[len(p)-1].Send.End+late-now) // time left to exchange
		meanwhile := now + left*s.Costs.Contention.stretch()
		end := s.Costs.Contention.work(now, meanwhile, work)
		together := min(end, meanwhile) - now
		late += together * (1 - 1/s.Costs.Contention.stretch())
		now = end
	}
	if s.Overlap && all > 0 {
		return now
	}
	return now + s.Update
}

// total is the planners' objective: Predict(s, p).Total with the whole update at the end.
func (s Step) total(p Plan) float64 {
	state := finish{compute: s.Forward}
	for g, b := range p {
		backward := 0.0
		for i := b.First; i <= b.Last; i++ {
			backward += s.Backward[i]
		}
		sel, send := s.Costs.group(b.Len())
		state = state.then(s.Costs.Contention, s.Costs.Contention.afterMessages(g, backward+sel), send, g == len(p)-1)
	}
	return max(state.compute, state.channel) + s.Update + s.Rows
}

// finish is the end of the buckets so far on the compute path, and on the channel with endless
// computation. The computation ends with the last bucket.
type finish struct{ compute, channel float64 }

// then appends a bucket with work on the compute path. Both results rise with both times of f: a
// prefix that ends later never leads to an earlier end.
func (f finish) then(b Contention, work, send float64, last bool) finish {
	f.compute = b.work(f.compute, f.channel, work)
	if last {
		f.channel = max(f.compute, b.settle(f.channel, f.compute)) + send
	} else {
		f.channel = max(f.compute, f.channel) + b.send(send)
	}
	return f
}
