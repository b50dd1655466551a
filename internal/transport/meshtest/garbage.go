package meshtest

import (
	"testing"

	"github.com/ringo-ml/ringo/transport"
)

// noGarbage checks the number of allocations per message on a warm mesh.
func noGarbage(t *testing.T, ranks []transport.Mesh, allocations float64) {
	var r transport.Recv
	p, dst := make([]byte, 1<<15), make([]byte, 1<<15)
	i := 0
	exchange := func(early bool) {
		i++
		if early {
			ranks[1].Post(&r, 0, tag(0, i), dst)
		}
		if err := ranks[0].Send(1, tag(0, i), p, patience); err != nil {
			t.Fatal(err)
		}
		if !early {
			ranks[1].Post(&r, 0, tag(0, i), dst)
		}
		if err := r.Wait(patience); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		exchange(true)
		exchange(false)
	}
	if n := testing.AllocsPerRun(200, func() { exchange(true) }); n >= allocations+1 {
		t.Errorf("a message that is waited for allocates %v times", n)
	}
	// Garbage collections empty the pool of early messages, and so does the race detector.
	if n := testing.AllocsPerRun(200, func() { exchange(false) }); n >= allocations+1 && !raceEnabled {
		t.Errorf("a message that comes early allocates %v times", n)
	}
}
