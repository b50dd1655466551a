package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/faults"
)

// A job across several hosts has one launcher, with a helper (RunAgent) on each other host,
// connected by an agentConn. The launcher alone decides on lost processes and the consequences.

func (c Config) checkHosts() error {
	var bad faults.List
	if p := c.Part; p != nil && (len(c.Roles) != 1 || c.Roles[0].Mesh || len(c.Hosts) > 0 || p.Rank < 0 || p.Rank+c.Roles[0].Count > p.WorldSize) {
		bad.Add(fmt.Errorf("part of a job, %d ranks from rank %d on, of %d: want one role, whose mesh is not this launcher's, on this host, and no more ranks than that", c.Roles[0].Count, p.Rank, p.WorldSize))
	}
	for _, r := range c.Roles {
		bad.If(r.Hosts != nil && len(r.Hosts) != r.Count, "role %q: the hosts of %d processes, which are %d", r.Name, len(r.Hosts), r.Count)
		if i := slices.IndexFunc(r.Hosts, func(h int) bool { return h < 0 || h >= len(c.Hosts) }); i >= 0 {
			bad.Add(fmt.Errorf("role %q: process %d is on host %d, and there are %d", r.Name, i, r.Hosts[i], len(c.Hosts)))
		}
	}
	return bad.Err()
}

// silentFor is the silence after which a host is lost. Links may be cut for 15 s.
func silentFor(t cluster.Times) time.Duration { return 3 * t.DeadAfter }

// startAgents starts the launchers of all other hosts of the job, concurrently, and chooses the
// rendezvous address. The result has an agentConn, for hangUp, per host; nil for this host.
func (c *Config) startAgents(ctx context.Context) ([]*agentConn, error) {
	lines := make([]*agentConn, len(c.Hosts))
	first := agentHello{Dir: c.dir(), Env: withoutOurs(c.HostEnv), Beat: c.Times.Heartbeat, Silent: silentFor(c.Times), Join: c.Times.Join, Interface: c.Interface}
	faults := make([]error, len(lines))
	var all sync.WaitGroup
	for i, h := range c.Hosts {
		used := slices.ContainsFunc(c.Roles, func(r Role) bool { return slices.Contains(r.Hosts, i) })
		if h.Connect != nil && used {
			all.Go(func() { lines[i], faults[i] = c.startAgent(ctx, h, first) })
		}
	}
	met := make(chan struct{})
	go func() { all.Wait(); close(met) }()
	var err error
	select {
	case <-met:
		err = errors.Join(faults...)
	case <-ctx.Done():
		<-met // every startAgent gives up or has a deadline
		err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	if err == nil {
		err = c.chooseAddress(lines)
	}
	if err != nil {
		hangUp(lines)
		return nil, err
	}
	return lines, nil
}

// startAgent starts a host's launcher and checks that it is the same program.
func (c *Config) startAgent(ctx context.Context, h Host, first agentHello) (*agentConn, error) {
	conn, err := h.Connect(ctx)
	if err != nil {
		return nil, err
	}
	l := newLine(h, conn, first, c.Report)
	defer context.AfterFunc(ctx, func() { l.lose("interrupted") })()
	f, err := l.ask(c.Times.Join, "starting a launcher there", frameHost)
	if err == nil {
		err = f.read(&l.welcome)
	}
	if w := l.welcome; err == nil && (w.Version != c.Version || w.Hash != c.Hash) {
		err = fmt.Errorf("host %s: the program there is another than here: version %s (sha256 %.12s) there, %s (%.12s) here: copy this one there", h.Name, w.Version, w.Hash, c.Version, c.Hash)
	}
	if err != nil {
		l.hangUp()
		return nil, err
	}
	return l, nil
}

func (c *Config) dir() string {
	if c.Dir == "" {
		c.Dir, _ = os.Getwd() // without a directory here, other hosts choose their own
	}
	return c.Dir
}

func hangUp(lines []*agentConn) {
	var all sync.WaitGroup
	for _, l := range lines {
		all.Go(l.hangUp)
	}
	all.Wait()
}

// chooseAddress chooses the rendezvous: configured, of the interface, or as other hosts see it.
func (c *Config) chooseAddress(lines []*agentConn) error {
	if !slices.ContainsFunc(lines, func(l *agentConn) bool { return l != nil }) {
		return nil
	}
	port, err := c.portToMeet()
	if port == "" || err != nil {
		return err
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("launch: this host's addresses: %w", err)
	}
	var seen []string
	for _, l := range lines {
		if l != nil {
			seen = append(seen, l.welcome.Client)
		}
	}
	ip := peerView(seen, own)
	if ip == nil || c.Interface != "" {
		if ip, err = cluster.HostAddress(c.Interface, false); err != nil {
			return err
		}
	}
	if c.Rendezvous != defaultRendezvous {
		c.Report(fmt.Sprintf("%s is a loopback address on this host, which no other host reaches: processes meet at %v", c.Rendezvous, ip))
	}
	c.Rendezvous = net.JoinHostPort(ip.String(), port)
	return nil
}

// portToMeet resolves a rendezvous given by the user to an address with the same meaning on all
// hosts. portToMeet returns the port if this host's address is still to be chosen, because the
// rendezvous is unset or a loopback address, and "" otherwise.
func (c *Config) portToMeet() (port string, err error) {
	host, port, err := net.SplitHostPort(c.Rendezvous)
	switch {
	case c.Rendezvous == defaultRendezvous:
		return "0", nil
	case err != nil || net.ParseIP(host) != nil:
		return "", nil // unchanged
	}
	limited, cancel := context.WithTimeout(context.Background(), c.Times.Join)
	defer cancel()
	ips, err := net.DefaultResolver.LookupIP(limited, "ip", host)
	if err != nil {
		return "", fmt.Errorf("launch: the rendezvous %s: %w", c.Rendezvous, err)
	}
	if ips[0].IsLoopback() {
		return port, nil
	}
	c.Rendezvous = net.JoinHostPort(ips[0].String(), port)
	return "", nil
}

// peerView returns the first of seen, the addresses that peers see, that this host has; nil: none.
func peerView(seen []string, own []net.Addr) net.IP {
	for _, s := range seen {
		if ip := net.ParseIP(s); ip != nil && slices.ContainsFunc(own, isOf(ip)) {
			return ip
		}
	}
	return nil
}

func isOf(ip net.IP) func(net.Addr) bool {
	return func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(ip) }
}

// listensAt returns the address of this host's sockets for processes outside the mesh: the
// rendezvous address in a multi-host job.
func (c *Config) listensAt() net.IP {
	if host, _, err := net.SplitHostPort(c.Rendezvous); err == nil && len(c.Hosts) > 0 {
		if ip := net.ParseIP(host); ip != nil {
			return ip
		}
	}
	return net.IPv4(127, 0, 0, 1)
}

// prepare makes the other hosts find programs and open sockets, and records the addresses.
func (c *Config) prepare(crews []*roleGroup, lines []*agentConn) error {
	faults := make([]error, len(lines))
	var all sync.WaitGroup
	for i, l := range lines {
		if l == nil {
			continue
		}
		var roles []agentRole
		for _, one := range crews {
			if n := one.on(l); n > 0 {
				r := agentRole{Role: one.Role, Leads: one.isMain, Count: n, Self: one.Command[0] == c.Self}
				r.DeadAfter, r.Hosts = cmp.Or(r.DeadAfter, c.Times.DeadAfter), nil
				l.roles, roles = append(l.roles, one), append(roles, r)
			}
		}
		all.Go(func() {
			l.send(jsonFrame(frameRoles, 0, roles))
			f, err := l.ask(c.Times.Join, "making ready there", frameReady)
			if err == nil {
				err = f.read(&l.ready)
			}
			if err == nil && l.ready.Fault != "" {
				err = fmt.Errorf("host %s: %s", l.host, l.ready.Fault)
			}
			if err == nil && len(l.ready.Addrs) != len(roles) {
				err = fmt.Errorf("host %s: it is ready for %d roles of %d", l.host, len(l.ready.Addrs), len(roles))
			}
			faults[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(faults...); err != nil {
		return err
	}
	for _, one := range crews {
		for i := range one.addrs {
			if l := one.line(i); l != nil {
				one.addrs[i] = l.ready.Addrs[l.role(one)][one.hostIndex(i)]
			}
		}
	}
	return nil
}

func (l *agentConn) role(c *roleGroup) int { return slices.Index(l.roles, c) }

func (j *job) host(c *roleGroup, index int) string {
	if c.Hosts == nil {
		return ""
	}
	return j.cfg.Hosts[c.Hosts[index]].Name
}
