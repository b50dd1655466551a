package costmodel

import "slices"

// Roles are what a step may be bound by.
const (
	Trainer      = "trainers"
	Server       = "servers"
	HeterTrainer = "heter-trainers"
	Links        = "links"
)

// Forecast is what is predicted of a mix.
type Forecast struct {
	Rate float64 // samples a second, of all trainers together
	Step float64 // seconds of a step, of which every trainer has a batch
	// Bounds are the seconds that each role would need for a step were it never to wait, the slowest process of it; 0: it is not there.
	Bounds map[string]float64
	// Fill is what the step takes beyond the longest of its bounds: stages that follow each other, latency, and what nothing explains.
	Fill float64
	// By is the role with the longest bound.
	By string
}

// Split predicts a job whose part heter-trainers have. With k trainers, n micro-batches of a batch of B, times of stages divided by the
// speed (see Mix.speed) of who does them, and those of bounds by its processors:
//
//	p, b    = Pool(B)/n, Back(B)/n                     a micro-batch at a trainer, there and back
//	x, y    = latency + bytes of a micro-batch / rate  on the way there and back
//	serve   = k Serve(B) / all servers' processors     pushes of a step, then pulls of the next: each server has its share of rows
//	carry   = the bytes of these over the links of a trainer, or of a server, whichever has more / rate
//	work    = until the last of k n micro-batches is done, when each goes to who is done with it first
//	inner   = the longest of  n (p + b)                a trainer that never waits
//	                          p + x + work + y + b     heter-trainers that never wait
//	                          n p + x + Part(B/n) + y + b
//	                          p + x + bytes through the fullest link of a heter-trainer / rate + y + b
//	agree   = update, and the ring of an allreduce among m heter-trainers: 2 (m-1)/m Agree of a processor,
//	          and 2 (m-1) (PartBytes / m / rate + latency)
//	outer   = the longer of agree and Rows(B) + serve + carry + 4 latency
//	step    = the longer of inner + outer + Wait and the longest bound
//	rate    = k B / step
//
// The bounds are role by role: of a trainer Read + Rows + Pool + Back, of servers serve, of heter-trainers work and update, of links
// bytes. In step no stage of one step overlaps the same of the next, so the sum, not the longest bound alone, is what a job takes.
func (c Costs) Split(x Mix, batch int) Forecast {
	k, n, size := float64(len(x.Trainers)), float64(min(c.Micros, batch)), float64(batch)
	m := float64(len(x.Heters))
	own := c.Read.Of(size) + c.Pool.Of(size) + c.Back.Of(size) + c.OfSplit.Rows.Of(size)
	slowest := x.speed(slices.Min(x.Trainers), own)
	step := c.Part.Step + c.Agree*2*(m-1)/m
	heters := make([]float64, len(x.Heters))
	for i, cores := range x.Heters {
		heters[i] = x.speed(cores, k*c.Part.Sample*size/m+step)
	}
	p, b := c.Pool.Of(size)/n/slowest, c.Back.Of(size)/n/slowest
	there, back := c.RequestBytes*size/n/x.Link.Rate+x.Link.Latency, c.BackBytes*size/n/x.Link.Rate+x.Link.Latency
	each := c.Part.Sample * size / n
	has := deal(heters, int(k*n), each)
	work := last(has, heters, each)
	cut := k * size * max(c.RequestBytes, c.BackBytes) / m / x.Link.Rate
	inner := max(n*(p+b), p+there+work+back+b, n*p+there+each/slices.Max(heters)+back+b, p+there+cut+back+b)
	update := step / slices.Min(heters)
	ring := 2 * (m - 1) * (c.PartBytes/m/x.Link.Rate + x.Link.Latency)
	serve, served, carry := c.OfSplit.serve(x, size)
	rows := c.OfSplit.Rows.Of(size) / slowest
	outer := max(update+ring, rows+serve+carry+4*x.Link.Latency)
	return forecast(x, size, inner+outer+c.OfSplit.Wait, map[string]float64{
		Trainer: own / slices.Min(x.Trainers), Server: served, Links: max(carry, cut),
		HeterTrainer: x.shared(int(k*n), each) + step/slices.Min(x.Heters),
	})
}

// Whole predicts the same job with the model in one piece: heter-trainers do nothing, whether there are any or not.
//
//	step = the longer of (Rows(B) + Pass(B)) / c + serve + carry + 4 latency + Wait and the longest bound
func (c Costs) Whole(x Mix, batch int) Forecast {
	size := float64(batch)
	pass := c.OfWhole.Rows.Of(size) + c.Pass.Of(size)
	all := pass + c.Read.Of(size)
	serve, served, carry := c.OfWhole.serve(x, size)
	took := pass / x.speed(slices.Min(x.Trainers), all)
	return forecast(x, size, took+serve+carry+4*x.Link.Latency+c.OfWhole.Wait, map[string]float64{
		Trainer: all / slices.Min(x.Trainers), Server: served, Links: carry,
	})
}

// serve is how long servers are at a step of all trainers, what they would need for it were there nothing else, and how long its bytes travel.
func (s Side) serve(x Mix, size float64) (serve, served, carry float64) {
	k, n := float64(len(x.Trainers)), float64(len(x.Servers))
	bytes, work, slowest := s.Bytes.Of(size), k*s.Serve.Of(size)/n, slices.Min(x.Servers)
	return work / x.speed(slowest, work), work / slowest, max(bytes, k*bytes/n) / x.Link.Rate
}

// speed is how fast a process with so many processors does the work of a step, given in seconds of one. Less than one is a quota, and a process
// has a whole one until the quota of a period is used up: what a step wants of it at once takes no longer, as long as there is idle time
// between. With a full quota q T at its begin, and q T more in each period T, work w takes max(w, w/q - T).
func (x Mix) speed(cores, work float64) float64 {
	if cores >= 1 || work == 0 {
		return cores
	}
	return work / max(work, work/cores-x.Period)
}

func forecast(x Mix, size, step float64, bounds map[string]float64) Forecast {
	f := Forecast{Bounds: bounds}
	longest := 0.0
	for _, role := range []string{Trainer, Server, HeterTrainer, Links} {
		if bounds[role] > longest {
			f.By, longest = role, bounds[role]
		}
	}
	f.Step = max(step, longest)
	f.Fill = f.Step - longest
	f.Rate = float64(len(x.Trainers)) * size / f.Step
	return f
}

// deal shares n pieces that take each seconds of a processor out, each to who is done with it first, and returns how many everybody has.
func deal(speeds []float64, n int, each float64) []int {
	done, has := make([]float64, len(speeds)), make([]int, len(speeds))
	for range n {
		best := 0
		for i, s := range speeds {
			if done[i]+each/s < done[best]+each/speeds[best] {
				best = i
			}
		}
		done[best] += each / speeds[best]
		has[best]++
	}
	return has
}

// shared is what heter-trainers need for n pieces of a step. Who has a quota and much of it left gets more in one step, and fewer in another.
func (x Mix) shared(n int, each float64) float64 {
	if x.Period == 0 || slices.Min(x.Heters) >= 1 {
		return last(deal(x.Heters, n, each), x.Heters, each)
	}
	all := 0.0
	for _, cores := range x.Heters {
		all += cores
	}
	return float64(n) * each / all
}

// last is when the last of pieces that were dealt is done, at such speeds.
func last(has []int, speeds []float64, each float64) float64 {
	end := 0.0
	for i, n := range has {
		end = max(end, float64(n)*each/speeds[i])
	}
	return end
}
