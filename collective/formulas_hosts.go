package collective

// The traffic between hosts of algorithms that ignore hosts. The ranks of a host share its network,
// so that an operation's time depends on the traffic of hosts too, not of ranks alone.

// hostTraffic returns the traffic of the busiest host, to other hosts or from other hosts, as a
// multiple of K, with rank 0 as the root. hosts has the host of each rank.
func (f formulas) hostTraffic(hosts []int) float64 {
	out, in := map[int]float64{}, map[int]float64{}
	f.sends(hosts, func(from, to int, k float64) {
		if a, b := hosts[from], hosts[to]; a != b {
			out[a] += k
			in[b] += k
		}
	})
	most := 0.0
	for h := range out {
		most = max(most, out[h])
	}
	for h := range in {
		most = max(most, in[h])
	}
	return most
}

// sends calls each for every two ranks with traffic, with that traffic as a multiple k of K.
func (f formulas) sends(hosts []int, each func(from, to int, k float64)) {
	n := len(hosts)
	switch {
	case f.method == byRing && f.kind.rooted():
		for r := range n - 1 {
			f.sendAlong(r, r+1, 1, each)
		}
	case f.method == byRing:
		order := byHost(hosts)
		for i, r := range order {
			each(r, order[(i+1)%n], f.busiest(n))
		}
	case f.method == byTree:
		for r := 1; r < n; r++ {
			share := 1.0
			if f.kind == kindGather || f.kind == kindScatter {
				share = float64(treeSpan(r, n)) / float64(n)
			}
			f.sendAlong(treeParent(r, false), r, share, each)
		}
	case f.method == byNaive || f.kind.rooted(): // a star
		for r := 1; r < n; r++ {
			f.sendAlong(0, r, f.all(n)/float64(n-1)/f.ways(), each)
		}
	case f.method == byDoubling && f.kind == kindAllReduce:
		foldedSends(n, each)
	default:
		f.circle(n, func(far int, k float64) {
			for r := range n {
				each(r, (r+far)%n, k)
			}
		})
	}
}

// sendAlong calls each for the traffic between rank near and rank far, which is further from the
// root: away from the root, towards it, or both.
func (f formulas) sendAlong(near, far int, k float64, each func(from, to int, k float64)) {
	if f.kind != kindReduce && f.kind != kindGather {
		each(near, far, k)
	}
	if f.kind != kindBroadcast && f.kind != kindScatter {
		each(far, near, k)
	}
}

// ways returns 2 for an operation that travels to the root and back.
func (f formulas) ways() float64 {
	if f.kind == kindAllReduce {
		return 2
	}
	return 1
}

// circle calls each with every distance between a sender and its receiver, and a rank's traffic
// over that distance, as a multiple of K. Both directions cross the same hosts, and count as one.
func (f formulas) circle(n int, each func(far int, k float64)) {
	if f.method == byPairs || f.method == byExchange {
		for far := 1; far < n; far++ {
			each(far, f.busiest(n)/float64(n-1))
		}
		return
	}
	for far := 1; far < n; far *= 2 {
		chunks := min(far, n-far)
		switch f.kind {
		case kindBarrier:
			chunks = 0
		case kindAllToAll:
			chunks = withBit(n, far)
		}
		each(far, f.ways()*float64(chunks)/float64(n))
	}
}

// withBit returns the number of values in 0 to n-1 with a bit set.
func withBit(n, bit int) int {
	count := 0
	for i := range n {
		if i&bit != 0 {
			count++
		}
	}
	return count
}

// foldedSends calls each for the traffic of doublingAllReduce with n ranks.
func foldedSends(n int, each func(from, to int, k float64)) {
	extra := n - full(n)
	for own := range full(n) {
		if own < extra {
			each(2*own, 2*own+1, 1)
			each(2*own+1, 2*own, 1)
		}
		for far := 1; far < full(n); far *= 2 {
			each(unfolded(own, extra), unfolded(own^far, extra), 1)
		}
	}
}
