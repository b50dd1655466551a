package launch

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// A process records in the memory that its launcher holds, again if it takes part in a second job, and in its own where there is none.
func TestRecorderInTheLaunchersMemory(t *testing.T) {
	f, err := record.Create(record.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	descriptor, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(descriptor)
	for _, recorder := range []func() *record.Recorder{RankEnv{Record: descriptor}.Recorder, RoleEnv{Record: descriptor}.Recorder} {
		r := recorder()
		r.Add(&record.Event{Kind: record.Change, Name: r.Name("now"), Bucket: -1, Other: -1, Peer: -1})
		s, err := record.Read(f)
		if err != nil || len(s.Operations) != 1 || s.Text(s.Operations[0].Name) != "now" || s.Process != os.Getpid() {
			t.Errorf("%v: %+v", err, s)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Error("programs that this one starts inherit the memory")
	}
	other, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, descriptor := range []int{0, int(other.Fd()), 1 << 20} {
		r := RankEnv{Record: descriptor}.Recorder()
		if r.BeginStep(3); r.Step() != 3 {
			t.Errorf("descriptor %d: nothing records", descriptor)
		}
	}
}

// Who starts a job can look at what its ranks record while it lasts.
func TestSightOfRecords(t *testing.T) {
	var mu sync.Mutex
	sight, seen, glances := new(ProcessTable), map[int]string{}, map[int]func(int) (*record.Snapshot, error){}
	l := launch(t, context.Background(), 3, "recorded", []string{"well"}, func(c *Config) {
		c.Sight = sight
		c.OnExit = func(index int, _ string) {
			mu.Lock()
			defer mu.Unlock()
			for _, p := range sight.List() {
				if s, err := p.Glance(1); err == nil && s != nil && p.Index == index {
					seen[index], glances[index] = s.Text(1), p.Glance
				}
			}
		}
	})
	if l.err == nil || len(seen) != 3 || seen[0] != "allreduce" || seen[2] != "allreduce" {
		t.Fatalf("%v: %v", l.err, seen)
	}
	if _, err := glances[0](1); !errors.Is(err, os.ErrClosed) || len(sight.List()) != 0 {
		t.Errorf("after the job: %v", err)
	}
}
