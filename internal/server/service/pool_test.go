package service

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStock(3, func(*int) int { return 0 })
		if s.inUse() {
			t.Error("lent before anybody took one")
		}
		a, b, c := s.try(0), s.try(0), s.try(0)
		if a == nil || b == nil || c == nil || a == b || b == c || a == c {
			t.Fatal("not three things")
		}
		if s.try(0) != nil || !s.inUse() {
			t.Error("a fourth")
		}
		s.give(b)
		s.give(a)
		if got := s.try(0); got != a {
			t.Error("the last one given back does not come first")
		}
		s.give(a)
		s.give(c)
		for range 3 {
			s.try(0)
		}
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan *int, 1)
		go func() { got <- s.take(ctx, 0) }()
		synctest.Wait()
		s.give(c)
		if <-got != c {
			t.Error("who waited did not get it")
		}
		go func() { got <- s.take(ctx, 0) }()
		synctest.Wait()
		cancel()
		if <-got != nil {
			t.Error("something from nothing")
		}
	})
}

// A stock gives what fits best: short answers do not take the memory of long ones.
func TestStockFits(t *testing.T) {
	s := newStock(4, func(n *int) int { return *n })
	var things []*int
	for range 4 {
		things = append(things, s.try(0))
	}
	for i, room := range []int{70, 10, 90, 30} {
		*things[i] = room
		s.give(things[i])
	}
	for _, c := range []struct{ size, want int }{{30, 30}, {31, 70}, {100, 90}, {5, 10}} {
		if got := s.try(c.size); *got != c.want {
			t.Errorf("for %d bytes it gives %d, want %d", c.size, *got, c.want)
		}
	}
}
