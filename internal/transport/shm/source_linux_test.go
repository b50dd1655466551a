package shm

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/memfd"
	"github.com/ringo-ml/ringo/transport"
)

// serving is a source of memory for ranks 1 and 2 of 3.
func serving(t *testing.T) *source {
	t.Helper()
	fd, err := newMemory(regionBytes(3, 4096))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(t.Context(), fd, helloOf(0), ticket, []int{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func helloOf(rank int) transport.Hello {
	return transport.Hello{Version: version, Purpose: transport.Memory, Rank: rank, WorldSize: 3}
}

// TestMemoryIsHandedOverOnce: to each rank, and it is what was sealed.
func TestMemoryIsHandedOverOnce(t *testing.T) {
	leakcheck.Check(t)
	s := serving(t)
	defer s.close()
	for _, rank := range []int{2, 1} {
		fd, err := receiveMemory(t.Context(), s.name, helloOf(rank), ticket, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := memfd.Check(fd, regionBytes(3, 4096), memfd.Fixed); err != nil {
			t.Error(err)
		}
		if err := memfd.Check(fd, regionBytes(3, 4096)+1, memfd.Fixed); err == nil {
			t.Error("memory of another length was taken")
		}
		for _, n := range []int64{0, regionBytes(4, 4096)} {
			if unix.Ftruncate(fd, n) == nil {
				t.Errorf("its length could be made %d", n)
			}
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("programs that this one starts inherit it: flags %#x, %v", flags, err)
		}
		memfd.Close(fd)
		if fd, err := receiveMemory(t.Context(), s.name, helloOf(rank), ticket, 0); err == nil {
			memfd.Close(fd)
			t.Errorf("rank %d got it a second time", rank)
		}
	}
}

// TestStrangersGetNoMemory, whatever they try, and hold nobody up.
func TestStrangersGetNoMemory(t *testing.T) {
	leakcheck.Check(t)
	s := serving(t)
	defer s.close()
	control := helloOf(1)
	control.Purpose = transport.MeshLink
	larger := helloOf(1)
	larger.WorldSize = 4
	for name, try := range map[string]func() (int, error){
		"a wrong ticket": func() (int, error) {
			return receiveMemory(t.Context(), s.name, helloOf(1), transport.NewTicket(), 0)
		},
		"a rank of another host":  func() (int, error) { return receiveMemory(t.Context(), s.name, helloOf(0), ticket, 0) },
		"a rank that is none":     func() (int, error) { return receiveMemory(t.Context(), s.name, helloOf(7), ticket, 0) },
		"another purpose":         func() (int, error) { return receiveMemory(t.Context(), s.name, control, ticket, 0) },
		"a job of another size":   func() (int, error) { return receiveMemory(t.Context(), s.name, larger, ticket, 0) },
		"who expects another one": func() (int, error) { return receiveMemory(t.Context(), s.name, helloOf(1), ticket, 2) },
	} {
		if fd, err := try(); err == nil {
			memfd.Close(fd)
			t.Errorf("%s got memory", name)
		}
	}
	for _, words := range []string{"", "\x01", "GET / HTTP/1.0\r\n\r\n", strings.Repeat("x", 10000)} {
		conn, err := net.Dial("unix", s.name)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write([]byte(words))
		if words == "" {
			continue // it stays, and says nothing
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		if fd, err := receiveFile(conn.(*net.UnixConn)); err == nil {
			memfd.Close(fd)
			t.Errorf("%.10q got memory", words)
		}
	}
	fd, err := receiveMemory(t.Context(), s.name, helloOf(2), ticket, 0)
	if err != nil {
		t.Fatalf("beside strangers a rank gets none: %v", err)
	}
	memfd.Close(fd)
}

// TestMemoryInACrowd: however many strangers wait silently, a rank gets its memory at
// once.
func TestMemoryInACrowd(t *testing.T) {
	leakcheck.Check(t)
	s := serving(t)
	defer s.close()
	for range 2 * strangers {
		conn, err := net.Dial("unix", s.name)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), transport.HandshakeTimeout/2) // the silent ones are inside until then
	defer cancel()
	fd, err := receiveMemory(ctx, s.name, helloOf(1), ticket, 0)
	if err != nil {
		t.Fatal(err)
	}
	memfd.Close(fd)
}

// TestTooManyDescriptors: those that nobody asked for are not kept.
func TestTooManyDescriptors(t *testing.T) {
	leakcheck.Check(t)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	file := os.NewFile(uintptr(ends[1]), "socket")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := unix.Sendmsg(ends[0], []byte{1}, unix.UnixRights(ends[0], ends[0]), nil, 0); err != nil {
		t.Fatal(err)
	}
	if fd, err := receiveFile(conn.(*net.UnixConn)); err == nil {
		memfd.Close(fd)
		t.Error("one of two descriptors was taken for memory")
	}
}

// TestAnImpostorOfTheSource is found out: without the ticket it gets nobody to
// take memory from it, and what is not sealed is refused.
func TestAnImpostorOfTheSource(t *testing.T) {
	leakcheck.Check(t)
	fd, err := newMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(t.Context(), fd, helloOf(0), transport.NewTicket(), []int{1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if fd, err := receiveMemory(t.Context(), s.name, helloOf(1), ticket, 0); err == nil {
		memfd.Close(fd)
		t.Error("memory was taken from a stranger")
	}
	open, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer memfd.Close(open)
	if err := unix.Ftruncate(open, 4096); err != nil {
		t.Fatal(err)
	}
	if err := memfd.Check(open, 4096, memfd.Fixed); err == nil {
		t.Error("memory that can be cut short was taken")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := memfd.Check(int(null.Fd()), 0, memfd.Fixed); err == nil {
		t.Error("a file was taken for memory")
	}
}

// TestNoSource: the reason names whose socket it was.
func TestNoSource(t *testing.T) {
	leakcheck.Check(t)
	if _, err := receiveMemory(t.Context(), "@ringo-nobody", helloOf(1), ticket, 0); err == nil || !strings.Contains(err.Error(), "socket of rank 0") {
		t.Errorf("got %v", err)
	}
	s := serving(t)
	defer s.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := receiveMemory(ctx, s.name, helloOf(1), ticket, 0); err == nil {
		t.Error("an ended context gets memory")
	}
}

// TestFreedRegion: all goes but what was given out, and that reads as zeros.
func TestFreedRegion(t *testing.T) {
	const arena = 3 * 4096
	for _, used := range []int{0, 1, 4096, arena} {
		fd, err := newMemory(regionBytes(2, arena))
		if err != nil {
			t.Fatal(err)
		}
		r, err := mapMemory(fd, 2, arena)
		if err != nil {
			t.Fatal(err)
		}
		inode := mapsOf(t, fd)
		memfd.Close(fd)
		w := r.windows([]int{4, 9}, 9, 1)
		p := w.Alloc(used)
		for i := range p {
			p[i] = 1
		}
		w.Drop()
		if n := mappings(t, inode); n != 0 {
			t.Errorf("%d bytes in use: %d mappings are left", used, n)
		}
		for i := range p {
			if p[i] != 0 {
				t.Fatalf("byte %d of %d is %d", i, used, p[i])
			}
			p[i] = 2
		}
	}
}

// mapsOf is how a descriptor's memory shows in /proc/self/maps.
func mapsOf(t *testing.T, fd int) string {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		t.Fatal(err)
	}
	inode := fmt.Sprintf(" %d ", stat.Ino)
	if mappings(t, inode) == 0 {
		t.Fatal("the mapping is not seen")
	}
	return inode
}

func mappings(t *testing.T, mark string) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, mark) && strings.Contains(line, "memfd:ringo") {
			n++
		}
	}
	return n
}
