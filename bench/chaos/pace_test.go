package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// All crowds come to all jobs, which have all roles among them.
func TestPaceIsDrawn(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range all("pace", 1, len(pacedJobs)*len(crowds)) {
		p := c.(paceCase)
		seen[p.pacedJob.name+" / "+p.crowd.name] = true
		if p.ports < 1 || !strings.Contains(fmt.Sprint(p), p.crowd.name+" at each port of "+p.pacedJob.name) {
			t.Errorf("%v: %d ports", c, p.ports)
		}
	}
	if len(seen) != len(pacedJobs)*len(crowds) {
		t.Errorf("%d jobs and crowds, want %d", len(seen), len(pacedJobs)*len(crowds))
	}
}

// How far a job is, is what it said last, whatever else it says.
func TestStepsOfAJob(t *testing.T) {
	j := new(job)
	if got := j.steps(); got != 0 {
		t.Errorf("%d steps of one that says nothing", got)
	}
	fmt.Fprint(&j.out, "mlp: parameters\n{\"event\":\"step\",\"done\":10}\n{\"event\":\"step\",\"done\":20}\n{\"event\":\"remark\"}\n{\"event\":\"step\",\"do")
	if got := j.steps(); got != 20 {
		t.Errorf("%d steps, want 20", got)
	}
}

// Each crowd finds who listens, comes more than once, and leaves when it is told to.
func TestCrowdsCome(t *testing.T) {
	leakcheck.Check(t)
	for _, c := range crowds {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		stop, came := make(chan struct{}), 0
		var all sync.WaitGroup
		all.Go(func() { c.come(l.Addr().String(), 1, rand.New(rand.NewPCG(1, 2)), stop) })
		for came < 3 {
			_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second))
			conn, err := l.Accept()
			if err != nil {
				t.Fatalf("%s: after %d: %v", c.name, came, err)
			}
			came++
			_ = conn.Close()
		}
		close(stop)
		_ = l.Close()
		all.Wait()
	}
}

// Sinks take what comes, and are gone when they are shut.
func TestSinks(t *testing.T) {
	ports, shut, err := sinks(2)
	if err != nil || len(ports) != 2 {
		t.Fatal(ports, err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", ports[1])
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
	shut()
	if again, err := net.Dial("tcp", at); err == nil {
		_ = again.Close()
		t.Error("a sink still listens")
	}
}
