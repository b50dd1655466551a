package client

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/heter/service"
)

// A trainer that can make no memory says so once for each heter-trainer of its host, and works over links.
func TestNoMemory(t *testing.T) {
	r := newRig(t, 1, 2, func(c *service.Config) { c.LinkOnly = c.Index == 1 })
	r.hostile.Store(true) // that is, the link is used although memory is offered
	var notes []string
	r.config.Note = func(line string) { notes = append(notes, line) }
	r.config.Report = func(line string) { t.Error(line) }
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: was.Max}))
	c := r.dial(0)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	want, _ := r.oracle()
	tr := side(t, r.spec, r.cut, 4, c)
	for i, b := range r.batches(0) {
		pass, err := tr.Backward(b, 0, func(int) {})
		must(t, err)
		if got := pass.Loss.Mean.Data[0]; furthest([]float32{got}, want[0][i:i+1]) > r.near {
			t.Errorf("step %d: loss %v, want %v", i+1, got, want[0][i])
		}
		must(t, tr.End(rate))
	}
	must(t, c.Leave())
	for _, end := range r.ends {
		must(t, <-end)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "heter-trainer 0 at ") || !strings.Contains(notes[0], "is on this host and shares no memory, micro-batches go over the link: ") || !strings.Contains(notes[0], "ulimit -f") {
		t.Errorf("%q", notes)
	}
}
