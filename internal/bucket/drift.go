package bucket

import "math"

// Drift is a measured step's distance from the planned step: the largest difference, over the
// layers, of the time of a final gradient and of the end of backward, as a share of the planned
// forward and backward. Drift is +Inf for different layers, or for planned times of 0 and positive
// measured times. Costs are not compared. A caller plans again beyond a bound: times scaled by a
// machine's load change plans little below a tenth. O(layers).
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
