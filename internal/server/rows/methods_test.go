package rows

import (
	"slices"
	"sync"
)

// testSession numbers the pushes of tests: they need no numbers of their own.
type testSession struct {
	number int
	seq    uint64
	once   Once
}

// testSessions has the sessions that no push uses: the last one used is the first.
var testSessions struct {
	sync.Mutex
	free []*testSession
	used int
}

func takeSession() *testSession {
	testSessions.Lock()
	defer testSessions.Unlock()
	if n := len(testSessions.free); n > 0 {
		s := testSessions.free[n-1]
		testSessions.free = testSessions.free[:n-1]
		return s
	}
	testSessions.used++
	return &testSession{number: MaxSessions - testSessions.used, once: Once{Create: true}}
}

func (s *testSession) give() {
	testSessions.Lock()
	defer testSessions.Unlock()
	testSessions.free = append(testSessions.free, s)
}

// Push is PushOnce that creates rows, by a session of the tests.
func (t *Table) Push(keys []uint64, grads []float32, scale float32) error {
	s := takeSession()
	defer s.give()
	s.seq++
	return t.PushOnce(s.number, s.seq, keys, grads, scale, &s.once)
}

// Export copies whole rows and their usage, and appends the indices of keys without a row to
// missing.
func (t *Table) Export(keys []uint64, values []float32, usage []Usage, missing []int32) ([]int32, error) {
	found := make([]bool, len(keys))
	err := t.Visit(keys, func(i int, r *Row) Verdict {
		to := values[i*t.width:]
		to = to[copy(to, r.Weights):]
		for _, part := range r.State {
			to = to[copy(to, part):]
		}
		if found[i] = true; usage != nil {
			usage[i] = r.Usage
		}
		return Keep
	})
	for i, has := range found {
		if !has {
			missing = append(missing, int32(i))
		}
	}
	return missing, err
}

// Delete deletes rows.
func (t *Table) Delete(keys []uint64) (deleted int, err error) {
	unique := slices.Compact(slices.Sorted(slices.Values(keys)))
	err = t.Visit(unique, func(int, *Row) Verdict {
		deleted++
		return Drop
	})
	return deleted, err
}

// freeRows is the number of deleted rows to reuse.
func (t *Table) freeRows() int {
	t.numbers.Lock()
	defer t.numbers.Unlock()
	return t.numbers.idle
}

// used is the sum over the arrays.
func (s Stats) used() (bytes int) {
	for _, a := range s.Arrays {
		bytes += a.Used
	}
	return bytes
}
