package jobtest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// bytesOf is the memory of x.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// The ranks of one host share memory without being told to, and Alloc is in it.
func TestSharedMemory(t *testing.T) {
	for _, transport := range []string{"", ringo.TransportSHM} {
		leakcheck.Check(t)
		cfgs := byHand(t, 3)
		for r := range cfgs {
			cfgs[r].Transport = transport
			cfgs[r].Report = func(line string) { t.Errorf("reported: %s", line) }
		}
		if err := errors.Join(runAll(t, cfgs, sharesMemory)...); err != nil {
			t.Error(err)
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil || strings.Contains(string(maps), "memfd:ringo") {
			t.Errorf("shared memory is mapped after the jobs' end (%v)", err)
		}
	}
}

func sharesMemory(job *ringo.Job) error {
	w := job.SharedMemory()
	if job.Transport() != ringo.TransportSHM || job.Fallback() != "" || w == nil {
		return fmt.Errorf("over %s: %s", job.Transport(), job.Fallback())
	}
	first, x := job.Alloc(100), job.Alloc(1000)
	for _, x := range [][]float32{first, x} {
		if _, ok := w.Offset(bytesOf(x)); !ok || slices.Max(x) != 0 || uintptr(unsafe.Pointer(&x[0]))%64 != 0 {
			return fmt.Errorf("Alloc returned %p, shared %v", x, ok)
		}
	}
	x[0] = float32(job.Rank())
	if err := collective.AllReduce(job.Group(), x, collective.Sum); err != nil {
		return err
	}
	if x[0] != 3 || x[1] != 0 {
		return fmt.Errorf("the sum is %v", x[:2])
	}
	if err := collective.Barrier(job.Group()); err != nil {
		return err
	}
	job.Free(x)
	if again := job.Alloc(1000); &again[0] != &x[0] || again[0] != 0 {
		return errors.New("memory that was freed is not used again, or not cleared")
	}
	for n := len(w.Arena()); n > 0; n /= 2 {
		for w.Alloc(n) != nil {
		}
	}
	if more := job.Alloc(10); len(more) != 10 {
		return errors.New("beyond the arena there is no memory")
	} else if _, ok := w.Offset(bytesOf(more)); ok {
		return errors.New("the arena holds more than it has")
	}
	return nil
}

// Told not to, they do not; the variable counts where the program says nothing.
func TestToldNotToShare(t *testing.T) {
	for _, c := range []struct{ cfg, env, want string }{
		{ringo.TransportTCP, "", "tcp"},
		{"", "tcp", "tcp"},
		{ringo.TransportTCP, "shm", "tcp"},
		{ringo.TransportSHM, "tcp", "shm"},
	} {
		leakcheck.Check(t)
		t.Setenv(launch.TransportVar, c.env)
		cfgs := byHand(t, 2)
		for r := range cfgs {
			cfgs[r].Transport = c.cfg
			cfgs[r].Report = func(line string) { t.Errorf("reported: %s", line) }
		}
		for _, err := range runAll(t, cfgs, func(job *ringo.Job) error {
			if job.Transport() != c.want || job.Fallback() != "" || (job.SharedMemory() == nil) != (c.want == "tcp") {
				return fmt.Errorf("over %s: %s", job.Transport(), job.Fallback())
			}
			if x := job.Alloc(10); len(x) != 10 {
				return fmt.Errorf("Alloc returned %v", x)
			}
			return exchange(job)
		}) {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

// TestAlgorithmOfTheVariable: a program without an algorithm takes that of the variable, reports it,
// and rejects unknown and other names.
func TestAlgorithmOfTheVariable(t *testing.T) {
	for _, c := range []struct{ cfg, env, want, fault string }{
		{"", "ring", "ring", ""},
		{collective.Auto, "naive", "naive", ""},
		{"ring", "ring", "ring", ""},
		{"ring", "", "ring", ""},
		{"", "auto", "", ""},
		{"", "rng", "", "RINGO_COLLECTIVE_ALGORITHM=rng: want one of auto, ring, doubling"},
		{"naive", "ring", "", "RINGO_COLLECTIVE_ALGORITHM=ring, but the program sets naive"},
	} {
		t.Setenv(launch.AlgorithmVar, c.env)
		cfgs := byHand(t, 2)
		for r := range cfgs {
			cfgs[r].Collective.Algorithm = c.cfg
		}
		for _, err := range runAll(t, cfgs, func(job *ringo.Job) error {
			if got := job.Group().Algorithm(); got != c.want {
				return fmt.Errorf("the algorithm is %q", got)
			}
			return exchange(job)
		}) {
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

// One rank that does not take part: all go on over TCP, know why, and it is said
// once, whichever rank it is.
func TestFallbackIsReported(t *testing.T) {
	for _, one := range []int{0, 1} {
		leakcheck.Check(t)
		cfgs := byHand(t, 3)
		cfgs[one].Transport = ringo.TransportTCP
		var mu sync.Mutex
		var lines []string
		for r := range cfgs {
			cfgs[r].Report = func(line string) { mu.Lock(); lines = append(lines, line); mu.Unlock() }
		}
		why := fmt.Sprintf("ranks 0 to 2 (rank %d: it was told to use tcp alone)", one)
		for _, err := range runAll(t, cfgs, func(job *ringo.Job) error {
			if got := job.Fallback(); job.Transport() != "tcp" || got != why {
				return fmt.Errorf("rank %d over %s: %s", job.Rank(), job.Transport(), got)
			}
			return exchange(job)
		}) {
			if err != nil {
				t.Error(err)
			}
		}
		if want := "tcp in place of shared memory: " + why; !slices.Equal(lines, []string{want}) {
			t.Errorf("reported: %q, want %q once", lines, want)
		}
	}
}

func TestUnknownTransport(t *testing.T) {
	if err := (ringo.Config{Transport: "udp"}).Validate(); err == nil || !strings.Contains(err.Error(), `"udp"`) {
		t.Errorf("got %v", err)
	}
	t.Setenv(launch.TransportVar, "udp")
	if err := runAll(t, byHand(t, 1), exchange)[0]; err == nil || !strings.Contains(err.Error(), launch.TransportVar) {
		t.Errorf("got %v", err)
	}
}

// Messages of two ranks go through the memory, of any length and from both kinds of it,
// and not over the mesh.
func TestMessagesThroughSharedMemory(t *testing.T) {
	leakcheck.Check(t)
	for r, err := range runAll(t, byHand(t, 3), func(job *ringo.Job) error {
		g, right, left := job.Group(), (job.Rank()+1)%3, (job.Rank()+2)%3
		before := job.Traffic().PayloadSent
		for i, n := range []int{0, 5, 9, 1000, 16384, 16385, 100000} {
			own, arena, got := make([]float32, n), job.Alloc(n), make([]float32, n)
			for k := range own {
				own[k], arena[k] = float32(100*job.Rank()+i+k), float32(-100*job.Rank()-i-k)
			}
			a, b := collective.StartSend(g, own, right), collective.StartSend(g, arena, right)
			for _, sign := range []float32{1, -1} {
				if err := collective.Receive(g, got, left); err != nil {
					return err
				}
				for k, v := range got {
					if v != sign*float32(100*left+i+k) {
						return fmt.Errorf("value %d of %d is %v", k, n, v)
					}
				}
			}
			if err := errors.Join(a.Wait(), b.Wait()); err != nil {
				return err
			}
		}
		if sent := job.Traffic().PayloadSent - before; sent != 0 {
			return fmt.Errorf("%d bytes went over the mesh", sent)
		}
		return collective.Barrier(g)
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
