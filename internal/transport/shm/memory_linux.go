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

// Supported says whether processes can share memory on this system at all.
const Supported = true

// describe says what this rank is like.
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

// unknown is the card of a rank that must be taken for a host of its own.
func unknown(why string) *card {
	name, _ := os.Hostname() // only to tell hosts apart
	pid := fmt.Sprint(os.Getpid())
	return &card{machine: digest("name", name, pid), host: digest("name", name, pid), text: why}
}

func digest(parts ...string) (d [16]byte) {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	copy(d[:], sum[:])
	return d
}

// affinity is the set of processors that this process may run on.
func affinity() (mask [maskBytes]byte) {
	for _, cpu := range placement.Allowed() {
		if cpu < 8*maskBytes {
			mask[cpu/8] |= 1 << (cpu % 8)
		}
	}
	return mask
}

// mapMemory maps the region of so many ranks, so that large pages could serve it
// where the system gives them to shared memory.
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
	// A core dump has no use for it; where that cannot be said it is larger.
	_ = unix.Madvise(unsafe.Slice((*byte)(base), n), unix.MADV_DONTDUMP)
	return &region{base: base, ranks: ranks, arena: arena}, nil
}

// unmap can only fail where the arguments are wrong.
func unmap(p unsafe.Pointer, n uintptr) {
	if err := unix.MunmapPtr(p, n); err != nil {
		panic(fmt.Sprintf("shm: unmapping %d bytes: %v", n, err))
	}
}

// replace puts zeros of this process in the place of shared memory.
func replace(p unsafe.Pointer, n uintptr) bool {
	_, err := unix.MmapPtr(-1, 0, p, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err == nil
}
