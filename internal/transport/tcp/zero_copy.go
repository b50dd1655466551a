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

// The cost of zero-copy against copying depends on the machine: with fast memory and slow system
// calls, as in some virtual machines, looking up and releasing pages is slower. With two ranks on
// an AMD EPYC (Zen 5), sums of 4 and 8 MiB took 1.5 times as long with zero-copy; on Intel Xeons
// zero-copy is faster. Results are identical, so each process measures once, at the first payload.
//
// The trial has the caches for itself. When ranks share cores, copies in system buffers evict other
// ranks' data from the caches, so zero-copy gains more than the trial measures: on two cores, with
// trial ratios of 0.86 to 1.07, allreduces of 8 to 64 MiB took 0.84 to 0.89 of the time of copying
// with three and four ranks on an AMD EPYC (Zen 3), and 0.78 with four on an Intel Xeon.

// Values of Config.Lending.
const (
	// LendMeasured uses zero-copy if measured at least a tenth cheaper than copying or, between
	// ranks of a host with fewer cores than ranks, at most a quarter more expensive.
	LendMeasured = "measured"
	// LendAlways uses zero-copy for every qualifying payload.
	LendAlways = "always"
	// LendNever copies.
	LendNever = "never"
)

// Lendings returns the values of Config.Lending.
func Lendings() []string { return []string{LendMeasured, LendAlways, LendNever} }

// CheckLending returns an error unless way is one of Lendings or empty.
func CheckLending(way string) error {
	if way == "" || slices.Contains(Lendings(), way) {
		return nil
	}
	return fmt.Errorf("%q is not known%s: want one of %s", way, spelling.Hint(way, Lendings()...), strings.Join(Lendings(), ", "))
}

type lending struct {
	way     string
	crowded bool // more ranks than cores on this host
	once    sync.Once
	// within is the decision for ranks of this host, where the processors do both sides' work;
	// beyond is the decision for other hosts.
	within, beyond bool
}

// pays reports whether to send a payload to a rank of this host, or of another host, without a
// copy. The first call may take some milliseconds.
func (l *lending) pays(within bool) bool {
	switch l.way {
	case LendAlways:
		return true
	case LendNever:
		return false
	}
	l.once.Do(func() {
		if copied, lent, err := measureLending(); err == nil { // without a measurement payloads are copied
			l.within, l.beyond = judgeLending(copied, lent, l.crowded)
		}
	})
	if within {
		return l.within
	}
	return l.beyond
}

// cost is the processor time of a payload on a thread.
type cost struct{ sending, receiving time.Duration }

func (c cost) total() time.Duration { return c.sending + c.receiving }

// judgeLending decides by the measured costs. For another host only the sender's side differs: the
// receiver gets the data from the network in both cases.
func judgeLending(copied, lent cost, crowded bool) (within, beyond bool) {
	gains := func(lent, copied time.Duration) bool { return 10*lent <= 9*copied }
	within = gains(lent.total(), copied.total()) || crowded && 4*lent.total() <= 5*copied.total()
	return within, gains(lent.sending, copied.sending)
}

const (
	trialBytes = 4 << 20   // more than the caches of most cores hold, like qualifying payloads
	trialPiece = 512 << 10 // segment of a collective
	trials     = 5         // trials of each kind, alternating; the shortest counts
	trialLimit = time.Second
)

var errSlowTrial = errors.New("measuring took too long")

// measureLending sends trialBytes over a separate loopback connection, alternately with and without
// a copy, in about 10 ms. One thread does both ends' work: total work counts if all cores are busy.
func measureLending() (copied, lent cost, err error) {
	from, to, err := loopback()
	if err != nil {
		return cost{}, cost{}, err
	}
	t := trial{from: from, to: to, limit: time.Now().Add(trialLimit)}
	defer from.close()
	defer to.close()
	t.src = bytesview.Bytes(hugepage.Floats(trialBytes / 4)) // allocated like operands
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

// run fills src with salt, sends src and receives the data.
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
