package ringo_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// host is a network namespace that reaches others through a bridge in one more
// namespace, as hosts do through a switch.
type host struct {
	name, address string
	bridge, port  string // the namespace of the bridge, and this host's port there
}

var hostSets atomic.Int32 // names of one process's sets differ

// canMakeNamespaces says whether hosts can be made here, and logs why not.
func canMakeNamespaces(t *testing.T) bool {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Log("links are not cut: network namespaces need Linux and root")
		return false
	}
	name := fmt.Sprintf("ringo-%d", os.Getpid())
	if err := ip("netns add " + name); err != nil {
		t.Logf("links are not cut: %v", err)
		return false
	}
	return ip("netns del "+name) == nil
}

// ip runs the ip command.
func ip(line string) error {
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// newHosts makes n hosts, which end with the test.
func newHosts(t *testing.T, n int) []host {
	t.Helper()
	set := fmt.Sprintf("ringo-%d-%d", os.Getpid(), hostSets.Add(1))
	do := func(format string, args ...any) {
		t.Helper()
		if err := ip(fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	bridge := set + "-b"
	do("netns add %s", bridge)
	t.Cleanup(func() { _ = ip("netns del " + bridge) })
	do("-n %s link add br0 type bridge", bridge)
	do("-n %s link set br0 up", bridge)
	hosts := make([]host, n)
	for i := range hosts {
		h := host{name: fmt.Sprintf("%s-%d", set, i), address: fmt.Sprintf("10.77.0.%d", i+1), bridge: bridge, port: fmt.Sprintf("p%d", i)}
		do("netns add %s", h.name)
		t.Cleanup(func() { _ = ip("netns del " + h.name) })
		do("-n %s link add %s type veth peer name eth0 netns %s", bridge, h.port, h.name)
		do("-n %s link set %s master br0 up", bridge, h.port)
		do("-n %s addr add %s/24 dev eth0", h.name, h.address)
		do("-n %s link set lo up", h.name)
		do("-n %s link set eth0 up", h.name)
		hosts[i] = h
	}
	return hosts
}

// enter is the beginning of a command line that runs the rest in the host.
func (h host) enter() []string { return []string{"ip", "netns", "exec", h.name} }

// cut takes the host's link down.
func (h host) cut() error { return ip("-n " + h.bridge + " link set " + h.port + " down") }
