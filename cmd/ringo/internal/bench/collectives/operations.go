package collectives

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/collective"
)

// The functions below return the operations of `ringo bench collective` as trials.

func (m *maker[T]) allReduce() trial {
	own, want := m.operands(), m.reduced()
	return trial{
		rewrite: func(salt int) { own[salt].fill(m.dst, 0) },
		call:    func() error { return collective.AllReduce(m.g, m.dst, m.redop) },
		check:   func(salt int) (int, string) { return compare(want[salt], m.dst, 0) },
	}
}

func (m *maker[T]) reduce() trial {
	own, want := m.operands(), m.reduced()
	return trial{
		rewrite: func(salt int) { own[salt].fill(m.dst, 0) },
		call:    func() error { return collective.Reduce(m.g, m.dst, m.redop, m.root) },
		check: func(salt int) (int, string) {
			if m.me != m.root {
				return compare(own[salt], m.dst, 0) // read-only operand
			}
			return compare(want[salt], m.dst, 0)
		},
	}
}

func (m *maker[T]) broadcast() trial {
	own, want := m.operands(), operandBlocks(m.as, m.redop, m.root)
	return trial{
		rewrite: func(salt int) { own[salt].fill(m.dst, 0) },
		call:    func() error { return collective.Broadcast(m.g, m.dst, m.root) },
		check:   func(salt int) (int, string) { return compare(want[salt], m.dst, 0) },
	}
}

func (m *maker[T]) barrier() trial {
	return trial{
		rewrite: func(int) {},
		call:    func() error { return collective.Barrier(m.g) },
		check:   func(int) (int, string) { return 0, "" },
	}
}

// sendReceive sends to the next rank and receives from the previous rank.
func (m *maker[T]) sendReceive() trial {
	own, src := m.operands(), m.src[:m.count]
	to, from := (m.me+1)%m.np, (m.me+m.np-1)%m.np
	want := operandBlocks(m.as, m.redop, from)
	return trial{
		rewrite: func(salt int) { own[salt].fill(src, 0) },
		call: func() error {
			if m.np == 1 {
				copy(m.dst, src)
				return nil
			}
			out := collective.StartSend(m.g, src, to)
			err := collective.Receive(m.g, m.dst, from)
			return errors.Join(out.Wait(), err)
		},
		check: func(salt int) (int, string) { return compare(want[salt], m.dst, 0) },
	}
}

func (m *maker[T]) reduceScatter() trial {
	own, want, n := m.operands(), m.reduced(), m.count/m.np
	src, dst := m.src[:m.count], m.dst[:n]
	return trial{
		rewrite: func(salt int) { own[salt].fill(src, 0) },
		call:    func() error { return collective.ReduceScatter(m.g, dst, src, m.redop) },
		check:   func(salt int) (int, string) { return compare(want[salt], dst, m.me*n) },
	}
}

func (m *maker[T]) everyRank() (all [][salts]block[T]) {
	for r := range m.np {
		all = append(all, operandBlocks(m.as, m.redop, r))
	}
	return all
}

// compareParts compares each rank r's part of dst, counts[r] values, with r's from first[r] on.
func (m *maker[T]) compareParts(all [][salts]block[T], salt int, counts, first []int) (wrong int, text string) {
	at := 0
	for r, n := range counts {
		bad, what := compare(all[r][salt], m.dst[at:][:n], first[r])
		if wrong += bad; text == "" && bad > 0 {
			text = fmt.Sprintf("part of rank %d: %s", r, what)
		}
		at += n
	}
	return wrong, text
}

// weight returns a rank's share of the larger operand: equal shares, or 1, 3, 1, 3, ... for
// operations on parts of different lengths.
func (m *maker[T]) weight(r int) int {
	if m.op == "allgatherv" {
		return 1 + 2*(r%2)
	}
	return 1
}

func (m *maker[T]) parts() (counts, starts []int) {
	all, before := 0, 0
	for r := range m.np {
		all += m.weight(r)
	}
	for r := range m.np {
		lo, hi := m.count*before/all, m.count*(before+m.weight(r))/all
		counts, starts = append(counts, hi-lo), append(starts, lo)
		before += m.weight(r)
	}
	return counts, starts
}

func (m *maker[T]) allGather() trial {
	counts, _ := m.parts()
	own, src, all, first := m.operands(), m.src[:counts[m.me]], m.everyRank(), make([]int, m.np)
	t := trial{
		rewrite: func(salt int) { own[salt].fill(src, 0) },
		call:    func() error { return collective.AllGatherV(m.g, m.dst, src, counts) },
		check:   func(salt int) (int, string) { return m.compareParts(all, salt, counts, first) },
	}
	if m.op == "allgather" {
		t.call = func() error { return collective.AllGather(m.g, m.dst, src) }
	}
	return t
}

func (m *maker[T]) gather() trial {
	counts, _ := m.parts()
	own, src, all, first := m.operands(), m.src[:counts[m.me]], m.everyRank(), make([]int, m.np)
	return trial{
		rewrite: func(salt int) { own[salt].fill(src, 0) },
		call:    func() error { return collective.Gather(m.g, m.dst, src, m.root) },
		check: func(salt int) (int, string) {
			if m.me != m.root {
				return 0, ""
			}
			return m.compareParts(all, salt, counts, first)
		},
	}
}

func (m *maker[T]) scatter() trial {
	counts, starts := m.parts()
	own, src, dst := m.operands(), m.src[:m.count], m.dst[:counts[m.me]]
	want := operandBlocks(m.as, m.redop, m.root)
	return trial{
		rewrite: func(salt int) { own[salt].fill(src, 0) },
		call:    func() error { return collective.Scatter(m.g, dst, src, m.root) },
		check:   func(salt int) (int, string) { return compare(want[salt], dst, starts[m.me]) },
	}
}

// pair returns the number of values from rank a to rank b in an all-to-all, equal to that from b to
// a: equal parts, or one or two shares for different lengths.
func (m *maker[T]) pair(a, b int) int {
	if m.op == "alltoallv" {
		return m.count / (m.np + (m.np+1)/2) * (1 + (a+b)%2)
	}
	return m.count / m.np
}

func (m *maker[T]) allToAll() trial {
	own, all := m.operands(), m.everyRank()
	counts, first, sum := make([]int, m.np), make([]int, m.np), 0
	for r := range m.np {
		counts[r] = m.pair(m.me, r)
		sum += counts[r]
		for q := range m.me { // start of this rank's part in rank r's operand
			first[r] += m.pair(r, q)
		}
	}
	src, dst := m.src[:sum], m.dst[:sum]
	t := trial{
		rewrite: func(salt int) { own[salt].fill(src, 0) },
		call:    func() error { return collective.AllToAll(m.g, dst, src) },
		check:   func(salt int) (int, string) { return m.compareParts(all, salt, counts, first) },
	}
	if m.op == "alltoallv" {
		t.call = func() error { return collective.AllToAllV(m.g, dst, src, counts, counts) }
	}
	return t
}
