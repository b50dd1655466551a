package collective

import (
	"testing"
	"time"
)

// Who listens is not bounded by the timeout.
func TestListen(t *testing.T) {
	for _, n := range []int{4, eager} {
		onPairs(t, 2, Config{Timeout: 50 * time.Millisecond}, func(g *Group) error {
			x := make([]float32, n)
			if g.Rank() == 1 {
				time.Sleep(120 * time.Millisecond)
				return Send(g, values(1, 0, 5, n), 0)
			}
			if err := StartReceiveNoTimeout(g, x, 1).Wait(); err != nil {
				return err
			}
			return same("message", x, values(1, 0, 5, n))
		})
	}
}
