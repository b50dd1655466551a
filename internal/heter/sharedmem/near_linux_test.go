package sharedmem

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/memfd"
	"github.com/ringo-ml/ringo/transport"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %q", err, text)
	}
}

// open returns a desk of heter-trainer 3 for four trainers.
func open(t testing.TB) (*Broker, Config) {
	leakcheck.Check(t)
	cfg := Config{Ticket: transport.NewTicket(), Version: "1", Index: 3, Trainers: 4}
	d, err := Open(context.Background(), cfg)
	must(t, err)
	t.Cleanup(d.Close)
	return d, cfg
}

func memory(t testing.TB, slots, size int) *Region {
	m, err := New(slots, size)
	must(t, err)
	t.Cleanup(m.Close)
	return m
}

// What one writes the other reads, at once, in both directions; a key is good once; and nothing is left afterwards.
func TestSwap(t *testing.T) {
	d, cfg := open(t)
	mine, theirs := memory(t, 5, 5000), memory(t, 2, 100)
	defer d.Close() // which may still be at handing the memory over, before that is given back
	views := make(chan *View, 1)
	key := d.Register(2, func(v *View) (*Region, error) { views <- v; return theirs, nil })
	v, err := Exchange(context.Background(), cfg, 2, d.Name(), key, func() (*Region, error) { return mine, nil })
	must(t, err)
	defer v.Close()
	got := <-views
	defer got.Close()
	if v.Slots() != 2 || got.Slots() != 5 {
		t.Errorf("%d and %d slots, want 2 and 5", v.Slots(), got.Slots())
	}
	for _, way := range []struct {
		m *Region
		v *View
	}{{mine, got}, {theirs, v}} {
		for i := range way.m.Slots() {
			for round := range 2 {
				w, err := way.m.Slot(i, 50*(round+1))
				must(t, err)
				r, err := way.v.Slot(i, 50*(round+1))
				must(t, err)
				for k := range w {
					w[k] = byte(7*i + k + round)
				}
				if !slices.Equal(w, r) {
					t.Errorf("slot %d: written % x, read % x", i, w, r)
				}
			}
		}
		for _, at := range [][2]int{{-1, 1}, {way.m.Slots(), 1}, {0, way.m.stride + 1}, {0, -1}} {
			_, err := way.v.Slot(at[0], at[1])
			wants(t, err, "of shared memory: it has")
			_, err = way.m.Slot(at[0], at[1])
			wants(t, err, "of shared memory: it has")
		}
	}
	_, err = Exchange(context.Background(), cfg, 2, d.Name(), key, func() (*Region, error) { return mine, nil })
	wants(t, err, "trainer 2 gets no memory here")
}

// Nobody but its maker writes to memory, makes it shorter or takes pages out of it, whoever has its descriptor.
func TestReadOnly(t *testing.T) {
	m := memory(t, 4, 4096)
	b, err := m.Slot(1, 4096)
	must(t, err)
	b[0] = 1
	for name, attack := range map[string]func(fd int) error{
		"map":   func(fd int) error { _, err := unix.Mmap(fd, 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED); return err },
		"write": func(fd int) error { _, err := unix.Pwrite(fd, []byte{9}, 4096); return err },
		"short": func(fd int) error { return unix.Ftruncate(fd, 0) },
		"long":  func(fd int) error { return unix.Ftruncate(fd, 1<<20) },
		"punch": func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 8192)
		},
		"seals": func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
			return err
		},
	} {
		fd, err := unix.Dup(m.fd)
		must(t, err)
		if attack(fd) == nil {
			t.Errorf("%s: done", name)
		}
		memfd.Close(fd)
	}
	v, err := view(m.fd, m.shape)
	must(t, err)
	defer v.Close()
	if got, err := v.Slot(1, 1); err != nil || got[0] != 1 {
		t.Errorf("% x, %v", got, err)
	}
	if unix.Mprotect(v.b, unix.PROT_READ|unix.PROT_WRITE) == nil {
		t.Error("a reader makes its mapping one that can be written to")
	}
}

// Memory that could be changed, or could end its reader, is refused, and so are shapes that are none.
func TestNoView(t *testing.T) {
	page := os.Getpagesize()
	good := shape{2, page}
	make := func(n int64, seals int) int {
		fd, err := memfd.Create("ringo-heter", n)
		must(t, err)
		must(t, memfd.Seal(fd, seals))
		t.Cleanup(func() { memfd.Close(fd) })
		return fd
	}
	fd := make(good.bytes(), memfd.ReadOnly)
	for _, s := range []shape{{0, page}, {-1, page}, {2, 0}, {2, -page}, {2, page + 1}, {maxSlots + 1, page}, {1, maxStride + page}, {maxSlots, 1 << 30}} {
		_, err := view(fd, s)
		wants(t, err, "want up to 1024 of up to")
	}
	for want, c := range map[string]struct {
		fd int
		s  shape
	}{
		"has 8192 bytes":              {fd, shape{3, page}},
		"and seals":                   {make(good.bytes(), memfd.Fixed), good},
		"expected 8192 and":           {make(good.bytes(), 0), good},
		"the memory is no memfd":      {disk(t, good.bytes()), good},
		"bad file descriptor":         {-1, good},
		"the memory is of another ki": {large(t), shape{1, 2 << 20}},
	} {
		if c.fd == -2 {
			continue // the system has none
		}
		_, err := view(c.fd, c.s)
		if page == 4096 {
			wants(t, err, want)
		}
	}
}

// disk is a file on a disk.
func disk(t *testing.T, n int64) int {
	f, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	must(t, f.Truncate(n))
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

// large is memory of large pages, of which there need not be any; -2: the system knows none.
func large(t *testing.T) int {
	fd, err := unix.MemfdCreate("large", unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
	if err != nil || unix.Ftruncate(fd, 2<<20) != nil || memfd.Seal(fd, memfd.ReadOnly) != nil {
		return -2
	}
	t.Cleanup(func() { memfd.Close(fd) })
	return fd
}

// Memory without room is an error.
func TestNoRoom(t *testing.T) {
	_, err := New(0, 1)
	wants(t, err, "want one at least")
	_, err = New(1, maxStride+1)
	wants(t, err, "want one at least")
	m := memory(t, 1, 1)
	m.Close()
	_, err = m.Slot(0, 1)
	wants(t, err, "1 bytes of shared memory: bad file descriptor")
	huge := memory(t, maxSlots, 1<<30)
	if huge.Slots() != 64 {
		t.Errorf("%d slots of a GiB", huge.Slots())
	}
	b, err := huge.Slot(63, 10)
	must(t, err)
	b[9] = 1
}

// Who is on another host finds nobody, and strangers, those with a foreign key and those with other memory get none.
func TestRefused(t *testing.T) {
	d, cfg := open(t)
	mine := memory(t, 1, 1)
	give := func() (*Region, error) { return mine, nil }
	never := func() (*Region, error) { t.Error("it makes memory"); return nil, nil }
	for _, name := range []Name{{}, {1}} {
		if v, err := Exchange(context.Background(), cfg, 0, name, Key{}, never); v != nil || err != nil {
			t.Errorf("%v: %v, %v", name, v, err)
		}
	}
	other := cfg
	other.Ticket = transport.NewTicket()
	_, err := Exchange(context.Background(), other, 0, d.Name(), Key{}, never)
	wants(t, err, "ticket")
	other = cfg
	other.Index = 2
	_, err = Exchange(context.Background(), other, 0, d.Name(), Key{}, never)
	wants(t, err, "its socket is answered by heter-trainer 3")
	refused := func(*View) (*Region, error) { t.Error("a foreign key is taken"); return nil, os.ErrInvalid }
	key := d.Register(1, refused)
	_, err = Exchange(context.Background(), cfg, 0, d.Name(), key, give)
	wants(t, err, "trainer 0 gets no memory here")
	key = d.Register(1, refused)
	d.Forget(key)
	_, err = Exchange(context.Background(), cfg, 1, d.Name(), key, give)
	wants(t, err, "trainer 1 gets no memory here")
	key = d.Register(1, func(v *View) (*Region, error) { v.Close(); return nil, os.ErrDeadlineExceeded })
	_, err = Exchange(context.Background(), cfg, 1, d.Name(), key, give)
	wants(t, err, "it shares no memory: i/o timeout")
	wrong := &Region{shape{2, 1}, mine.fd, nil, nil}
	_, err = Exchange(context.Background(), cfg, 1, d.Name(), d.Register(1, refused), func() (*Region, error) { return wrong, nil })
	wants(t, err, "want up to 1024 of up to")
}

// A trainer that proves what it is and then says nothing holds nobody up, and ends with the desk.
func TestSilent(t *testing.T) {
	d, cfg := open(t)
	conn, err := dialLocal(context.Background(), d.Name())
	must(t, err)
	link, _, err := transport.ClientHandshake(context.Background(), conn, cfg.Ticket, cfg.hello(0))
	must(t, err)
	defer link.Close()
	begun := time.Now()
	d.Close()
	if took := time.Since(begun); took > transport.HandshakeTimeout/2 {
		t.Errorf("the desk waits %v", took)
	}
}

// Whatever comes with a descriptor, the reader maps the file as it is or not at all.
func FuzzCard(f *testing.F) {
	m := memory(f, 2, 1)
	f.Add(header{Key{1}, m.shape}.encode())
	f.Add(header{Key{1}, shape{1 << 31, 1 << 31}}.encode())
	f.Add([]byte("no"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decode(b)
		if err != nil {
			return
		}
		if string(c.encode()) != string(b) {
			t.Errorf("%x is %+v", b, c)
		}
		v, err := view(m.fd, c.shape)
		if err != nil {
			return
		}
		defer v.Close()
		if c.bytes() != m.bytes() {
			t.Errorf("%+v of %d bytes", c, m.bytes())
		}
		for i := range v.Slots() {
			s, err := v.Slot(i, v.stride)
			must(t, err)
			_ = s[len(s)-1]
		}
	})
}
