package tcp

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/hugepage"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Whether lending a payload costs less than copying it depends on the machine: to look up pages and to let them go takes
// longer than to copy them where memory is fast and the system's own work is slow, as in some virtual machines. With two
// ranks of an AMD EPYC (Zen 5) sums of 4 and 8 MiB took 1.5 times as long lent as copied; on Intel Xeons lent ones are
// faster. No result depends on it, so each process measures it for itself, once, when the first payload may be lent.
//
// The trial has the caches to itself. Where ranks share cores, copies that wait in the system drive what others are at out
// of the caches and nobody has time to spare, and lending gains more than it shows: on two cores, where the trial gave 0.86
// to 1.07, allreduces of 8 to 64 MiB took 0.84 to 0.89 of the time that copying takes with three and four ranks on an
// AMD EPYC (Zen 3), and 0.78 with four on an Intel Xeon.

// Ways of lending, for Config.Lending.
const (
	// LendMeasured lends where that has been measured to cost at least a tenth less than copying, or, between ranks of
	// a host with fewer cores than ranks, at most a quarter more.
	LendMeasured = "measured"
	// LendAlways lends whatever may be lent.
	LendAlways = "always"
	// LendNever copies.
	LendNever = "never"
)

// Lendings are the ways of lending.
func Lendings() []string { return []string{LendMeasured, LendAlways, LendNever} }

// CheckLending reports whether way is one of Lendings, or empty.
func CheckLending(way string) error {
	if way == "" || slices.Contains(Lendings(), way) {
		return nil
	}
	return fmt.Errorf("%q is not known%s: want one of %s", way, spelling.Hint(way, Lendings()...), strings.Join(Lendings(), ", "))
}

// lending is a mesh's decision.
type lending struct {
	way     string
	crowded bool // this host has more ranks than cores
	once    sync.Once
	// within: between ranks of this host, whose processors do both sides' work; beyond: to other hosts.
	within, beyond bool
}

// pays reports whether a payload for a rank of this host, or of another one, is to be lent. The first call may take some
// milliseconds.
func (l *lending) pays(within bool) bool {
	switch l.way {
	case LendAlways:
		return true
	case LendNever:
		return false
	}
	l.once.Do(func() {
		if copied, lent, err := measureLending(); err == nil { // what cannot be measured is copied
			l.within, l.beyond = judgeLending(copied, lent, l.crowded)
		}
	})
	if within {
		return l.within
	}
	return l.beyond
}

// cost is the time that a payload takes from a thread.
type cost struct{ sending, receiving time.Duration }

func (c cost) total() time.Duration { return c.sending + c.receiving }

// judgeLending decides by what a payload costs copied and lent. To another host only the sender's side differs: what
// arrives there comes from the network in either case.
func judgeLending(copied, lent cost, crowded bool) (within, beyond bool) {
	gains := func(lent, copied time.Duration) bool { return 10*lent <= 9*copied }
	within = gains(lent.total(), copied.total()) || crowded && 4*lent.total() <= 5*copied.total()
	return within, gains(lent.sending, copied.sending)
}

const (
	trialBytes = 4 << 20   // more than fits the caches of most cores, as what may be lent is
	trialPiece = 512 << 10 // a segment of a collective
	trials     = 5         // of each kind, in turns; the shortest count
	trialLimit = time.Second
)

var errSlowTrial = errors.New("measuring took too long")

// measureLending sends trialBytes over a loopback connection of its own, copied and lent in turns. One thread does both
// ends' work: with ranks on all cores it is the work that counts. It takes about 10 ms.
func measureLending() (copied, lent cost, err error) {
	from, to, err := loopback()
	if err != nil {
		return cost{}, cost{}, err
	}
	t := trial{from: from, to: to, limit: time.Now().Add(trialLimit)}
	defer from.close()
	defer to.close()
	t.src = bytesview.Bytes(hugepage.Floats(trialBytes / 4)) // as operands are allocated
	t.dst = make([]byte, trialPiece)
	for i := range trials {
		for _, kind := range []struct {
			put  func([][]byte) (int, error)
			best *cost
		}{{from.write, &copied}, {from.writeZeroCopy, &lent}} {
			c, err := t.run(kind.put, byte(i))
			if err != nil {
				return cost{}, cost{}, err
			}
			if i == 0 || c.total() < kind.best.total() {
				*kind.best = c
			}
		}
	}
	return copied, lent, nil
}

type trial struct {
	from, to socket
	src, dst []byte
	limit    time.Time
}

// run sends all of src, which it has just written, and receives it.
func (t *trial) run(put func([][]byte) (int, error), salt byte) (c cost, err error) {
	for i := range t.src {
		t.src[i] = salt
	}
	for at := 0; at < len(t.src); at += len(t.dst) {
		piece := t.src[at : at+len(t.dst)]
		for sent, got := 0, 0; got < len(piece); {
			start := time.Now()
			if start.After(t.limit) {
				return c, errSlowTrial
			}
			if sent < len(piece) {
				n, err := put([][]byte{piece[sent:]})
				if err != nil && err != errAgain {
					return c, err
				}
				sent += n
			}
			middle := time.Now()
			n, err := t.to.read([][]byte{t.dst[got:]})
			if err != nil && err != errAgain {
				return c, err
			}
			got += n
			c.sending += middle.Sub(start)
			c.receiving += time.Since(middle)
		}
	}
	return c, nil
}

// loopback returns both ends of a connection within this process.
func loopback() (from, to socket, err error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	l.SetDeadline(time.Now().Add(trialLimit))
	near, err := net.DialTimeout("tcp", l.Addr().String(), trialLimit)
	if err != nil {
		return nil, nil, err
	}
	far, err := l.AcceptTCP()
	if err != nil {
		near.Close()
		return nil, nil, err
	}
	if far.RemoteAddr().String() != near.LocalAddr().String() {
		near.Close()
		far.Close()
		return nil, nil, errors.New("a stranger has connected")
	}
	return openBoth(near.(*net.TCPConn), far)
}

func openBoth(near, far *net.TCPConn) (from, to socket, err error) {
	err = errors.Join(tune(near, Config{}), tune(far, Config{}))
	if err == nil {
		from, err = openSocket(near)
	} else {
		near.Close()
	}
	if err != nil {
		far.Close()
		return nil, nil, err
	}
	if to, err = openSocket(far); err != nil {
		from.close()
		return nil, nil, err
	}
	return from, to, nil
}
