package train

// BreakDown is where the time of a step goes: a mean over steps and ranks, or a
// median. Compute, compress, exposed communication and update follow each other
// and together are the step, but for a percent or so.
type BreakDown struct {
	// ComputeMS is forward and backward, and what is between two steps.
	ComputeMS float64 `json:"compute_ms"`
	// CompressMS is what codecs take on the path of the computation.
	CompressMS float64 `json:"compress_ms"`
	// ExposedCommMS is communication that computing does not hide: from the end of
	// backward to the last agreement.
	ExposedCommMS float64 `json:"exposed_comm_ms"`
	// UpdateMS is the rest: the optimizer's rule while no exchange goes on.
	UpdateMS float64 `json:"update_ms"`
	// Density is the share of the gradient's values that a rank sends; 1 for dense
	// exchanges.
	Density float64 `json:"density"`
	// StepExactMS and StepReuseMS are whole steps of strategies that reuse
	// thresholds, by their StepKind.
	StepExactMS OptionalFloat `json:"step_exact_ms,omitzero"`
	StepReuseMS OptionalFloat `json:"step_reuse_ms,omitzero"`
}

// stepTotals adds up the times of steps, in seconds.
type stepTotals struct {
	steps, compute, data, compress, exposed, update float64
	bytes, density                                  float64
	exacts, exact, reuses, reuse                    float64 // how many steps of a kind, and their time
	pull                                            float64 // not in checkpoints: runs that have it write none
}

func (s *stepTotals) values() []*float64 {
	return []*float64{
		&s.steps, &s.compute, &s.data, &s.compress, &s.exposed, &s.update, &s.bytes, &s.density,
		&s.exacts, &s.exact, &s.reuses, &s.reuse,
	}
}

// add counts a step.
func (s *stepTotals) add(t StepTimes) {
	s.steps++
	s.compute += t.Compute.Seconds()
	s.data += t.Data.Seconds()
	s.pull += t.Pull.Seconds()
	s.compress += t.Compress.Seconds()
	s.exposed += t.Exposed.Seconds()
	s.update += t.Update.Seconds()
	s.bytes += float64(t.BytesSent)
	s.density += t.Density
	switch t.Kind {
	case ExactStep:
		s.exacts++
		s.exact += t.Whole.Seconds()
	case ReuseStep:
		s.reuses++
		s.reuse += t.Whole.Seconds()
	}
}

// breakDown is the mean over the steps, of which there is at least one.
func (s *stepTotals) breakDown() BreakDown {
	ms := 1000 / s.steps
	return BreakDown{
		ComputeMS: ms * s.compute, CompressMS: ms * s.compress, ExposedCommMS: ms * s.exposed,
		UpdateMS: ms * s.update, Density: s.density / s.steps,
		StepExactMS: meanMS(s.exact, s.exacts), StepReuseMS: meanMS(s.reuse, s.reuses),
	}
}

// breakDown is that of one step.
func (t StepTimes) breakDown() BreakDown {
	var one stepTotals
	one.add(t)
	return one.breakDown()
}

// meanMS is known where there is something to take the mean of.
func meanMS(seconds, n float64) OptionalFloat {
	if n == 0 {
		return OptionalFloat{}
	}
	return OptionalFloat{Value: 1000 * seconds / n, Known: true}
}

// Layer is what a step did to a layer's gradient on one rank.
type Layer struct {
	Name string `json:"name"`
	// Density is the share of its values that was sent.
	Density float64 `json:"density"`
	// Threshold is the least magnitude that was certain to be sent; 0 where all are.
	Threshold float64 `json:"threshold"`
	// ResidualNorm is the Euclidean norm of what is kept.
	ResidualNorm float64 `json:"residual_norm"`
}

// Layers is what the last step did to each layer, in the order in which backward
// finishes them. It is called between steps.
func (r *Replica) Layers() []Layer {
	var out []Layer
	for _, l := range r.Opt.Layers(nil) {
		out = append(out, Layer{Name: l.Name, Density: l.Density, Threshold: float64(l.Threshold), ResidualNorm: l.ResidualNorm})
	}
	return out
}
