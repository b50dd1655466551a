package usage

import (
	"bytes"
	"runtime/pprof"
	"strings"
	"testing"
)

// A goroutine says what it is for, whoever has started it.
func TestPhase(t *testing.T) {
	said := make(chan string)
	go func() {
		Phase("backward")
		go func() {
			Phase("exchange")
			var b bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
			said <- b.String()
		}()
	}()
	if got := <-said; !strings.Contains(got, `# labels: {"phase":"exchange"}`) {
		t.Errorf("no such label in %s", got)
	}
}
