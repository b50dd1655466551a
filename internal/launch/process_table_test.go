package launch

import (
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Who looks sees each process in its place, how it ended, and what it had recorded; nothing before and after.
func TestSight(t *testing.T) {
	var s ProcessTable
	if got := s.List(); len(got) != 0 {
		t.Errorf("before the job: %v", got)
	}
	memory, err := record.Create(record.Config{})
	if err != nil {
		t.Skip(err)
	}
	r, err := record.Map(memory)
	if err != nil {
		t.Fatal(err)
	}
	r.BeginStep(7)
	made := func(number int, role string, leads bool, of *os.File) *process {
		c := &roleGroup{Role: Role{Name: role}, isMain: leads}
		return &process{role: c, index: number, number: number, memory: of, cmd: &exec.Cmd{Process: &os.Process{Pid: 100 + number}}}
	}
	second := made(1, "rank", true, nil)
	s.Set(1, second.info(false))
	s.Set(0, made(0, "rank", true, memory).info(false))
	second.how = "exit status 3"
	s.Set(1, second.info(true))
	again := made(1, "rank", true, nil)
	got := s.List()
	record, err := got[0].Glance(0)
	if err != nil || len(got) != 2 || record.Step != 7 || got[0].Name != "rank 0" || got[0].PID != 100 || got[0].Ended ||
		!got[1].Ended || got[1].ExitStatus != "exit status 3" || got[1].Glance != nil || got[1].Serves {
		t.Errorf("seen: %+v", got)
	}
	s.Set(1, again.info(false))
	if got := s.List(); got[1].Ended {
		t.Error("one that was started again is told to have ended")
	}
	var all sync.WaitGroup
	all.Go(func() { _ = memory.Close() }) // as when the job ends meanwhile
	all.Go(func() { _, _ = s.List()[0].Glance(0) })
	all.Wait()
	s.close()
	if got := s.List(); len(got) != 0 {
		t.Errorf("after the job: %v", got)
	}
	(*ProcessTable)(nil).Set(1, again.info(true))
	(*ProcessTable)(nil).close()
}
