package costmodel

import "slices"

// Option is a possible use of machines: a number of trainers and a number of heter-trainers.
type Option struct {
	Trainers, Heters int
	// Dear reports that trainers use the machines of heter-trainers.
	Dear bool
	Forecast
}

// Unsplit returns the fastest use of a job's machines, including heter-trainers' machines, for the
// unsplit model: up to all machines of the kind of x's first trainer, or up to the number of
// heter-trainers, of the kind of x's first heter-trainer. The slowest trainer decides in bsp, so
// that a mix of kinds is no faster than all of the slower kind. x must be valid and have a
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

// Best returns the fastest division of machines, at least 2, without the servers': into trainers
// and heter-trainers with the processors of x's first trainer and heter-trainer, at least one each.
// Ties go to the fewest heter-trainers.
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
