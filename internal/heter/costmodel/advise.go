package costmodel

import "slices"

// Option is a way to spend machines: so many trainers, and heter-trainers or none.
type Option struct {
	Trainers, Heters int
	// Dear says that trainers have the machines that heter-trainers would.
	Dear bool
	Forecast
}

// Unsplit is the fastest that machines of a job do with the model in one piece, heter-trainers' machines among them: as many trainers as
// there are machines, or fewer, of the kind of x's first trainer, or as there are heter-trainers, on machines of the kind of x's first.
// In step the slowest trainer decides, so a mix of both kinds is no faster than all of the slower one. x must be valid and have a
// heter-trainer.
func (c Costs) Unsplit(x Mix, batch int) (best Option) {
	try := func(cores float64, most int, dear bool) {
		for k := 1; k <= most; k++ {
			y := Mix{Trainers: slices.Repeat([]float64{cores}, k), Servers: x.Servers, Link: x.Link, Period: x.Period}
			if f := c.Whole(y, batch); f.Rate > best.Rate {
				best = Option{Trainers: k, Dear: dear, Forecast: f}
			}
		}
	}
	try(x.Trainers[0], len(x.Trainers)+len(x.Heters), false)
	try(x.Heters[0], len(x.Heters), true)
	return best
}

// Best is the fastest way to share so many machines out, at least 2, besides the servers': to trainers and heter-trainers with the
// processors of x's first ones, at least one each. Of equal ones it is that with the fewest heter-trainers.
func (c Costs) Best(x Mix, batch, machines int) (best Option) {
	for m := 1; m < machines; m++ {
		y := Mix{
			Trainers: slices.Repeat(x.Trainers[:1], machines-m), Servers: x.Servers,
			Heters: slices.Repeat(x.Heters[:1], m), Link: x.Link, Period: x.Period,
		}
		if f := c.Split(y, batch); f.Rate > best.Rate*(1+1e-9) {
			best = Option{Trainers: machines - m, Heters: m, Forecast: f}
		}
	}
	return best
}
