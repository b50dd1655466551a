package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/transport"
)

// Whoever comes after another process that was told otherwise ends the job, for all of them, with both names.
func TestProcessesThatWereToldOtherwise(t *testing.T) {
	for _, c := range []struct {
		told []setting.Values // by rank; the last is a server
		want string           // "" where they agree
	}{
		{[]setting.Values{{"sync": "sum", "training.lr": "0.1"}, nil, {"sync": "sum", "servers.count": "1"}}, ""},
		{[]setting.Values{{"training.lr": "0.1", "training.seed": "1"}, {"training.lr": "0.2", "training.seed": "2"}, nil},
			"training.lr is 0.1 on rank 0 and 0.2 on rank 1: give all processes of a job the same; training.seed is 1 on rank 0 and 2 on rank 1: give all processes of a job the same"},
		{[]setting.Values{nil, {"network.tls": "true"}, {"network.tls": "false"}},
			"network.tls is true on rank 1 and false on server 0: give all processes of a job the same"},
	} {
		coordinator, cfg := job(t, 3, func(c *CoordinatorConfig) { c.Servers = 1 })
		type result struct {
			member *Member
			err    error
		}
		var results []chan result
		for r, told := range c.told {
			mine, done := cfg, make(chan result, 1)
			mine.Rank, mine.Settings = r, told
			go func() {
				m, err := Join(context.Background(), mine)
				done <- result{m, err}
			}()
			results = append(results, done)
			for r < 2 && !seated(coordinator, r) { // in this order, so that it is known who is compared with whom
				time.Sleep(time.Millisecond)
			}
		}
		for r, done := range results {
			got := <-done
			if got.member != nil {
				defer got.member.Leave("")
			}
			if (got.err == nil) != (c.want == "") || got.err != nil && !strings.HasSuffix(got.err.Error(), c.want) {
				t.Errorf("rank %d: %v, want %q", r, got.err, c.want)
			}
			conflict := (*setting.ConflictError)(nil)
			if late := errors.Is(got.err, transport.ErrRefused); got.err != nil && !late && !errors.As(got.err, &conflict) {
				t.Errorf("rank %d: no setting is to be found in %v", r, got.err)
			}
			if got.err != nil && !IsVerdict(got.err) {
				t.Errorf("rank %d would tell what the coordinator has", r)
			}
		}
		if err := coordinator.Err(); (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("the coordinator: %v, want %q", err, c.want)
		}
	}
}

// seated says that rank has come, and perhaps left again.
func seated(c *Coordinator, rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[rank].state > seatReserved
}
