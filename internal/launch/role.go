package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// Role is one kind of the processes of a job. Its fields are all that makes kinds differ: the launcher asks for them
// and knows no kind by name.
type Role struct {
	// Name is a word in lower case. Lines of output begin with it, "[helper 1] ", and variables have it in their
	// names, RINGO_HELPER_INDEX.
	Name string
	// Called is what errors call one of its processes, before the number, unless that is a rank. Empty means Name.
	Called string
	// Count is the number of its processes: at least 1 in the first role.
	Count int
	// Command is the program and its arguments. The program is looked up in the launcher's PATH.
	Command []string
	// Mesh says that its processes join the job's mesh (cluster.Join), where they are ranks. The coordinator then finds
	// out who is lost and tells all of them. A process outside the mesh has a pipe, RINGO_END, by which it may tell its
	// launcher how it ended.
	Mesh bool
	// Listens says that each of its processes has a socket, which the launcher opens and which outlives the process: who
	// connects to one that is being started again waits. All processes are told where these sockets are.
	Listens bool
	// Heartbeats says that its processes write to their pipes now and then
	// (RoleEnv.SendHeartbeats). One that does not for as long as Times.Join at the beginning, or
	// for DeadAfter from then on, is lost, and killed.
	Heartbeats bool
	// DeadAfter is the silence after which one with Heartbeats is lost. 0 means Times.DeadAfter.
	DeadAfter time.Duration
	// Restarts is how often each of its processes is started again when it is lost.
	Restarts int
	// Stateless reports whether its processes have nothing to save: the loss of one after those of the first role have all
	// ended well is reported, and is no error.
	Stateless bool
	// ContinueWithout says that the others go on without one of its processes that is lost, unless
	// it is its first: that is reported, and no error.
	ContinueWithout bool
	// Interchangeable says that its processes stand in for each other: the others go on without
	// those that are lost, whichever they are, as long as one is left. Each loss is reported.
	Interchangeable bool
	// Grace is how long its processes may take to end when those of the first role have ended well, and between SIGTERM
	// and SIGKILL: they may have much to save. 0 means as long as all others.
	Grace time.Duration
	// Bind says whether its processes are bound to processors of their own, on Linux: the exchange of one then does not
	// take turns with the computing of another. Empty binds nothing, which is right for servers: they work while ranks
	// wait, on whichever core that leaves idle, and a core of their own would be one less for computing.
	Bind Bind
	// CoresEach is how many cores each of its processes keeps busy, where they are bound. 0: one at least.
	CoresEach int
	// Unserved is what a program has to do in this role, told where one of a role with Heartbeats
	// has ended in good order and never shown any: it does not know that it has a role. Empty: that
	// is nobody's concern.
	Unserved string
	// Hosts is the host of each of its processes, by its place in Config.Hosts. nil: all are on this host.
	Hosts []int
}

// Ranks is the role of those that train and form a mesh.
func Ranks(n int, command ...string) Role {
	return Role{Name: "rank", Count: n, Command: command, Mesh: true}
}

// Aggregators is the role of servers that sum the gradients of the ranks and are in the mesh with them.
func Aggregators(n int, command ...string) Role {
	return Role{Name: "server", Count: n, Command: command, Mesh: true}
}

// ParameterServers is the role of servers that keep the parameters (internal/server), to which
// ranks connect by themselves.
func ParameterServers(n int, command ...string) Role {
	return Role{Name: tables, Called: failure.ParameterServer, Count: n, Command: command, Listens: true, Heartbeats: true}
}

// HeterTrainers is the role of those that compute dense layers for ranks, which connect to them by themselves.
func HeterTrainers(n int, command ...string) Role {
	return Role{Name: Heter, Called: "heter-trainer", Count: n, Command: command, Listens: true, Heartbeats: true, Interchangeable: true, Stateless: true,
		Unserved: "a program that has a part for heter-trainers calls ringo.Run, and there train.Run or train.NewLoop"}
}

// roleName is a word that may be part of a variable's name.
var roleName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// check reports everything that is wrong with a role by itself; first says that it is the job's first.
func (r Role) check(first bool) (errs []error) {
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("role %q: "+format, append([]any{r.Name}, args...)...))
		}
	}
	fault(!roleName.MatchString(r.Name), "want a name of lower-case letters and digits, such as \"helper\"")
	least := 0
	if first {
		least = 1
	}
	fault(r.Count < least, "%d processes: want at least %d", r.Count, least)
	fault(r.Count > 0 && (len(r.Command) == 0 || r.Command[0] == ""), "no program to run")
	fault(r.Restarts < 0, "%d restarts: want at least 0", r.Restarts)
	fault(r.Grace < 0, "grace %v: want at least 0", r.Grace)
	fault(r.DeadAfter < 0, "dead after %v: want at least 0", r.DeadAfter)
	fault(r.Bind != "" && !slices.Contains(Binds(), r.Bind), "bind %q: want one of %v, or nothing", r.Bind, Binds())
	fault(r.CoresEach < 0, "%d cores each: want at least 0", r.CoresEach)
	fault(r.Mesh && r.Heartbeats, "it shows life on a pipe and joins the mesh, whose coordinator hears heartbeats: want one of them")
	fault((r.Mesh || first) && r.Interchangeable, "its processes stand in for each other: only those outside the mesh, and not of the first role, can")
	fault(r.Mesh && r.ContinueWithout, "it joins the mesh, and the others are to go on without one of it: a mesh cannot")
	fault((r.Mesh || first) && r.Restarts > 0, "%d restarts: only processes outside the mesh, and not of the first role, can be started again", r.Restarts)
	fault((r.Mesh || first) && r.Listens, "it gets sockets: only processes outside the mesh, and not of the first role, can")
	return errs
}

// checkRoles reports everything that is wrong with the roles of a job.
func checkRoles(roles []Role) (errs []error) {
	if len(roles) == 0 {
		errs = append(errs, errors.New("no roles: want at least that of the processes that do the job's work"))
	}
	for i, r := range roles {
		errs = append(errs, r.check(i == 0)...)
		if slices.ContainsFunc(roles[:i], func(o Role) bool { return o.Name == r.Name }) {
			errs = append(errs, fmt.Errorf("role %q: another role has that name", r.Name))
		}
		if i > 0 && r.Mesh && !roles[i-1].Mesh {
			errs = append(errs, fmt.Errorf("role %q: it joins the mesh, and role %q before it does not: roles in the mesh come first, and so does the first role", r.Name, roles[i-1].Name))
		}
	}
	return errs
}

// roleGroup is a role of a job that runs.
type roleGroup struct {
	Role
	isMain    bool           // it is the first role: the job's work is done when all of its processes have ended
	first     int            // the number of its first process
	before    int            // how many ranks of the job others start, with lower numbers
	program   string         // its file
	plan      placement.Plan // where its processes run
	lostCount int            // of its processes that stand in for each other, how many are lost
	addrs     []string
	sockets   []*os.File   // what its processes on this host listen at; they stay open until the job ends
	lines     []*agentConn // to the host of each process, nil: this one; empty: all are here
}

// serves says that the processes of the first role need this one, and meet it outside the mesh: nobody but the
// launcher sees to it.
func (c *roleGroup) serves() bool { return !c.isMain && !c.Mesh }

// openRoles finds the programs of all roles and opens their sockets, which dismiss closes.
func (c *Config) openRoles(lines []*agentConn) (crews []*roleGroup, err error) {
	number := 0
	ip := c.listensAt()
	for i, r := range c.Roles {
		one := &roleGroup{Role: r, isMain: i == 0, first: number}
		if c.Part != nil {
			one.before = c.Part.Rank
		}
		for _, h := range r.Hosts {
			one.lines = append(one.lines, lines[h])
		}
		crews, number = append(crews, one), number+r.Count
		if err = errors.Join(one.open(ip), one.settle()); err != nil {
			closeRoles(crews)
			return nil, err
		}
	}
	if err = c.prepare(crews, lines); err != nil {
		closeRoles(crews)
		return nil, err
	}
	return crews, nil
}

func closeRoles(crews []*roleGroup) {
	for _, c := range crews {
		closeAll(c.sockets)
	}
}

// open finds the program and opens the sockets of this host.
func (c *roleGroup) open(ip net.IP) (err error) {
	here := c.on(nil)
	c.addrs = nil
	if c.Listens {
		c.addrs = make([]string, c.Count)
	}
	if here == 0 {
		return nil
	}
	if c.program, err = exec.LookPath(c.Command[0]); err != nil {
		return &StartError{Program: c.Command[0], Err: err}
	}
	for i := 0; c.Listens && i < c.Count; i++ {
		if c.line(i) != nil {
			continue
		}
		l, err := cluster.Listen(context.Background(), net.JoinHostPort(ip.String(), "0"), time.Second, nil)
		if err != nil {
			return fmt.Errorf("launch: a socket for %s: %w", c.called(i), err)
		}
		f, err := l.(*net.TCPListener).File() // another descriptor of the same socket
		addr := l.Addr().String()
		_ = l.Close()
		if err != nil {
			return fmt.Errorf("launch: the socket of %s: %w", c.called(i), err)
		}
		c.addrs[i], c.sockets = addr, append(c.sockets, f)
	}
	return nil
}

// line is to the host of a process, nil for this one.
func (c *roleGroup) line(index int) *agentConn {
	if len(c.lines) == 0 {
		return nil
	}
	return c.lines[index]
}

// hostIndex is a process's number among those of its role on its host.
func (c *roleGroup) hostIndex(index int) int {
	if len(c.lines) == 0 {
		return index
	}
	return among(c.lines[:index], c.lines[index])
}

// on is how many of the role's processes are on a host.
func (c *roleGroup) on(l *agentConn) int {
	if len(c.lines) == 0 {
		return c.Count * oneIf(l == nil)
	}
	return among(c.lines, l)
}

// among is how many of some lines are l.
func among(lines []*agentConn, l *agentConn) (n int) {
	for _, other := range lines {
		n += oneIf(other == l)
	}
	return n
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// called is what errors call a process, by its number in the role.
func (c *roleGroup) called(index int) string {
	if !c.serves() {
		return failure.Rank(c.before + c.first + index)
	}
	return fmt.Sprintf("%s %d", cmp.Or(c.Called, c.Name), index)
}

// addrsVar and indexVar are the names of variables about a role: where its processes listen, told to all, and which one
// a process is.
func addrsVar(role string) string { return varPrefix + strings.ToUpper(role) + addrsSuffix }
func indexVar(role string) string { return varPrefix + strings.ToUpper(role) + indexSuffix }
