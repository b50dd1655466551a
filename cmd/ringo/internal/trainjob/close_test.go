package trainjob

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
)

// posts are the requests of a Reporter to a server that is scripted.
type posts struct {
	began time.Time
	at    []time.Duration
	state []status
	under int // of requests that have not returned
}

// teller tells a server that answers by answer, and none of whose requests overlap.
func (p *posts) teller(t *testing.T, answer func(ctx context.Context) error) *Reporter {
	p.began = time.Now()
	tell := &Reporter{clock: time.Now, cfg: Config{
		Every: usualEvery, Timeout: usualTimeout, Report: func(string) {},
		Read: func() dashboard.Progress {
			return dashboard.Progress{Known: true, Share: time.Since(p.began).Hours()}
		},
	}}
	tell.send = func(ctx context.Context, s status) error {
		if p.under++; p.under > 1 {
			t.Error("two requests at a time")
		}
		defer func() { p.under-- }()
		p.at, p.state = append(p.at, time.Since(p.began)), append(p.state, s)
		return answer(ctx)
	}
	tell.start()
	return tell
}

// fine answers at once, silent never, and down refuses.
func fine(context.Context) error       { return nil }
func down(context.Context) error       { return errors.New("connection refused") }
func silent(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// Whenever a job ends, its last state is told, in one request and within its time; but for that one there is none sooner than five seconds
// after another.
func TestTheEndIsTold(t *testing.T) {
	for name, answer := range map[string]func(context.Context) error{"fine": fine, "down": down, "silent": silent} {
		for _, end := range []time.Duration{0, 999 * time.Millisecond, time.Second, 1001 * time.Millisecond, 3 * time.Second, 11 * time.Second, 61100 * time.Millisecond, 10 * time.Minute} {
			for how := Done; how <= Stopped; how++ {
				synctest.Test(t, func(t *testing.T) {
					p := new(posts)
					tell := p.teller(t, answer)
					time.Sleep(end)
					synctest.Wait()
					before := len(p.at)
					tell.Close(how)
					if took := time.Since(p.began) - end; took > farewell || name == "fine" && took > 0 {
						t.Errorf("%s after %v: the end took %v", name, end, took)
					}
					if len(p.at) != before+1 || p.at[before] != end {
						t.Fatalf("%s after %v: requests at %v, want one more at the end", name, end, p.at)
					}
					last := p.state[before]
					if (how == Done) != (*last.ProgressPercentage == 100) || (how == Failed) != (len(last.Metrics) > 0) {
						t.Errorf("%s after %v: ended by %d, told %+v", name, end, how, last)
					}
					for i := 1; i < before; i++ {
						if pause := p.at[i] - p.at[i-1]; pause < 5*time.Second {
							t.Errorf("%s: requests at %v", name, p.at)
						}
					}
					time.Sleep(time.Hour)
					if len(p.at) != before+1 {
						t.Errorf("%s after %v: it goes on: %v", name, end, p.at)
					}
				})
			}
		}
	}
}
