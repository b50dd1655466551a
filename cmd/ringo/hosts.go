package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/launch/hosts"
	"github.com/ringo-ml/ringo/internal/setting"
)

// attendCommand is the hidden command of a host agent, which starts and ends a job's processes on
// another host.
const attendCommand = "attend-host"

func newAgent() *cobra.Command {
	return &cobra.Command{
		Use:    attendCommand,
		Hidden: true,
		Args:   cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a reader that ends first causes a write error
			self, err := os.Executable()
			if err != nil {
				return err
			}
			hash, err := hosts.Hash(self)
			if err != nil {
				return err
			}
			return launch.RunAgent(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), launch.AgentConfig{
				Version: ringo.Version, Hash: hash, Program: self, Guard: []string{self, guardCommand}, Env: os.Environ(), Reached: reachedBySSH(),
			})
		},
	}
}

// reachedBySSH returns the addresses of the ssh connection that started this process, or "".
func reachedBySSH() string {
	reached, _ := os.LookupEnv("SSH_CONNECTION")
	return reached
}

// hosted replaces names of host files by the contents, because other hosts may have different
// files. If no number of ranks is given, hosted sets the total of the hosts' slots.
func (g *commandSettings) hosted(said []setting.Assignment) ([]setting.Assignment, error) {
	list, counted, by := "", false, setting.Origin("")
	for i, a := range said {
		counted = counted || a.Path == "job.ranks"
		file, is := strings.CutPrefix(a.Text, "@")
		if !is || !slices.Contains([]setting.Path{"job.hosts", "servers.hosts", "heter.hosts"}, a.Path) {
			if a.Path == "job.hosts" {
				list, by = a.Text, a.Origin
			}
			continue
		}
		found, err := hosts.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Origin, err)
		}
		if said[i].Text = hosts.String(found); a.Path == "job.hosts" {
			list, by = said[i].Text, a.Origin
		}
	}
	found, err := hosts.Parse(list)
	if list == "" || counted || err != nil { // the job reports all errors together
		return said, nil
	}
	return append(said, setting.Assignment{Path: "job.ranks", Text: strconv.Itoa(hosts.Slots(found)), Origin: by}), nil
}

// asHosts rewrites --hostfile FILE, as in MPI, to --hosts=@FILE, and --resume auto to a single
// word.
func asHosts(args []string) (out []string) {
	end := ours(args)
	for i := 0; i < end; i++ {
		a := args[i]
		if a == "--resume" && i+1 < len(args) && args[i+1] == "auto" { // a switch takes no value from the next word
			out = append(out, "--resume=auto")
			i++
			continue
		}
		is, file, given := isHostFile(a)
		if !is {
			out = append(out, a)
			continue
		}
		if !given && i+1 < end {
			i++
			file = args[i]
		}
		out = append(out, "--hosts=@"+file)
	}
	return append(out, args[end:]...)
}

// ours returns the number of leading arguments that are for ringo: those before "--" or, for `ringo
// run`, before the program.
func ours(args []string) int {
	end := len(args)
	if i := slices.Index(args, "--"); i >= 0 {
		end = i
	}
	if end == 0 || args[0] != "run" {
		return end
	}
	flags := newRun().Flags()
	for i := 1; i < end; i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		if !isFlag {
			return i
		}
		name = strings.TrimPrefix(name, "-")
		if f := flags.Lookup(name); !strings.Contains(name, "=") && (f == nil || f.NoOptDefVal == "") {
			i++ // the flag's value
		}
	}
	return end
}

// isHostFile reports whether a word is --hostfile or -hostfile, and returns the file after "=", if
// given.
func isHostFile(word string) (is bool, file string, given bool) {
	name, file, given := strings.Cut(word, "=")
	return name == "--hostfile" || name == "-hostfile", file, given
}

// span assigns the job's processes to the given hosts. This host needs no ssh.
func (g *commandSettings) span(cfg *launch.Config, self string) (err error) {
	if g.Hosts == "" {
		return nil
	}
	all, err := hosts.Parse(g.Hosts)
	if err != nil {
		return setting.Errorf("job.hosts", "%w", err)
	}
	cfg.Self, cfg.Interface = self, g.Network.Interface
	if cfg.Hash, err = hosts.Hash(self); err != nil {
		return err
	}
	reach := hostConnector{
		ssh:     hosts.SSH{Command: strings.Fields(g.SSH), Within: g.Times.Join},
		program: hosts.Program{Path: self, Hash: cfg.Hash, Command: attendCommand, Copied: g.Copy},
		number:  map[string]int{},
	}
	cfg.Roles[0].Hosts = reach.places(all, hosts.Fill(all, cfg.Roles[0].Count))
	used := slices.DeleteFunc(all, func(h hosts.Host) bool { return !reach.has(h.Name) })
	for i := range cfg.Roles[1:] {
		r := &cfg.Roles[1+i]
		on, err := g.hostsOf(r.Name, used)
		if err != nil {
			return err
		}
		r.Hosts = reach.places(on, hosts.Deal(on, r.Count))
	}
	cfg.Hosts = reach.hosts
	cfg.Rendezvous = g.Rendezvous
	return nil
}

// hostsOf returns the hosts given for a role, or others.
func (g *commandSettings) hostsOf(role string, others []hosts.Host) ([]hosts.Host, error) {
	path, list := setting.Path("servers.hosts"), g.Servers.Hosts
	if role == launch.Heter {
		path, list = "heter.hosts", g.HeterHosts
	}
	if list == "" {
		return others, nil
	}
	named, err := hosts.Parse(list)
	if err != nil {
		return nil, setting.Errorf(path, "%w", err)
	}
	return named, nil
}

// hostConnector connects to hosts, and lists the hosts in use.
type hostConnector struct {
	ssh     hosts.SSH
	program hosts.Program
	hosts   []launch.Host
	number  map[string]int // index in hosts, by name
}

func (r *hostConnector) has(name string) bool {
	_, known := r.number[name]
	return known
}

// places converts at, each process's index in some, to indexes in r.hosts.
func (r *hostConnector) places(some []hosts.Host, at []int) (out []int) {
	for _, i := range at {
		name := some[i].Name
		if !r.has(name) {
			r.number[name] = len(r.hosts)
			r.hosts = append(r.hosts, r.host(name))
		}
		out = append(out, r.number[name])
	}
	return out
}

// host returns a host with the function that connects to it; this host needs none.
func (r *hostConnector) host(name string) launch.Host {
	if isHere(name) {
		return launch.Host{Name: name}
	}
	return launch.Host{Name: name, Connect: func(ctx context.Context) (launch.Connection, error) {
		return connected(r.ssh.StartProgram(ctx, name, r.program, r.ssh.Within))
	}}
}

// connected converts a session: a nil *Session would be a non-nil Connection.
func connected(s *hosts.Session, err error) (launch.Connection, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func isHere(name string) bool {
	if slices.Contains(ownNames(), name) {
		return true
	}
	ip := net.ParseIP(name)
	addrs, _ := net.InterfaceAddrs()
	return ip != nil && slices.ContainsFunc(addrs, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(ip) })
}

func ownNames() []string {
	own, _ := os.Hostname()
	short, _, _ := strings.Cut(own, ".")
	return []string{"localhost", own, short}
}

// hostEnv returns the environment for processes on other hosts: variables of ringo and Go, except
// for variables of this host only.
func hostEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		ours := strings.HasPrefix(name, "RINGO_") && name != pageVar
		return !ours && !slices.Contains([]string{launch.ThreadsVar, "GODEBUG", "GOGC", "GOMEMLIMIT", "GOTRACEBACK"}, name)
	})
}
