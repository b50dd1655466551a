package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// All trainers get the numbers of all servers' parts, whatever happens to connections and servers meanwhile.
func TestSave(t *testing.T) {
	leakcheck.Check(t)
	const n = 2
	j := newJob(t, 3, n, 2, nil, nil)
	broken := newBreaker(&j.net)
	_, err := j.engines[1].SaveStep(context.Background(), 1, 1) // so that numbers differ
	must(t, err)
	want := []uint64{1, 2, 1}
	var all sync.WaitGroup
	clients := []*Client{j.dial(0, nil), j.dial(1, nil)}
	for round := range 5 {
		step := uint64(10 * (round + 1))
		for _, c := range clients {
			all.Go(func() {
				err := errors.Join(c.Session(1).PushRows(0, uint64(round)+1, []uint64{uint64(round)}, []float32{1, 1, 1}), c.Flush(context.Background()))
				got, saveErr := c.Save(step, 10)
				if err = errors.Join(err, saveErr); err != nil || !slices.Equal(got, want) {
					t.Errorf("step %d: %v %v, want %v", step, got, err, want)
				}
			})
		}
		switch round {
		case 1, 2:
			broken.cut()
		case 3:
			j.restart(2)
		}
		all.Wait()
		for i := range want {
			want[i]++
		}
	}
	if got := j.engines[0].Saves(); !slices.Equal(got, []uint64{10, 20, 30, 40, 50}) {
		t.Errorf("saved after %v", got)
	}
	j.engines[1].FailNext(errors.New("no room"))
	_, err = clients[0].Save(60, 10)
	says(t, err, "checkpoint of the job of step 60, server 1", "no room")
	for _, c := range clients {
		must(t, c.Leave(context.Background()))
	}
	if _, err := clients[0].Save(70, 10); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
