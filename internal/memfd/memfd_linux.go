package memfd

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Supported says whether processes can share memory on this system at all.
const Supported = true

// Seals, which nobody takes off again. Fixed memory is never cut short: who touched what is gone would be killed. Of memory that is
// ReadOnly, too, there are no other mappings that can be written to, and nobody else can write to it, than those of the time when it was sealed.
const (
	Fixed    = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	ReadOnly = Fixed | unix.F_SEAL_FUTURE_WRITE
)

// Create makes n zeros, which take memory when they are touched. The name is for those who read /proc.
func Create(name string, n int64) (fd int, err error) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && uint64(n) > limit.Cur {
		return -1, fmt.Errorf("memory of %d bytes is beyond the limit on the size of files, %d (ulimit -f)", n, limit.Cur)
	}
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, n); err != nil {
		Close(fd)
		return -1, fmt.Errorf("memory of %d bytes: %w", n, err)
	}
	return fd, nil
}

// Seal puts seals on, and that there are no others later.
func Seal(fd, seals int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("sealing memory: %w", err)
	}
	return nil
}

// Check refuses a descriptor of anything but memory of n bytes with seals.
func Check(fd int, n int64, seals int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(fd, &system); err != nil {
		return err
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("the memory is no memfd: %w", err)
	}
	if system.Type != unix.TMPFS_MAGIC { // large pages, of which there may be no more when they are touched
		return fmt.Errorf("the memory is of another kind, %#x", system.Type)
	}
	if stat.Size != n || got&seals != seals {
		return fmt.Errorf("the memory has %d bytes and seals %#x, expected %d and %#x", stat.Size, got, n, seals)
	}
	return nil
}

// Close gives a descriptor back; what is mapped stays.
func Close(fd int) { _ = unix.Close(fd) }

// Send sends bytes, one at least, and with them a descriptor; -1: none.
func Send(conn *net.UnixConn, b []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, err := conn.WriteMsgUnix(b, rights, nil)
	return err
}

// Take reads up to len(b) bytes, and the descriptor that came with them, which is the caller's to close; -1: there came none. Others that came are closed.
func Take(conn *net.UnixConn, b []byte) (n, fd int, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, got, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return n, -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:got])
	if err != nil || len(messages) != 1 {
		return n, -1, nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err == nil && len(fds) == 1 {
		return n, fds[0], nil
	}
	for _, fd := range fds { // the room for one has room for a second
		Close(fd)
	}
	return n, -1, nil
}
