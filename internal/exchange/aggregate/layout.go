package aggregate

// layout is the division of an exchange, a function of its head and equal on all members.
type layout struct {
	n       int // values
	unit    int // indivisible values: a code's block
	segment int // values of a segment, whole units
	servers int
}

// newLayout divides n values coded in blocks into segments of about values values.
func newLayout(n, block, values, servers int) layout {
	return layout{n: n, unit: block, segment: max(1, values/block) * block, servers: servers}
}

// bounds is a server's range: whole units, equal for all servers up to one unit.
func (l layout) bounds(server int) (lo, hi int) {
	units := (l.n + l.unit - 1) / l.unit
	return min(l.n, units*server/l.servers*l.unit), min(l.n, units*(server+1)/l.servers*l.unit)
}

// segments is the number of segments of a server's range.
func (l layout) segments(server int) int {
	lo, hi := l.bounds(server)
	return (hi - lo + l.segment - 1) / l.segment
}

// at is the range of segment k of a server.
func (l layout) at(server, k int) (lo, hi int) {
	lo, hi = l.bounds(server)
	lo += k * l.segment
	return lo, min(hi, lo+l.segment)
}

// overlap is the intersection of two ranges, with lo >= hi if empty.
func overlap(lo, hi, lo2, hi2 int) (int, int) { return max(lo, lo2), min(hi, hi2) }

// rounds is the maximum number of segments of a server. Round k pushes segment k of all servers.
func (l layout) rounds() int {
	most := 0
	for s := range l.servers {
		most = max(most, l.segments(s))
	}
	return most
}
