package remote

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// Patience says how often, and how long, a mirror tries. The zero value is what is usual.
type Patience struct {
	// Tries is how often an object is tried; 0: 5.
	Tries int
	// Pause is that before the second try; each is twice as long as the one before, 5 s at most. 0: 200 ms.
	Pause time.Duration
	// Least bounds a try from below, in bytes a second beyond its first minute: one that is slower counts as failed. 0: 256 KiB.
	Least int64
}

const (
	usualTries = 5
	usualPause = 200 * time.Millisecond
	usualLeast = 256 << 10
	mostPause  = 5 * time.Second
	firstTime  = time.Minute // what a try may take besides its bytes

	// listing is what a list of all objects counts as in bytes: it has pages, of a thousand objects each, and stores bound the wait for one.
	listing = 1 << 30
)

// try calls do, which moves so many bytes, until it succeeds, and returns its last error.
func (p Patience) try(ctx context.Context, bytes int64, do func(ctx context.Context) error) error {
	tries, pause, least := p.Tries, p.Pause, p.Least
	if tries == 0 {
		tries = usualTries
	}
	if pause == 0 {
		pause = usualPause
	}
	if least == 0 {
		least = usualLeast
	}
	for ; ; tries-- {
		bounded, cancel := context.WithTimeout(ctx, firstTime+time.Duration(bytes/least+1)*time.Second)
		err := do(bounded)
		cancel()
		var refused *store.RefusedError
		if err == nil || tries <= 1 || ctx.Err() != nil || errors.As(err, &refused) || errors.Is(err, fs.ErrNotExist) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		case <-timer.C:
		}
		pause = min(2*pause, mostPause)
	}
}

// eachOf does something with all, some at a time, and begins no more after a fault.
func eachOf[T any](all []T, atOnce int, do func(T) error) error {
	var mu sync.Mutex
	var errs []error
	var wait sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for _, one := range all {
		free <- struct{}{}
		mu.Lock()
		failed := len(errs) > 0
		mu.Unlock()
		if failed {
			break
		}
		wait.Go(func() {
			defer func() { <-free }()
			if err := do(one); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
