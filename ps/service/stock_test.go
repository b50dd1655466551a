package service

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStock[int](3)
		if s.lent() {
			t.Error("lent before anybody took one")
		}
		a, b, c := s.try(), s.try(), s.try()
		if a == nil || b == nil || c == nil || a == b || b == c || a == c {
			t.Fatal("not three things")
		}
		if s.try() != nil || !s.lent() {
			t.Error("a fourth")
		}
		s.give(b)
		s.give(a)
		if got := s.try(); got != a {
			t.Error("the last one given back does not come first")
		}
		s.give(a)
		s.give(c)
		for range 3 {
			s.try()
		}
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan *int, 1)
		go func() { got <- s.take(ctx) }()
		synctest.Wait()
		s.give(c)
		if <-got != c {
			t.Error("who waited did not get it")
		}
		go func() { got <- s.take(ctx) }()
		synctest.Wait()
		cancel()
		if <-got != nil {
			t.Error("something from nothing")
		}
	})
}
