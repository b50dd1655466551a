package forecast

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
// processors c of who does them:
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
//	agree   = update, and the ring of an allreduce among m heter-trainers: 2 (m-1) (PartBytes / m / rate + latency)
//	outer   = the longer of agree and Rows(B) + serve + carry + 4 latency
//	step    = the longer of inner + outer + Wait and the longest bound
//	rate    = k B / step
//
// The bounds are role by role: of a trainer Read + Rows + Pool + Back, of servers serve, of heter-trainers work and update, of links
// bytes. In step no stage of one step overlaps the same of the next, so the sum, not the longest bound alone, is what a job takes.
func (c Costs) Split(x Mix, batch int) Forecast {
	k, n, size := float64(len(x.Trainers)), float64(min(c.Micros, batch)), float64(batch)
	slowest := slices.Min(x.Trainers)
	p, b := c.Pool.Of(size)/n/slowest, c.Back.Of(size)/n/slowest
	there, back := c.There*size/n/x.Link.Rate+x.Link.Latency, c.BackBytes*size/n/x.Link.Rate+x.Link.Latency
	each := c.Part.Sample * size / n
	work := schedule(x.Heters, int(k*n), each)
	m := float64(len(x.Heters))
	cut := k * size * max(c.There, c.BackBytes) / m / x.Link.Rate
	inner := max(n*(p+b), p+there+work+back+b, n*p+there+each/slices.Max(x.Heters)+back+b, p+there+cut+back+b)
	update := c.Part.Step / slices.Min(x.Heters)
	ring := 2 * (m - 1) * (c.PartBytes/m/x.Link.Rate + x.Link.Latency)
	serve, carry := c.OfSplit.serve(x, size)
	rows := c.OfSplit.Rows.Of(size) / slowest
	outer := max(update+ring, rows+serve+carry+4*x.Link.Latency)
	own := (c.Read.Of(size) + c.Pool.Of(size) + c.Back.Of(size)) / slowest
	return forecast(x, size, inner+outer+c.OfSplit.Wait, map[string]float64{
		Trainer: own + rows, Server: serve, HeterTrainer: work + update, Links: max(carry, cut),
	})
}

// Whole predicts the same job with the model in one piece: heter-trainers do nothing, whether there are any or not.
//
//	step = the longer of (Rows(B) + Pass(B)) / c + serve + carry + 4 latency + Wait and the longest bound
func (c Costs) Whole(x Mix, batch int) Forecast {
	size, slowest := float64(batch), slices.Min(x.Trainers)
	serve, carry := c.OfWhole.serve(x, size)
	pass := (c.OfWhole.Rows.Of(size) + c.Pass.Of(size)) / slowest
	return forecast(x, size, pass+serve+carry+4*x.Link.Latency+c.OfWhole.Wait, map[string]float64{
		Trainer: pass + c.Read.Of(size)/slowest, Server: serve, Links: carry,
	})
}

// serve is how long servers need for a step of all trainers, and how long its bytes travel.
func (s Side) serve(x Mix, size float64) (serve, carry float64) {
	k, n := float64(len(x.Trainers)), float64(len(x.Servers))
	bytes := s.Bytes.Of(size)
	return k * s.Serve.Of(size) / n / slices.Min(x.Servers), max(bytes, k*bytes/n) / x.Link.Rate
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

// schedule is when the last of n pieces that take each seconds of a processor is done, each given to who is done with it first.
func schedule(cores []float64, n int, each float64) float64 {
	if slices.Min(cores) == slices.Max(cores) {
		return float64((n+len(cores)-1)/len(cores)) * each / cores[0]
	}
	done := make([]float64, len(cores))
	for range n {
		best := 0
		for i, c := range cores {
			if done[i]+each/c < done[best]+each/cores[best] {
				best = i
			}
		}
		done[best] += each / cores[best]
	}
	return slices.Max(done)
}
