package shm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
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

// newMemory makes so many zeros that nothing can cut short: a rank that touched
// what is gone would be killed.
func newMemory(n int64) (fd int, err error) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && uint64(n) > limit.Cur {
		return -1, fmt.Errorf("memory of %d bytes is beyond the limit on the size of files, %d (ulimit -f)", n, limit.Cur)
	}
	fd, err = unix.MemfdCreate("ringo", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate("ringo", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, n); err != nil {
		err = fmt.Errorf("memory of %d bytes: %w", n, err)
	} else if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL); err != nil {
		err = fmt.Errorf("sealing memory: %w", err)
	}
	if err != nil {
		closeMemory(fd)
		return -1, err
	}
	return fd, nil
}

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// checkMemory refuses a descriptor that is not of newMemory.
func checkMemory(fd int, n int64) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("the memory is no memfd: %w", err)
	}
	if stat.Size != n || got&seals != seals {
		return fmt.Errorf("the memory has %d bytes and seals %#x, expected %d and %#x", stat.Size, got, n, seals)
	}
	return nil
}

func closeMemory(fd int) { _ = unix.Close(fd) } // it was only mapped

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

func sendMemory(conn *net.UnixConn, fd int) error {
	_, _, err := conn.WriteMsgUnix([]byte{1}, unix.UnixRights(fd), nil)
	return err
}

// takeMemory reads the one descriptor that sendMemory sends.
func takeMemory(conn *net.UnixConn) (fd int, err error) {
	var data [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, got, _, _, err := conn.ReadMsgUnix(data[:], oob)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:got])
	if err == nil && len(messages) == 1 {
		fds, err := unix.ParseUnixRights(&messages[0])
		if err == nil && len(fds) == 1 {
			return fds[0], nil
		}
		for _, fd := range fds { // the room for one has room for a second
			closeMemory(fd)
		}
	}
	return -1, fmt.Errorf("%d bytes came without a descriptor: is the process out of descriptors (ulimit -n)?", n)
}
