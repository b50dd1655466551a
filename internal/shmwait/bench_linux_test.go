package shmwait

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary is also a peer of BenchmarkProcesses.
const peerVar = "WAITING_TEST_PEER" // RANK/RANKS

func TestMain(m *testing.M) {
	if text := os.Getenv(peerVar); text != "" {
		var rank, ranks int
		fmt.Sscanf(text, "%d/%d", &rank, &ranks)
		if err := servePeer(rank, ranks); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// barrier is a round among ranks: each raises its own flag and waits for all.
func barrier(w *Waiter, f []*Flag, rank int, round uint64) error {
	f[rank].Raise(round)
	for peer := range f {
		if err := w.AtLeast(f[peer], round, healthy{}, peer, patience); err != nil {
			return fmt.Errorf("rank %d waits for %d in round %d: %w", rank, peer, round, err)
		}
	}
	return nil
}

const lastRound = 1 << 62 // the counter that ends a peer

func servePeer(rank, ranks int) error {
	mem, err := unix.Mmap(3, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	w := New(Config{Ranks: ranks, Cores: 2})
	f := flagsIn(mem, ranks)
	defer f[rank].Raise(lastRound) // another may be a round ahead
	for round := uint64(1); f[0].Load() < lastRound; round++ {
		if err := barrier(&w, f, rank, round); err != nil {
			return err
		}
	}
	return nil
}

func flagsIn(mem []byte, n int) []*Flag {
	out := make([]*Flag, n)
	for i := range out {
		out[i] = FlagAt(mem, 2*i*FlagBytes) // apart, so that none is fetched with its neighbour
	}
	return out
}

// BenchmarkProcesses is a round among processes on two cores.
func BenchmarkProcesses(b *testing.B) {
	for _, ranks := range []int{2, 4} {
		b.Run(strconv.Itoa(ranks), func(b *testing.B) { benchProcesses(b, ranks) })
	}
}

func benchProcesses(b *testing.B, ranks int) {
	fd, err := unix.MemfdCreate("waiting", unix.MFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "flags")
	defer file.Close()
	if err := file.Truncate(4096); err != nil {
		b.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(mem)
	for rank := 1; rank < ranks; rank++ {
		peer := exec.Command(os.Args[0])
		peer.Env = append(os.Environ(), fmt.Sprintf("%s=%d/%d", peerVar, rank, ranks), "GOMAXPROCS="+os.Getenv("GOMAXPROCS"))
		peer.ExtraFiles, peer.Stderr = []*os.File{file}, os.Stderr
		if err := peer.Start(); err != nil {
			b.Fatal(err)
		}
		defer peer.Wait()
	}
	w, f := New(Config{Ranks: ranks, Cores: 2}), flagsIn(mem, ranks)
	round := uint64(0)
	step := func() {
		round++
		if err := barrier(&w, f, 0, round); err != nil {
			b.Fatal(err)
		}
	}
	for range 1000 {
		step()
	}
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	f[0].Raise(lastRound)
}

// BenchmarkGoroutines is a round among goroutines of one process.
func BenchmarkGoroutines(b *testing.B) {
	for _, ranks := range []int{2, 4} {
		b.Run(strconv.Itoa(ranks), func(b *testing.B) {
			w, f := New(Config{Ranks: ranks, Cores: 2, OneProcess: true}), flags(ranks)
			done := make(chan error, ranks)
			for rank := 1; rank < ranks; rank++ {
				go func() {
					defer f[rank].Raise(lastRound)
					for round := uint64(1); f[0].Load() < lastRound; round++ {
						if err := barrier(&w, f, rank, round); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			b.ReportAllocs()
			round := uint64(0)
			for b.Loop() {
				round++
				if err := barrier(&w, f, 0, round); err != nil {
					b.Fatal(err)
				}
			}
			f[0].Raise(lastRound)
			for range ranks - 1 {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
