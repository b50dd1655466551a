package memfd

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Supported reports whether this system supports shared memory.
const Supported = true

// Fixed and ReadOnly are permanent seals. Fixed memory cannot shrink: a shrink would crash
// processes at the next access. ReadOnly memory also allows no new writable mappings and no writes.
const (
	Fixed    = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	ReadOnly = Fixed | unix.F_SEAL_FUTURE_WRITE
)

// Create returns n zero bytes, which take memory when touched. The name appears in /proc.
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

// Seal adds seals, and prevents later ones.
func Seal(fd, seals int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("sealing memory: %w", err)
	}
	return nil
}

// Check returns an error unless fd is memory of n bytes with seals.
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
	if system.Type != unix.TMPFS_MAGIC { // large pages may be unavailable when touched
		return fmt.Errorf("the memory is of another kind, %#x", system.Type)
	}
	if stat.Size != n || got&seals != seals {
		return fmt.Errorf("the memory has %d bytes and seals %#x, expected %d and %#x", stat.Size, got, n, seals)
	}
	return nil
}

// Close closes a descriptor; mappings stay.
func Close(fd int) { _ = unix.Close(fd) }

// Send sends bytes, at least one, with a descriptor; -1: none.
func Send(conn *net.UnixConn, b []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, err := conn.WriteMsgUnix(b, rights, nil)
	return err
}

// Take reads up to len(b) bytes, and the descriptor sent with them, for the caller to close; -1:
// none. Further descriptors are closed.
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
	for _, fd := range fds { // the buffer for one has space for two
		Close(fd)
	}
	return n, -1, nil
}
