package status

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/jobregistry"
	"github.com/ringo-ml/ringo/internal/cli"
)

// askEvery is the interval of requests of `ringo status --watch`.
const askEvery = time.Second

// watch draws the jobs until a key ends the watch.
func watch(cmd *cobra.Command, job string) error {
	if !cli.IsTerminal(cmd.OutOrStdout()) {
		return errors.New("`ringo status --watch` draws on a terminal, and the output is none: " + errElsewhere)
	}
	t := &top{base: jobregistry.Base(), name: job}
	if err := t.ask(cmd.Context()); err != nil {
		return err
	}
	screen, err := openTerminal(cmd.InOrStdin(), cmd.OutOrStdout(), os.LookupEnv)
	if err != nil {
		return err
	}
	defer screen.close()
	t.run(cmd.Context(), screen, askEvery)
	return nil
}

// top is the screen's state: the jobs' last replies and the viewer's choices. Only run's goroutine
// uses top; replies and keys arrive over channels, so a silent job or slow terminal delays neither.
type top struct {
	base, name string
	all        []dashboard.Status
	view       view
	jobEnded   bool // all jobs have ended: the last replies are displayed
	height     int  // height of the screen
}

// ask requests the jobs' status. An ended job stays displayed as ended.
func (t *top) ask(ctx context.Context) error {
	all, err := ask(ctx, t.base, t.name)
	t.take(all, err)
	return err
}

// take stores replies. The displayed job stays displayed when other jobs begin and end. If no job
// answers, the last replies stay, marked as ended, until a key leaves or jobs appear.
func (t *top) take(all []dashboard.Status, err error) {
	switch {
	case err == nil:
		if t.view.at < len(t.all) { // same job, although others have ended
			same := func(s dashboard.Status) bool { return s.Job == t.all[t.view.at].Job }
			t.view.at = max(0, slices.IndexFunc(all, same))
		}
		t.all, t.jobEnded = all, false
	case len(t.all) > 0 && !t.jobEnded:
		t.jobEnded = true
		for i := range t.all {
			t.all[i].State = "gone"
			t.all[i].Faults = append(t.all[i].Faults, dashboard.FaultAt{At: time.Now().UTC().Format(time.RFC3339), Text: "the job has ended: q leaves"})
		}
	}
	t.view.jobs, t.view.at = len(t.all), max(0, min(t.view.at, len(t.all)-1))
}

type answer struct {
	all []dashboard.Status
	err error
}

// run displays the jobs until a key ends the display, or ctx ends.
func (t *top) run(ctx context.Context, screen *terminal, every time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, answers := make(chan key), make(chan answer, 1)
	go func() { // ends with the process or the terminal
		defer close(keys)
		var b []byte
		for more := make([]byte, 256); ; {
			n, err := screen.in.Read(more)
			var found []key
			found, b = readKeys(append(b, more[:n]...))
			for _, k := range found {
				select {
				case keys <- k:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	tick, asked, asking := time.NewTicker(every/4), time.Now(), false
	defer tick.Stop()
	for {
		width, height := screen.size()
		if t.height = height; len(t.all) > 0 {
			screen.draw(lines(t.all[t.view.at], t.view, width, height), width, height)
		}
		select {
		case <-ctx.Done():
			return
		case k, open := <-keys:
			if !open || !t.typed(k) {
				return
			}
		case a := <-answers:
			if asking = false; !t.view.paused {
				t.take(a.all, a.err)
			}
		case now := <-tick.C: // also updates the terminal size
			if !asking && !t.view.paused && now.Sub(asked) >= every { // a job without a reply delays no key
				asking, asked = true, now
				go func() {
					all, err := ask(ctx, t.base, t.name)
					answers <- answer{all, err}
				}()
			}
		}
	}
}

// typed handles a key; false means quit.
func (t *top) typed(k key) bool {
	v, page := &t.view, max(1, t.height/3)
	switch k {
	case 'q', 'Q', 3: // value 3 is Ctrl-C
		return false
	case 'n', '\t':
		v.at, v.first = (v.at+1)%max(1, len(t.all)), 0
	case 's', keyRight:
		t.sort(1)
	case keyLeft:
		t.sort(len(orders) - 1)
	case 'r':
		v.reversed = !v.reversed
	case 'p', ' ':
		v.paused = !v.paused
	case '?', 'h':
		v.help = !v.help
	}
	t.scroll(map[key]int{'k': -1, keyUp: -1, 'j': 1, keyDown: 1, keyPageUp: -page, keyPageDown: page, keyHome: -1 << 20, keyEnd: 1 << 20}[k])
	return true
}

// sort advances the order by some places; the number of orders less one selects the previous order.
func (t *top) sort(by int) { t.view.sort = (t.view.sort + by) % len(orders) }

func (t *top) scroll(by int) {
	if len(t.all) > 0 {
		t.view.first = max(0, min(t.view.first+by, len(t.all[t.view.at].Processes)-1))
	}
}
