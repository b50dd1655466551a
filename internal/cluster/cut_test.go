package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// Who is silent is lost, unless data links show that the silence is the control connection's alone; and not for ever.
func TestDead(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name string
		q    observation
		lost bool
		why  string
	}{
		{"heard", observation{silent: 9 * s, limit: 10 * s}, false, "is recent"},
		{"on this host", observation{silent: 10 * s, limit: 10 * s, sameHost: true, last: 3}, true, "no sign of life for 10s"},
		{"others wait for it", observation{silent: 10 * s, limit: 10 * s, moved: 9 * s, last: 3}, true, "no sign of life for 10s"},
		{"others got what it had sent before", observation{silent: 10 * s, limit: 10 * s, moved: 5 * s, last: 3}, true, "no sign of life for 10s"},
		{"others go on", observation{silent: 10 * s, limit: 10 * s, moved: s, last: 3, silence: 2}, false, "other members have received data"},
		{"others go on for long", observation{silent: 30 * s, limit: 10 * s, last: 3}, true, "no sign of life for 30s"},
		{"nobody is heard", observation{silent: 12 * s, limit: 10 * s, moved: 12 * s, silence: 1}, false, "disconnected"},
		{"nobody is heard for long", observation{silent: 30 * s, limit: 10 * s, moved: 30 * s, silence: 1}, true, "30s"},
		{"the only one", observation{silent: 10 * s, limit: 10 * s, moved: 10 * s}, true, "10s"},
	} {
		if lost, why := c.q.decide(); lost != c.lost || !strings.Contains(why, c.why) {
			t.Errorf("%s: %v, %q, want %v, %q", c.name, lost, why, c.lost, c.why)
		}
	}
}

// Links to the coordinator are cut for 15 s, one or all, while data come: nobody is lost, on neither side. Without data, or for
// longer, who is cut off is.
func TestControlLinksAreCut(t *testing.T) {
	for _, c := range []struct {
		name    string
		cut     int // how many links
		lasts   time.Duration
		data    bool
		blamed  int // the rank that is lost; -1: none, 3: any
		leaving string
	}{
		{"all, for 15 s", 3, 15 * time.Second, true, -1, ""},
		{"one, for 15 s", 1, 15 * time.Second, true, -1, ""},
		{"one, without data", 1, 15 * time.Second, false, 0, "no sign of life for 10s"},
		{"one, for good", 1, time.Hour, true, 0, "no sign of life for 30s"},
		{"all, for good", 3, time.Hour, true, 3, "no sign of life for 30s"},
	} {
		play(t, 3, func(t *testing.T, s *scene) {
			begun := time.Now()
			for _, m := range s.members {
				m.SetReceived(func() int64 {
					if !c.data {
						return 0
					}
					return time.Since(begun).Milliseconds()
				})
			}
			time.Sleep(3 * time.Second)
			for _, d := range s.down[:c.cut] {
				d.Store(true)
			}
			time.Sleep(c.lasts)
			for _, d := range s.down {
				d.Store(false)
			}
			time.Sleep(time.Minute)
			var lost *transport.LostError
			err := s.Err()
			switch {
			case c.blamed < 0:
				for _, m := range s.members {
					err = errors.Join(err, m.Err())
				}
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			case !errors.As(err, &lost) || c.blamed < 3 && lost.Rank != c.blamed || !strings.Contains(lost.Reason, c.leaving):
				t.Errorf("%s: %v, want rank %d, %q", c.name, err, c.blamed, c.leaving)
			case s.members[0].Err() == nil:
				t.Errorf("%s: who is cut off goes on", c.name)
			}
		})
	}
}
