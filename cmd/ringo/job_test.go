package main

import "testing"

// TestSpareThread: a rank communicates on a thread of its own if a core is free or a link is slow.
func TestSpareThread(t *testing.T) {
	for _, c := range []struct {
		threads, cores, hosts int
		spare                 bool
	}{{1, 1, 1, false}, {2, 2, 1, false}, {1, 2, 1, true}, {1, 1, 2, true}, {2, 2, 4, true}} {
		if got := spareThread(c.threads, c.cores, c.hosts); got != c.spare {
			t.Errorf("%d threads on %d cores, %d hosts: %v, want %v", c.threads, c.cores, c.hosts, got, c.spare)
		}
	}
}
