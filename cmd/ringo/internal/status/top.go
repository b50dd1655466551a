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

// askEvery is the time between two answers of `ringo status --watch`.
const askEvery = time.Second

// watch draws the jobs until a key ends it.
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

// top is what it shows: the last answers of the jobs and the choices of who watches. One goroutine has it, that of run; answers and keys
// come to it over channels, so that neither a job that does not answer nor a terminal that is slow holds up the other.
type top struct {
	base, name string
	all        []dashboard.Status
	view       view
	jobEnded   bool // no job is there any more: the last ones are shown
	height     int  // of the screen
}

// ask asks the jobs. One that is gone stays as it was, with a word that it has ended.
func (t *top) ask(ctx context.Context) error {
	all, err := ask(ctx, t.base, t.name)
	t.take(all, err)
	return err
}

// take keeps answers. The job that is shown stays the one that is shown when others begin and end. Where none answers any more the last
// answers stay, marked as gone, until a key leaves or jobs come again.
func (t *top) take(all []dashboard.Status, err error) {
	switch {
	case err == nil:
		if t.view.at < len(t.all) { // the same job, though others have ended
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

// answer is what jobs said.
type answer struct {
	all []dashboard.Status
	err error
}

// run shows the jobs until a key says that it is enough, or ctx ends.
func (t *top) run(ctx context.Context, screen *terminal, every time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, answers := make(chan key), make(chan answer, 1)
	go func() { // it ends with the process, or with its terminal
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
		case now := <-tick.C: // the terminal may have another size, too
			if !asking && !t.view.paused && now.Sub(asked) >= every { // a job that does not answer holds up no key
				asking, asked = true, now
				go func() {
					all, err := ask(ctx, t.base, t.name)
					answers <- answer{all, err}
				}()
			}
		}
	}
}

// typed does what a key asks for; false: it is enough.
func (t *top) typed(k key) bool {
	v, page := &t.view, max(1, t.height/3)
	switch k {
	case 'q', 'Q', 3: // Ctrl-C
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

// sort goes on to the next order, or with one less than there are to the one before.
func (t *top) sort(by int) { t.view.sort = (t.view.sort + by) % len(orders) }

// scroll scrolls the processes, as far as there are any.
func (t *top) scroll(by int) {
	if len(t.all) > 0 {
		t.view.first = max(0, min(t.view.first+by, len(t.all[t.view.at].Processes)-1))
	}
}
