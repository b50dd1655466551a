package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// host is a network namespace that reaches others through a bridge in one more namespace, as hosts
// do through a switch.
type host struct {
	name, address string
	bridge, port  string // the namespace of the bridge, and this host's port there
}

// newHosts makes n hosts, which remove removes. Without root it returns an error.
func newHosts(n int) (hosts []host, remove func(), err error) {
	set := fmt.Sprintf("ringo-%d-%d", os.Getpid(), jobs.Add(1))
	var made []string
	remove = func() {
		for _, name := range made {
			_ = ip("netns del %s", name)
		}
	}
	do := func(format string, args ...any) {
		if err == nil {
			err = ip(format, args...)
		}
	}
	namespace := func(name string) {
		do("netns add %s", name)
		made = append(made, name)
	}
	bridge := set + "-b"
	namespace(bridge)
	do("-n %s link add br0 type bridge", bridge)
	do("-n %s link set br0 up", bridge)
	for i := range n {
		h := host{name: fmt.Sprintf("%s-%d", set, i), address: fmt.Sprintf("10.77.0.%d", i+1), bridge: bridge, port: fmt.Sprintf("p%d", i)}
		namespace(h.name)
		do("-n %s link add %s type veth peer name eth0 netns %s", bridge, h.port, h.name)
		do("-n %s link set %s master br0 up", bridge, h.port)
		do("-n %s addr add %s/24 dev eth0", h.name, h.address)
		do("-n %s link set lo up", h.name)
		do("-n %s link set eth0 up", h.name)
		hosts = append(hosts, h)
	}
	return hosts, remove, err
}

// ip runs the ip command.
func ip(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// enter is the beginning of a command line that runs the rest in the host.
func (h host) enter() []string { return []string{"ip", "netns", "exec", h.name} }

// cut takes the host's link down.
func (h host) cut() error { return ip("-n %s link set %s down", h.bridge, h.port) }
