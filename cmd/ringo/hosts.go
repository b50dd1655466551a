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
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/launch/hosts"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/setting"
)

// attendCommand is the hidden command that starts and ends a job's processes on a host that is not its launcher's.
const attendCommand = "attend-host"

func newAgent() *cobra.Command {
	return &cobra.Command{
		Use:    attendCommand,
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // who reads our output may end before we do: that is an error of writing
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

// reachedBySSH is by which addresses ssh has started this process, "" if it has not.
func reachedBySSH() string {
	reached, _ := os.LookupEnv("SSH_CONNECTION")
	return reached
}

// maxHostFile bounds a host file that is read, in bytes.
const maxHostFile = 1 << 20

// hosted replaces a host file's name by what it holds, since other hosts may have another one, and says as many ranks as hosts take
// where nobody does.
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
		text, err := pathname.Read(file, maxHostFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Origin, err)
		}
		found, err := hosts.ParseFile(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", a.Origin, file, err)
		}
		if said[i].Text = hosts.String(found); a.Path == "job.hosts" {
			list, by = said[i].Text, a.Origin
		}
	}
	found, err := hosts.Parse(list)
	if list == "" || counted || err != nil { // what is wrong the job tells, with all other faults
		return said, nil
	}
	return append(said, setting.Assignment{Path: "job.ranks", Text: strconv.Itoa(hosts.Slots(found)), Origin: by}), nil
}

// asHosts is a command line with --hostfile FILE, as MPI's launchers have it, written --hosts=@FILE, and --resume auto in one word.
func asHosts(args []string) (out []string) {
	end := ours(args)
	for i := 0; i < end; i++ {
		a := args[i]
		if a == "--resume" && i+1 < len(args) && args[i+1] == "auto" { // a switch needs no value, and takes the next word for none
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

// ours is how many words of a command line are ringo's own: those before "--", and of `ringo run` those before the program.
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
			i++ // its value
		}
	}
	return end
}

// isHostFile says whether a word is --hostfile or -hostfile, and which file it names, if it does.
func isHostFile(word string) (is bool, file string, given bool) {
	name, file, given := strings.Cut(word, "=")
	return name == "--hostfile" || name == "-hostfile", file, given
}

// span has cfg start the job's processes on the hosts that were named; one that is this host needs no ssh.
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

// hostsOf are those that were named for a role, or others.
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

// hostConnector is how hosts are reached, and those that are in use.
type hostConnector struct {
	ssh     hosts.SSH
	program hosts.Program
	hosts   []launch.Host
	number  map[string]int // of each in hosts, by name
}

func (r *hostConnector) has(name string) bool {
	_, known := r.number[name]
	return known
}

// places are numbers in r.hosts of some, of which at says for each process which one.
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

// host is one with the way to it, which this one does not need.
func (r *hostConnector) host(name string) launch.Host {
	if isHere(name) {
		return launch.Host{Name: name}
	}
	return launch.Host{Name: name, Connect: func(ctx context.Context) (launch.Connection, error) {
		return connected(r.ssh.StartProgram(ctx, name, r.program, r.ssh.Within))
	}}
}

// connected is a session as the launcher wants it: none is no value of that type.
func connected(s *hosts.Session, err error) (launch.Connection, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// isHere says that a host is this one.
func isHere(name string) bool {
	if slices.Contains(ownNames(), name) {
		return true
	}
	ip := net.ParseIP(name)
	addrs, _ := net.InterfaceAddrs()
	return ip != nil && slices.ContainsFunc(addrs, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(ip) })
}

// ownNames are those by which this host calls itself.
func ownNames() []string {
	own, _ := os.Hostname()
	short, _, _ := strings.Cut(own, ".")
	return []string{"localhost", own, short}
}

// hostEnv is what of this process's environment other hosts' processes get: what is ringo's or Go's, but what has a meaning on this host alone.
func hostEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		ours := strings.HasPrefix(name, "RINGO_") && name != pageVar
		return !ours && !slices.Contains([]string{launch.ThreadsVar, "GODEBUG", "GOGC", "GOMEMLIMIT", "GOTRACEBACK"}, name)
	})
}
