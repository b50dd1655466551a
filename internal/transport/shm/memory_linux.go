package shm

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/placement"
)

// Supported reports whether processes can share memory on this system.
const Supported = true

// describe returns this rank's card.
func describe() *card {
	c := &card{ok: true}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return unknown(fmt.Sprintf("it cannot tell which machine it runs on: %v", err))
	}
	space, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return unknown(fmt.Sprintf("it cannot tell which network namespace it runs in: %v", err))
	}
	c.machine = digest("machine", strings.TrimSpace(string(boot)))
	c.host = digest("host", strings.TrimSpace(string(boot)), space)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return unknown(fmt.Sprintf("it cannot tell how much memory there is: %v", err))
	}
	c.arena = int64(min(uint64(info.Totalram)*uint64(info.Unit), maxArena))
	c.cores = affinity()
	if space, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		d := digest("process", space, fmt.Sprint(os.Getpid()))
		copy(c.process[:], d[:])
	}
	return c
}

// unknown returns the card of a rank that must count as a separate host.
func unknown(why string) *card {
	name, _ := os.Hostname() // distinguishes hosts
	pid := fmt.Sprint(os.Getpid())
	return &card{machine: digest("name", name, pid), host: digest("name", name, pid), text: why}
}

func digest(parts ...string) (d [16]byte) {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	copy(d[:], sum[:])
	return d
}

// affinity returns the set of processors available to this process.
func affinity() (mask [maskBytes]byte) {
	for _, cpu := range placement.Allowed() {
		if cpu < 8*maskBytes {
			mask[cpu/8] |= 1 << (cpu % 8)
		}
	}
	return mask
}

// mapMemory maps the region for a number of ranks, aligned for large pages of shared memory.
func mapMemory(fd, ranks int, arena int64) (*region, error) {
	n := uintptr(regionBytes(ranks, arena))
	space, err := unix.MmapPtr(-1, 0, nil, n+largePage, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of addresses for shared memory: %w (is there a limit, ulimit -v?)", n, err)
	}
	skip := -uintptr(space) % largePage
	base := unsafe.Add(space, skip)
	if _, err := unix.MmapPtr(fd, 0, base, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_NORESERVE); err != nil {
		unmap(space, n+largePage)
		return nil, fmt.Errorf("mapping %d bytes of shared memory: %w", n, err)
	}
	if skip > 0 {
		unmap(space, skip)
	}
	unmap(unsafe.Add(base, n), largePage-skip)
	// Core dumps exclude the memory; after an error the dumps are larger.
	_ = unix.Madvise(unsafe.Slice((*byte)(base), n), unix.MADV_DONTDUMP)
	return &region{base: base, ranks: ranks, arena: arena}, nil
}

// unmap fails only for wrong arguments.
func unmap(p unsafe.Pointer, n uintptr) {
	if err := unix.MunmapPtr(p, n); err != nil {
		panic(fmt.Sprintf("shm: unmapping %d bytes: %v", n, err))
	}
}

// replace replaces shared memory by private zeros.
func replace(p unsafe.Pointer, n uintptr) bool {
	_, err := unix.MmapPtr(-1, 0, p, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err == nil
}
