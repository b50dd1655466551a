package bytesview

import "sync"

// FreeList has values for reuse, which it retains, unlike a sync.Pool. The zero value is empty. Its
// methods are safe for concurrent use.
type FreeList[T any] struct {
	mu   sync.Mutex
	free []*T
}

// Get returns the value of the last Put, or a zero value if none is free.
func (l *FreeList[T]) Get() *T {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.free)
	if n == 0 {
		return new(T)
	}
	x := l.free[n-1]
	l.free = l.free[:n-1]
	return x
}

// Put adds values that their users no longer need.
func (l *FreeList[T]) Put(x ...*T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, x...)
}
