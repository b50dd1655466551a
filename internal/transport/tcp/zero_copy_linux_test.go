package tcp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// A tenth is what lending must promise, and little loss where ranks share cores; on a host both sides count, beyond it the
// sender's.
func TestJudgeLending(t *testing.T) {
	at := func(sending, receiving time.Duration) cost {
		return cost{sending * time.Microsecond, receiving * time.Microsecond}
	}
	for _, c := range []struct {
		copied, lent   cost
		within, beyond bool
		crowded        bool // within the host, if ranks share cores
	}{
		{at(500, 500), at(400, 500), true, true, true},
		{at(500, 500), at(401, 500), false, true, true},
		{at(500, 500), at(451, 400), true, false, true}, // the receiver alone gains
		{at(500, 500), at(300, 900), false, true, true}, // the receiver alone loses
		{at(500, 500), at(500, 500), false, false, true},
		{at(500, 500), at(350, 900), false, true, true},
		{at(500, 500), at(350, 901), false, true, false},
	} {
		if shared, beyond := judgeLending(c.copied, c.lent, true); shared != c.crowded || beyond != c.beyond {
			t.Errorf("copied %v, lent %v, on shared cores: lends %v within the host and %v beyond, want %v and %v", c.copied, c.lent, shared, beyond, c.crowded, c.beyond)
		}
		within, beyond := judgeLending(c.copied, c.lent, false)
		if within != c.within || beyond != c.beyond {
			t.Errorf("copied %v, lent %v: lends %v within the host and %v beyond, want %v and %v", c.copied, c.lent, within, beyond, c.within, c.beyond)
		}
	}
}

// A measurement sends all bytes in each way, leaves nothing open, and is made once.
func TestMeasureLending(t *testing.T) {
	leakcheck.Check(t)
	copied, lent, err := measureLending()
	if errors.Is(err, errSlowTrial) {
		t.Skip("the machine is too busy to measure anything")
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]cost{"copied": copied, "lent": lent} {
		if c.sending <= 0 || c.receiving <= 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	l := lending{way: LendMeasured}
	first := [2]bool{l.pays(true), l.pays(false)}
	l.within, l.beyond = !first[0], !first[1]
	if l.pays(true) == first[0] || l.pays(false) == first[1] {
		t.Error("it was measured again")
	}
}

// What is said is done, whatever the machine is, and what nobody knows is refused.
func TestWaysOfLending(t *testing.T) {
	for way, want := range map[string]bool{LendAlways: true, LendNever: false} {
		l := lending{way: way}
		if l.pays(true) != want || l.pays(false) != want {
			t.Errorf("%s: lends %v and %v", way, l.pays(true), l.pays(false))
		}
	}
	if err := CheckLending("alway"); err == nil || !strings.Contains(err.Error(), "always") {
		t.Errorf("alway: %v", err)
	}
}

// Where lending does not pay messages that might be lent are copied.
func TestLendCopies(t *testing.T) {
	m := formed(t, 2, func(c *Config) { c.Lending = LendNever })
	p := pattern(lendFrom, 1)
	if err := m[0].SendZeroCopy(1, transport.Tag{}, p, patience); err != nil {
		t.Fatal(err)
	}
	if _, err := receive(m[1], 0, transport.Tag{}, len(p)); err != nil {
		t.Fatal(err)
	}
	if lent(m[0]) {
		t.Error("it went through a pipe")
	}
}
