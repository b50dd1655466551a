package costmodel

import "slices"

// Roles that may limit a step.
const (
	Trainer      = "trainers"
	Server       = "servers"
	HeterTrainer = "heter-trainers"
	Links        = "links"
)

// Forecast is the prediction for a mix.
type Forecast struct {
	Rate float64 // samples per second, of all trainers together
	Step float64 // seconds of a step with a batch for every trainer
	// Bounds are the seconds of a step of each role's slowest process, without waits; 0: no role.
	Bounds map[string]float64
	// Fill is the step's time beyond the longest bound: sequential stages, latency, and Wait.
	Fill float64
	// By is the role with the longest bound.
	By string
}

// Split predicts a job with a stage on heter-trainers. With k trainers and n micro-batches of a
// batch of B, times of stages are divided by the speed (see Mix.speed) of their process, and times
// of bounds by its processors:
//
//	p, b    = Pool(B)/n, Back(B)/n                     a micro-batch at a trainer, there and back
//	x, y    = latency + bytes of a micro-batch / rate  on the way there and back
//	serve   = k Serve(B) / all servers' processors     pushes of a step, then pulls of the next
//	carry   = the larger of the bytes of a trainer and of a server / rate
//	work    = end of k n micro-batches, each on the first process to finish it
//	inner   = the longest of  n (p + b)                a trainer that never waits
//	                          p + x + work + y + b     heter-trainers that never wait
//	                          n p + x + Part(B/n) + y + b
//	                          p + x + bytes of the busiest link / rate + y + b
//	agree   = update, and a ring allreduce among m heter-trainers: 2 (m-1)/m Agree,
//	          and 2 (m-1) (PartBytes / m / rate + latency)
//	outer   = the longer of agree and Rows(B) + max(serve, carry) + 4 latency
//	step    = the longer of inner + outer + Wait and the longest bound
//	rate    = k B / step
//
// The bounds are by role: Read + Rows + Pool + Back for a trainer, serve for servers, work and
// update for heter-trainers, bytes for links. Servers work on a message while others are
// transferred. Equal stages of consecutive steps do not overlap in bsp, so that the sum, not only
// the longest bound, determines the time.
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
	outer := max(update+ring, rows+max(serve, carry)+4*x.Link.Latency)
	return forecast(x, size, inner+outer+c.OfSplit.Wait, map[string]float64{
		Trainer: own / slices.Min(x.Trainers), Server: served, Links: max(carry, cut),
		HeterTrainer: x.shared(int(k*n), each) + step/slices.Min(x.Heters),
	})
}

// Whole predicts the same job with the unsplit model, without heter-trainers: a trainer's layers,
// then max(serve, carry) + 4 latency.
func (c Costs) Whole(x Mix, batch int) Forecast {
	size := float64(batch)
	pass := c.OfWhole.Rows.Of(size) + c.Pass.Of(size)
	all := pass + c.Read.Of(size)
	serve, served, carry := c.OfWhole.serve(x, size)
	took := pass / x.speed(slices.Min(x.Trainers), all)
	return forecast(x, size, took+max(serve, carry)+4*x.Link.Latency+c.OfWhole.Wait, map[string]float64{
		Trainer: all / slices.Min(x.Trainers), Server: served, Links: carry,
	})
}

// serve returns the servers' time for a step of all trainers, their time without other work, and
// the transfer time of its bytes.
func (s Side) serve(x Mix, size float64) (serve, served, carry float64) {
	k, n := float64(len(x.Trainers)), float64(len(x.Servers))
	bytes, work, slowest := s.Bytes.Of(size), k*s.Serve.Of(size)/n, slices.Min(x.Servers)
	return work / x.speed(slowest, work), work / slowest, max(bytes, k*bytes/n) / x.Link.Rate
}

// speed returns the speed of a process with the given processors for the work of a step, in seconds
// of one processor. Less than one processor is a quota: the process runs at full speed until the
// quota of a period is used up, so that a burst after idle time is not slowed. With a full quota q
// T at the start, and q T more in each period T, work w takes max(w, w/q - T).
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

// deal divides n pieces of each processor seconds: each piece goes to the process that finishes it
// first. It returns the number of pieces by process.
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

// shared returns the heter-trainers' time for n pieces of a step. A process with unused quota gets
// more pieces in some steps, and fewer in others.
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

// last returns the end of the last dealt piece.
func last(has []int, speeds []float64, each float64) float64 {
	end := 0.0
	for i, n := range has {
		end = max(end, float64(n)*each/speeds[i])
	}
	return end
}
