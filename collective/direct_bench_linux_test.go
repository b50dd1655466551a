package collective

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// directSizes are the operands of the measurements, in floats.
var directSizes = []int{1, 256, 4096, 65536, 1 << 20, 16 << 20}

// BenchmarkDirect reports the median time of an allreduce among goroutines in
// us, the operands rewritten between any two.
func BenchmarkDirect(b *testing.B) {
	for _, size := range []int{2, 4} {
		groups := make([]*Group, size)
		for r, m := range mem.NewShared(size, 64<<20) {
			groups[r], _ = New(m, Config{})
		}
		for _, where := range []string{"arena", "private"} {
			for _, n := range directSizes {
				b.Run(fmt.Sprintf("np=%d/%s/floats=%d", size, where, n), func(b *testing.B) {
					var times []time.Duration
					var wg sync.WaitGroup
					for r, g := range groups {
						wg.Go(func() {
							if t := measureDirect(b, g, where == "arena", n, b.N); r == 0 {
								times = t
							}
						})
					}
					wg.Wait()
					b.ReportMetric(median(times), "us/median")
				})
			}
		}
	}
}

// median is in microseconds.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1e3
}

// measureDirect times so many allreduces of n floats on one rank.
func measureDirect(t testing.TB, g *Group, arena bool, n, times int) []time.Duration {
	x := make([]float32, n)
	if arena {
		x = bytesview.As[float32](g.share.windows.Arena()[:4*n])
	}
	took := make([]time.Duration, 0, times)
	for i := range times + 3 {
		for j := range x {
			x[j] = float32(i + g.Rank())
		}
		one := [1]float32{1}
		err := AllReduce(g, one[:], Sum)
		start := time.Now()
		if err == nil {
			err = AllReduce(g, x, Sum)
		}
		end := time.Since(start)
		if want := float32(g.Size()*i + g.Size()*(g.Size()-1)/2); err == nil && (x[0] != want || x[n-1] != want) {
			err = fmt.Errorf("sum %v, %v, want %v", x[0], x[n-1], want)
		}
		if err != nil {
			t.Errorf("rank %d: %v", g.Rank(), err)
			return took
		}
		if i >= 3 {
			took = append(took, end)
		}
	}
	return took
}

// inherited is a mesh of processes that have inherited memory and know nothing
// of each other.
type inherited struct {
	transport.Mesh
	windows transport.SharedMemory
	size    int
}

func (m *inherited) Rank() int                             { return m.windows.Index }
func (m *inherited) Size() int                             { return m.size }
func (m *inherited) Fault(int) error                       { return nil }
func (m *inherited) Abort(error)                           {}
func (m *inherited) Close() error                          { return nil }
func (m *inherited) SharedMemory() *transport.SharedMemory { return &m.windows }

const inheritedArena = 64 << 20

func mapInherited(fd, rank, size int) (*inherited, error) {
	all, err := unix.Mmap(fd, 0, size*(transport.ControlBytes+inheritedArena), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	m := &inherited{size: size}
	if err != nil {
		return nil, err
	}
	m.windows = transport.SharedMemory{Index: rank, Control: all[:size*transport.ControlBytes], Cores: runtime.NumCPU()}
	for i := range size {
		m.windows.Ranks = append(m.windows.Ranks, i)
		m.windows.Arenas = append(m.windows.Arenas, all[size*transport.ControlBytes+i*inheritedArena:][:inheritedArena])
	}
	return m, nil
}

// BenchmarkDirectProcesses is BenchmarkDirect among processes. It ignores b.N.
func BenchmarkDirectProcesses(b *testing.B) {
	if child := os.Getenv("DIRECT_RANK"); child != "" {
		rank, err := strconv.Atoi(child)
		size, err2 := strconv.Atoi(os.Getenv("DIRECT_SIZE"))
		m, err3 := mapInherited(3, rank, size)
		if err := errors.Join(err, err2, err3); err != nil {
			b.Fatal(err)
		}
		directProcess(b, m)
		return
	}
	for _, size := range []int{2, 4} {
		if only := os.Getenv("DIRECT_NP"); only != "" && only != strconv.Itoa(size) {
			continue
		}
		fd, err := unix.MemfdCreate("direct", 0)
		if err != nil {
			b.Fatal(err)
		}
		file := os.NewFile(uintptr(fd), "direct")
		if err := file.Truncate(int64(size * (transport.ControlBytes + inheritedArena))); err != nil {
			b.Fatal(err)
		}
		var wg sync.WaitGroup
		for r := range size {
			c := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=DirectProcesses", "-test.benchtime=1x")
			c.ExtraFiles = []*os.File{file}
			c.Env = append(os.Environ(), "DIRECT_RANK="+strconv.Itoa(r), "DIRECT_SIZE="+strconv.Itoa(size))
			wg.Go(func() {
				out, err := c.CombinedOutput()
				if err != nil {
					b.Errorf("rank %d: %v\n%s", r, err, out)
				}
				if r == 0 {
					for _, l := range strings.Split(string(out), "\n") {
						if strings.HasPrefix(l, "np=") {
							fmt.Println(l)
						}
					}
				}
			})
		}
		wg.Wait()
		file.Close()
	}
}

func directProcess(b *testing.B, m *inherited) {
	runtime.GOMAXPROCS(1)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	g, err := New(m, Config{})
	if err != nil {
		b.Fatal(err)
	}
	sizes := directSizes
	if only := os.Getenv("DIRECT_FLOATS"); only != "" {
		sizes = nil
		for _, f := range strings.Split(only, ",") {
			n, _ := strconv.Atoi(f)
			sizes = append(sizes, n)
		}
	}
	for _, where := range []string{"arena", "private"} {
		line := fmt.Sprintf("np=%d %-7s:", m.size, where)
		for _, n := range sizes {
			times := 4000
			switch {
			case n > 1<<20:
				times = 11
			case n > 4096:
				times = 200
			}
			t := measureDirect(b, g, where == "arena", n, times)
			if b.Failed() {
				return
			}
			line += fmt.Sprintf(" %9.2f", median(t))
		}
		fmt.Println(line)
	}
}
