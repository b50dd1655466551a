package service

import (
	"context"
	"sync"
)

// stock is a fixed number of things that are used again and again, the last one given
// back first: its memory is still in the cache.
type stock[T any] struct {
	tokens chan struct{} // as many as there are things in list
	mu     sync.Mutex
	list   []*T
}

func newStock[T any](n int) *stock[T] {
	s := &stock[T]{tokens: make(chan struct{}, n)}
	for range n {
		s.give(new(T))
	}
	return s
}

// try takes one, or returns nil when there is none.
func (s *stock[T]) try() *T {
	select {
	case <-s.tokens:
		return s.pop()
	default:
		return nil
	}
}

// take waits for one; nil when ctx is done first.
func (s *stock[T]) take(ctx context.Context) *T {
	if x := s.try(); x != nil {
		return x
	}
	select {
	case <-s.tokens:
		return s.pop()
	case <-ctx.Done():
		return nil
	}
}

// lent tells whether somebody has one.
func (s *stock[T]) lent() bool { return len(s.tokens) < cap(s.tokens) }

func (s *stock[T]) pop() *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.list[len(s.list)-1]
	s.list = s.list[:len(s.list)-1]
	return x
}

// give gives one back. It does not wait.
func (s *stock[T]) give(x *T) {
	s.mu.Lock()
	s.list = append(s.list, x)
	s.mu.Unlock()
	s.tokens <- struct{}{}
}
