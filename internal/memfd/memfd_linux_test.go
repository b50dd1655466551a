package memfd

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sealed(t *testing.T, n int64, seals int) int {
	t.Helper()
	fd, err := Create("ringo-test", n)
	must(t, err)
	t.Cleanup(func() { Close(fd) })
	must(t, Seal(fd, seals))
	return fd
}

// Memory is what it was made as, and says so to who checks it.
func TestCheck(t *testing.T) {
	fixed, readOnly := sealed(t, 100, Fixed), sealed(t, 100, ReadOnly)
	must(t, Check(fixed, 100, Fixed))
	must(t, Check(readOnly, 100, Fixed))
	must(t, Check(readOnly, 100, ReadOnly))
	for want, err := range map[string]error{
		"expected 100 and 0x16":  Check(fixed, 100, ReadOnly),
		"expected 99 and":        Check(fixed, 99, Fixed),
		"bad file descriptor":    Check(-1, 100, Fixed),
		"sealing memory":         Seal(fixed, ReadOnly),
		"the memory is no memfd": Check(int(os.Stdin.Fd()), 0, Fixed),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := unix.Pwrite(fixed, []byte{1}, 99); err != nil {
		t.Error(err)
	}
	if _, err := unix.Pwrite(readOnly, []byte{1}, 99); err == nil {
		t.Error("memory that may only be read is written")
	}
}

// A limit on files is an error, and no signal.
func TestLimit(t *testing.T) {
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 40, Max: was.Max}))
	_, err := Create("ringo-test", 1<<41)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	if err == nil || !strings.Contains(err.Error(), "beyond the limit on the size of files") {
		t.Error(err)
	}
}

// pair is a connection of this process with itself.
func pair(t *testing.T) (a, b *net.UnixConn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		must(t, err)
		must(t, f.Close())
		t.Cleanup(func() { _ = c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// A descriptor comes with its bytes, or none does; of several none is kept.
func TestSend(t *testing.T) {
	a, b := pair(t)
	fd := sealed(t, 100, Fixed)
	buffer := make([]byte, 10)
	must(t, Send(a, []byte("here"), fd))
	n, got, err := Take(b, buffer)
	must(t, err)
	if string(buffer[:n]) != "here" || got < 0 || got == fd {
		t.Errorf("%q with %d", buffer[:n], got)
	}
	must(t, Check(got, 100, Fixed))
	flags, err := unix.FcntlInt(uintptr(got), unix.F_GETFD, 0)
	if Close(got); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("programs that are started have it, too: %#x, %v", flags, err)
	}
	must(t, Send(a, []byte("none"), -1))
	if n, got, err = Take(b, buffer); err != nil || got != -1 || string(buffer[:n]) != "none" {
		t.Errorf("%q with %d, %v", buffer[:n], got, err)
	}
	_, _, err = a.WriteMsgUnix([]byte("two"), unix.UnixRights(fd, fd), nil)
	must(t, err)
	before := open(t)
	if _, got, err = Take(b, buffer); err != nil || got != -1 || open(t) != before {
		t.Errorf("%d, %v; %d descriptors, before %d", got, err, open(t), before)
	}
	must(t, a.Close())
	if _, got, err = Take(b, buffer); got != -1 || err == nil {
		t.Errorf("of who has gone: %d, %v", got, err)
	}
}

// open is how many descriptors this process has.
func open(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(all)
}
