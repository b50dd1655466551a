package job_test

import (
	"strings"
	"testing"
)

// Hosts that cannot be, or that contradict what else is said, are refused with the setting that is wrong.
func TestHostsAreChecked(t *testing.T) {
	const two = "job.hosts=a:2,b:2"
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{two, "job.ranks=4"}, ""},
		{[]string{two, "job.ranks=3"}, ""},
		{[]string{two, "job.ranks=5"}, "job.hosts has places for 4 ranks, but job.ranks is 5"},
		{[]string{"job.hosts=a:0"}, "job.hosts host \"a:0\""},
		{[]string{"job.hosts=-oProxyCommand=x"}, "want a name or address"},
		{[]string{two, "sync=bsp", "servers.hosts=c:x"}, "servers.hosts host \"c:x\""},
		{[]string{two, "sync=bsp", "servers.hosts=c:2,d"}, ""},
		{[]string{two, "job.ranks=4", "sync=bsp", "heter.count=2", "heter.hosts=c,d"}, ""},
		{[]string{two, "sync=bsp", "heter.count=2", "heter.hosts=c:x"}, "heter.hosts host \"c:x\""},
		{[]string{two, "job.transport=mem"}, "job.hosts with job.transport mem"},
		{[]string{two, "job.ranks=4", "job.rank=1", "job.rendezvous=h:1"}, "starts all ranks"},
		{[]string{two, "job.rendezvous=/shared/place"}, "want a HOST:PORT of this host"},
		{[]string{two, "job.rendezvous=10.0.0.1:2000"}, ""},
	} {
		spec, _ := newJob(t, append([]string{"model=mnist"}, c.words...)...)
		err := spec.ValidateProcesses()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.words, err, c.want)
		}
	}
}

// A rank on one of several hosts has the threads that its host has found for it, and is a process, though it is the only one.
func TestThreadsOnHosts(t *testing.T) {
	spec, _ := newJob(t, "model=mnist", "job.hosts=a", "job.ranks=1")
	if spec.InProcess() {
		t.Error("a rank on another host is a goroutine of this process")
	}
	if spec.Cores = 3; spec.Threads() != 3 {
		t.Errorf("%d threads of 3 cores", spec.Threads())
	}
	if spec.Train.Threads = 2; spec.Threads() != 2 {
		t.Errorf("%d threads, which were said to be 2", spec.Threads())
	}
}
