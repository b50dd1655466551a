package snapshot

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/checkpoint"
)

func created(t *testing.T) *Memory {
	t.Helper()
	m, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// state has a step, and as many values, all equal to the step.
func state(m *Memory, step int) checkpoint.State {
	values := make([]float32, 100_000+step)
	for i := range values {
		values[i] = float32(step)
	}
	return checkpoint.State{Header: checkpoint.Header{Step: int64(step)}, Arrays: []checkpoint.Array{checkpoint.Floats("x", values)}, Create: m.Create}
}

func write(t *testing.T, m *Memory, step int) {
	t.Helper()
	_, err := checkpoint.Write(Dir, state(m, step))
	if err = errors.Join(err, m.Commit()); err != nil {
		t.Fatal(err)
	}
}

// check reads the newest snapshot, with its checksums, and compares it with state.
func check(t *testing.T, m *Memory, step int) {
	t.Helper()
	path, got := m.Latest()
	if got != int64(step) {
		t.Fatalf("%s is of step %d, want %d", path, got, step)
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	values := make([]float32, 100_000+step)
	if err := f.Read(checkpoint.Floats("x", values)); err != nil || values[0] != float32(step) || values[len(values)-1] != float32(step) {
		t.Errorf("step %d: %v, %v", step, values[0], err)
	}
}

// TestLatest writes snapshots of different lengths, also after the writer was replaced.
func TestLatest(t *testing.T) {
	m := created(t)
	if path, _ := m.Latest(); path != "" {
		t.Errorf("empty memory has %s", path)
	}
	for _, step := range []int{900, 1000, 1001, 30_000, 30_001, 30_002} {
		if step == 30_001 {
			m.known = false // another process
		}
		write(t, m, step)
		check(t, m, step)
	}
	m.Clear()
	if path, _ := m.Latest(); path != "" {
		t.Errorf("empty memory has %s", path)
	}
}

// TestTornSnapshot ends the writer after any number of writes: the snapshot before counts.
func TestTornSnapshot(t *testing.T) {
	m := created(t)
	write(t, m, 1)
	write(t, m, 2)
	torn := state(m, 3)
	for ends := 0; ; ends++ {
		left := ends
		torn.Create = func(path string) (checkpoint.WriteFile, error) {
			f, err := m.Create(path)
			return &ending{f, &left}, err
		}
		if _, err := checkpoint.Write(Dir, torn); err == nil {
			check(t, m, 2) // complete, not committed
			break
		}
		check(t, m, 2)
	}
	if err := m.Commit(); err != nil {
		t.Fatal(err)
	}
	check(t, m, 3)
}

// ending is a writer that ends after some writes.
type ending struct {
	checkpoint.WriteFile
	left *int
}

func (e *ending) Write(b []byte) (int, error) {
	if *e.left--; *e.left < 0 {
		return 0, errors.New("ended")
	}
	return e.WriteFile.Write(b)
}

// TestShort wants a snapshot refused that would leave less than an eighth of the memory free.
func TestShort(t *testing.T) {
	m := created(t)
	m.free = func() (int64, int64) { return 100 << 20, 8 << 30 }
	if _, err := checkpoint.Write(Dir, state(m, 1)); err == nil || m.Short() == nil || m.Short().Error() != "100 MiB of 8 GiB are free, and 1 GiB must remain free" {
		t.Errorf("%v, %v", err, m.Short())
	}
	m = created(t)
	m.free = func() (int64, int64) { return 0, 0 } // unknown
	write(t, m, 1)
}

const passedVar = "RINGO_TEST_PASSED"

// TestPassed wants a process to have the memory, and its children not.
func TestPassed(t *testing.T) {
	if os.Getenv(passedVar) != "" {
		m := Open(os.Getenv(FDVar))
		check(t, m, 7)
		fd := 4
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %d, %v", fd, flags, err)
		}
		write(t, m, 8)
		return
	}
	m := created(t)
	write(t, m, 7)
	c := exec.Command(os.Args[0], "-test.run=TestPassed$")
	c.ExtraFiles = m.Files()
	c.Env = append(os.Environ(), passedVar+"=1", FDVar+"="+strconv.Itoa(3))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check(t, m, 8)
	for _, text := range []string{"", "x", "0", "99"} {
		if Open(text) != nil {
			t.Errorf("%s=%q is memory", FDVar, text)
		}
	}
	if m = nil; m.Files() != nil {
		t.Error("a nil memory has files")
	}
}
