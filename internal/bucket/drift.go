package bucket

import "math"

// Drift is how far a step's computation has left the one that a plan was made
// for: the largest difference, over the layers, of the time at which a gradient
// is final, and of the end of backward, as a share of the planned time of
// forward and backward. It is +Inf when the layers are not the same, or nothing
// was planned to take time and something does. Costs are not compared. A caller
// plans again beyond some bound of its own: times that only scale with the load
// of a machine change plans little below a tenth. O(layers).
func Drift(planned, measured Step) float64 {
	if len(planned.Backward) != len(measured.Backward) {
		return math.Inf(1)
	}
	p, m := planned.Forward, measured.Forward
	most := math.Abs(m - p)
	for i := range planned.Backward {
		p += planned.Backward[i]
		m += measured.Backward[i]
		most = max(most, math.Abs(m-p))
	}
	if most == 0 {
		return 0
	}
	return most / p
}
