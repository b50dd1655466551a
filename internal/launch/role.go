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
	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// Role is one kind of processes. The launcher distinguishes kinds only by fields, never by name.
type Role struct {
	// Name is a word in lower case. Name is the prefix of output lines, "[helper 1] ", and part of
	// variable names, RINGO_HELPER_INDEX.
	Name string `json:"name"`
	// Called is the noun for one process in errors, except for ranks. Empty means Name.
	Called string `json:"noun"`
	// Count is the number of processes: at least 1 in the first role.
	Count int `json:"count"`
	// Command is the program with arguments. The launcher looks up the program in its PATH.
	Command []string `json:"command"`
	// Mesh reports whether the processes join the job's mesh (cluster.Join) as ranks. The
	// coordinator detects lost ranks and informs all others. A process outside the mesh has a pipe,
	// RINGO_EXIT_FD, to report its end to the launcher.
	Mesh bool `json:"mesh"`
	// Listens reports whether each process has a listening socket, opened by the launcher. The
	// socket survives a restart, so connections wait. All processes get the addresses.
	Listens bool `json:"listens"`
	// Heartbeats reports whether the processes send heartbeats through their pipes
	// (RoleEnv.SendHeartbeats). A process without a first heartbeat for Times.Join, or without
	// further ones for DeadAfter, is lost and killed.
	Heartbeats bool `json:"heartbeats"`
	// DeadAfter is the silence that marks a lost process. 0 means Times.DeadAfter.
	DeadAfter time.Duration `json:"dead_after_ns"`
	// Restarts is the maximum number of restarts of each process.
	Restarts int `json:"restarts"`
	// Stateless reports whether a loss after the first role's good end is reported, but is no
	// error.
	Stateless bool `json:"stateless"`
	// ContinueWithout reports whether the job continues without a lost process of the role, except
	// the first process. The loss is reported and is not an error.
	ContinueWithout bool `json:"continue_without"`
	// Interchangeable roles keep running until their last process is lost. Each loss is reported.
	Interchangeable bool `json:"interchangeable"`
	// Grace is the time for the processes to end after the first role has ended well, and between
	// SIGTERM and SIGKILL: servers may have large state to save. 0 means the default.
	Grace time.Duration `json:"grace_ns"`
	// Bind selects whether each process is bound to its own processors, on Linux: the exchange of
	// one then never competes with the computation of another. Empty binds no process. Servers
	// should not be bound: they work while ranks wait, on any idle core, and would waste a reserved
	// core.
	Bind Bind `json:"bind"`
	// CoresEach is the number of cores that each bound process keeps busy. 0 means at least one.
	CoresEach int `json:"cores_each"`
	// Unserved describes the call that a program needs in this role. The launcher prints Unserved
	// when a process of a role with Heartbeats ended in good order without a heartbeat, because its
	// program ignores the role. Empty prints no advice.
	Unserved string `json:"advice"`
	// Hosts is the host of each process, as an index of Config.Hosts. nil means this host.
	Hosts []int `json:"hosts"`
}

// Ranks is the role of the training ranks, which form a mesh.
func Ranks(n int, command ...string) Role {
	return Role{Name: "rank", Count: n, Command: command, Mesh: true}
}

// Aggregators is the role of aggregation servers, in the mesh with the ranks.
func Aggregators(n int, command ...string) Role {
	return Role{Name: "server", Count: n, Command: command, Mesh: true}
}

// ParameterServers is the role of parameter servers (internal/server), outside the mesh.
func ParameterServers(n int, command ...string) Role {
	return Role{Name: tables, Called: failure.ParameterServer, Count: n, Command: command, Listens: true, Heartbeats: true}
}

// HeterTrainers is the role of heter-trainers, which ranks connect to outside the mesh.
func HeterTrainers(n int, command ...string) Role {
	return Role{Name: Heter, Called: "heter-trainer", Count: n, Command: command, Listens: true, Heartbeats: true, Interchangeable: true, Stateless: true,
		Unserved: "a program that has a part for heter-trainers calls ringo.Run, and there train.Run or train.NewLoop"}
}

// roleName matches a word that may be part of a variable's name.
var roleName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// check returns all errors of a role alone; first reports whether the role is the job's first.
func (r Role) check(first bool) error {
	bad := faults.In(fmt.Sprintf("role %q: ", r.Name))
	bad.If(!roleName.MatchString(r.Name), "want a name of lower-case letters and digits, such as \"helper\"")
	least := 0
	if first {
		least = 1
	}
	bad.If(r.Count < least, "%d processes: want at least %d", r.Count, least)
	bad.If(r.Count > 0 && (len(r.Command) == 0 || r.Command[0] == ""), "no program to run")
	bad.If(r.Restarts < 0, "%d restarts: want at least 0", r.Restarts)
	bad.If(r.Grace < 0, "grace %v: want at least 0", r.Grace)
	bad.If(r.DeadAfter < 0, "dead after %v: want at least 0", r.DeadAfter)
	bad.If(r.Bind != "" && !slices.Contains(Binds(), r.Bind), "bind %q: want one of %v, or nothing", r.Bind, Binds())
	bad.If(r.CoresEach < 0, "%d cores each: want at least 0", r.CoresEach)
	bad.If(r.Mesh && r.Heartbeats, "it shows life on a pipe and joins the mesh, whose coordinator hears heartbeats: want one of them")
	bad.If((r.Mesh || first) && r.Interchangeable, "its processes stand in for each other: only those outside the mesh, and not of the first role, can")
	bad.If(r.Mesh && r.ContinueWithout, "it joins the mesh, and the others are to go on without one of it: a mesh cannot")
	bad.If((r.Mesh || first) && r.Restarts > 0, "%d restarts: only processes outside the mesh, and not of the first role, can be started again", r.Restarts)
	bad.If((r.Mesh || first) && r.Listens, "it gets sockets: only processes outside the mesh, and not of the first role, can")
	return bad.Err()
}

func checkRoles(roles []Role) error {
	var bad faults.List
	bad.If(len(roles) == 0, "no roles: want at least that of the processes that do the job's work")
	for i, r := range roles {
		bad.Add(r.check(i == 0))
		bad.If(slices.ContainsFunc(roles[:i], func(o Role) bool { return o.Name == r.Name }), "role %q: another role has that name", r.Name)
		before := roles[max(0, i-1)]
		bad.If(r.Mesh && !before.Mesh, "role %q: it joins the mesh, and role %q before it does not: roles in the mesh come first, and so does the first role", r.Name, before.Name)
	}
	return bad.Err()
}

type roleGroup struct {
	Role
	isMain    bool           // first role: the job's work is done when all of its processes have ended
	continues bool           // the processes continue without a lost one, see epoch
	first     int            // number of the first process
	before    int            // ranks with lower numbers, started by other launchers
	program   string         // path of the program
	plan      placement.Plan // processors of the processes
	lostCount int            // lost processes of an interchangeable role
	addrs     []string
	sockets   []*os.File   // sockets of the processes on this host, open until the job ends
	lines     []*agentConn // connection to the host of each process; nil: this host; empty: all on this host
}

// serves reports whether the role serves the first role outside the mesh.
func (c *roleGroup) serves() bool { return !c.isMain && !c.Mesh }

// openRoles finds the programs of all roles and opens their sockets. dismiss closes the sockets.
func (c *Config) openRoles(lines []*agentConn) (crews []*roleGroup, err error) {
	number := 0
	ip := c.listensAt()
	for i, r := range c.Roles {
		one := &roleGroup{Role: r, isMain: i == 0, continues: i == 0 && c.MinRanks > 0, first: number}
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
		f, err := l.(*net.TCPListener).File() // duplicate descriptor of the socket
		addr := l.Addr().String()
		_ = l.Close()
		if err != nil {
			return fmt.Errorf("launch: the socket of %s: %w", c.called(i), err)
		}
		c.addrs[i], c.sockets = addr, append(c.sockets, f)
	}
	return nil
}

// line returns the connection to a process's host, nil for this host.
func (c *roleGroup) line(index int) *agentConn {
	if len(c.lines) == 0 {
		return nil
	}
	return c.lines[index]
}

// hostIndex returns a process's number among the role's processes on the same host.
func (c *roleGroup) hostIndex(index int) int {
	if len(c.lines) == 0 {
		return index
	}
	return among(c.lines[:index], c.lines[index])
}

// on returns the number of the role's processes on a host.
func (c *roleGroup) on(l *agentConn) int {
	if len(c.lines) == 0 {
		return c.Count * oneIf(l == nil)
	}
	return among(c.lines, l)
}

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

// called returns the name of a process in errors, by the number in the role.
func (c *roleGroup) called(index int) string {
	if !c.serves() {
		return failure.Rank(c.before + c.first + index)
	}
	return fmt.Sprintf("%s %d", cmp.Or(c.Called, c.Name), index)
}

// addrsVar and indexVar return the names of a role's variables for addresses and a process's
// number.
func addrsVar(role string) string { return varPrefix + strings.ToUpper(role) + addrsSuffix }
func indexVar(role string) string { return varPrefix + strings.ToUpper(role) + indexSuffix }
