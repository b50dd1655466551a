package service

import (
	"context"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/message"
)

// pool is a fixed number of things that are used again and again.
type pool[T any] struct {
	room   func(*T) int  // bytes that a thing has memory for
	tokens chan struct{} // as many as there are things in list
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

// try takes the one that fits size bytes best, or returns nil when there is none.
func (s *pool[T]) try(size int) *T {
	select {
	case <-s.tokens:
		return s.pop(size)
	default:
		return nil
	}
}

// take is try that waits for one; nil when ctx is done first.
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

// inUse tells whether somebody has one.
func (s *pool[T]) inUse() bool { return len(s.tokens) < cap(s.tokens) }

func (s *pool[T]) pop(size int) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := message.Fitting(len(s.list), size, func(i int) int { return s.room(s.list[i]) })
	x := s.list[i]
	s.list = slices.Delete(s.list, i, i+1)
	return x
}

// give gives one back. It does not wait.
func (s *pool[T]) give(x *T) {
	s.mu.Lock()
	s.list = append(s.list, x)
	s.mu.Unlock()
	s.tokens <- struct{}{}
}
