package remote

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// Patience configures retries and timeouts. The zero value means the defaults.
type Patience struct {
	// Tries is the number of attempts per object; 0: 5.
	Tries int
	// Pause is the delay before the second attempt; doubled up to 5 s. 0: 200 ms.
	Pause time.Duration
	// Least is the minimum rate of an attempt in bytes per second after its first minute: slower
	// attempts fail. 0: 256 KiB.
	Least int64
}

const (
	usualTries = 5
	usualPause = 200 * time.Millisecond
	usualLeast = 256 << 10
	mostPause  = 5 * time.Second
	firstTime  = time.Minute // allowance besides the transfer

	// listing is the size of a listing in bytes for timeouts: it has pages of a thousand objects,
	// and stores limit the wait for each.
	listing = 1 << 30
)

// try calls do, which transfers the given number of bytes, until it succeeds, and returns the last
// error.
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

// eachOf calls do for all concurrently, and starts no more after an error.
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
