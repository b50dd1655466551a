package service

import (
	"context"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/message"
)

// pool is a fixed number of reusable objects.
type pool[T any] struct {
	room   func(*T) int  // memory of an object in bytes
	tokens chan struct{} // one token per object in list
	mu     sync.Mutex
	list   []*T
}

func newStock[T any](n int, room func(*T) int) *pool[T] {
	s := &pool[T]{room: room, tokens: make(chan struct{}, n)}
	for range n {
		s.give(new(T))
	}
	return s
}

// try returns the object that fits size bytes best, or nil if none is free.
func (s *pool[T]) try(size int) *T {
	select {
	case <-s.tokens:
		return s.pop(size)
	default:
		return nil
	}
}

// take is try, but waits for a free object; nil if ctx is done first.
func (s *pool[T]) take(ctx context.Context, size int) *T {
	if x := s.try(size); x != nil {
		return x
	}
	select {
	case <-s.tokens:
		return s.pop(size)
	case <-ctx.Done():
		return nil
	}
}

func (s *pool[T]) inUse() bool { return len(s.tokens) < cap(s.tokens) }

func (s *pool[T]) pop(size int) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := message.Fitting(len(s.list), size, func(i int) int { return s.room(s.list[i]) })
	x := s.list[i]
	s.list = slices.Delete(s.list, i, i+1)
	return x
}

// give returns an object to the pool, without blocking.
func (s *pool[T]) give(x *T) {
	s.mu.Lock()
	s.list = append(s.list, x)
	s.mu.Unlock()
	s.tokens <- struct{}{}
}
