// Package doctor is `ringo doctor`: checks of this host and of named hosts for problems that would
// stop or slow a job, with costs and remedies.
package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/launch/hosts"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/transport"
)

// AnswerCommand is the hidden command that answers `ringo doctor` on another host.
const AnswerCommand = "answer-doctor"

// within is the timeout for reaching a host, and again for its report.
const within = 30 * time.Second

type checkRun struct {
	hosts, ssh, network, json string
	rendezvous                string
	copied                    bool
	version                   string
}

// Command returns `ringo doctor` for a version of this program.
func Command(version string) *cobra.Command {
	e := &checkRun{version: version}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check hosts and links for problems before a job",
		Long: "Check this host, and over ssh the hosts of --hosts, for problems that would stop or slow a\n" +
			"job: processor, cores and limits of the container, memory, large pages, shared memory, open\n" +
			"files, clock, ports and network. For each named host, doctor also measures the round-trip time\n" +
			"and the bytes per second in both directions, with and without TLS, and over its other\n" +
			"interfaces. --rendezvous checks the members of etcd. Each finding has its effect on a job and a\n" +
			"command that repairs it. The exit status is 1 if a job would fail.",
		Example: "  ringo doctor\n  ringo doctor --hosts node1,node2\n  ringo doctor --hosts node1 --json -",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.WithOutput(cmd, e.json, func(out *cli.Output) error { return e.print(cmd.Context(), out) })
		},
	}
	cmd.Flags().StringVar(&e.hosts, "hosts", "", "hosts to check in addition, `HOST,...`, by their names for ssh; @FILE reads a host file")
	cmd.Flags().StringVar(&e.ssh, "ssh", "ssh", "`COMMAND` that starts a program on another host, with options")
	cmd.Flags().StringVar(&e.network, "interface", "", "`NAME` of the network interface between hosts; default: the interface that ssh uses")
	cmd.Flags().StringVar(&e.rendezvous, "rendezvous", "", "check the members of etcd, `etcd://HOST:PORT,.../KEY`")
	cmd.Flags().BoolVar(&e.copied, "copy", false, "copy this program to ~/.cache/ringo of each host without it")
	cli.JSON(cmd, &e.json, "finding")
	return cmd
}

func localHost() host {
	begun := time.Now()
	const readings = 1000
	for range readings {
		_ = time.Now()
	}
	return host{root: os.DirFS("/"), allowed: placement.Allowed(), kernels: simd.Host().Name(), shared: sharing(), files: openFiles(), reading: time.Since(begun) / readings}
}

func (e *checkRun) print(ctx context.Context, out *cli.Output) error {
	found := append(localHost().look(), network(e.network))
	if e.hosts != "" {
		named, err := parseHosts(e.hosts)
		if err != nil {
			return cli.Usagef("--hosts: %v", err)
		}
		found = append(found, e.others(ctx, named)...)
	}
	if e.rendezvous != "" {
		members, err := etcd(ctx, e.rendezvous)
		if err != nil {
			return cli.Usagef("--rendezvous: %v", err)
		}
		found = append(found, members...)
	}
	faults := 0
	for _, f := range found {
		if f.Level == bad {
			faults++
		}
		if err := out.Result(f, "%s", f.words()); err != nil {
			return err
		}
	}
	if faults > 0 {
		return fmt.Errorf("%s would make jobs fail", cli.Counted(faults, "fault"))
	}
	return nil
}

func parseHosts(list string) ([]hosts.Host, error) {
	if file, is := strings.CutPrefix(list, "@"); is {
		return hosts.ReadFile(file)
	}
	return hosts.Parse(list)
}

func (f finding) words() string {
	return fmt.Sprintf("%-4s  %s: %s", f.Level, f.Subject, f.Found) + below("", f.Costs) + below("mend: ", f.Mend)
}

// below formats an indented line, or "" without text.
func below(label, text string) string {
	if text == "" {
		return ""
	}
	return "\n      " + label + text
}

// network reports the address of this host for other hosts.
func network(name string) finding {
	f := finding{Subject: "network", Level: ok}
	ip, err := cluster.HostAddress(name, false)
	if err != nil {
		f.Found = err.Error()
		f.fails("ranks on other hosts do not find those here", "name one of them: ip -brief address")
		return f
	}
	f.Found = "others reach this host at " + ip.String() + by(ip)
	if ip.IsLoopback() {
		f.warns("which is this host alone: there are no jobs of several hosts", "--interface NAME, of those that `ip -brief address` shows")
	}
	return f
}

func by(ip net.IP) string {
	all, _ := net.Interfaces()
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, is := a.(*net.IPNet); is && n.IP.Equal(ip) {
				return fmt.Sprintf(", by %s, which sends %d bytes at a time", i.Name, i.MTU)
			}
		}
	}
	return ""
}

// others checks other hosts concurrently, and their links sequentially over this host's network.
func (e *checkRun) others(ctx context.Context, named []hosts.Host) (out []finding) {
	self, err := os.Executable()
	hash := ""
	if err == nil {
		hash, err = hosts.Hash(self)
	}
	if err != nil {
		return []finding{{Subject: "this program", Found: err.Error(), Level: bad}}
	}
	seen, faults := make([]*remoteHost, len(named)), make([]error, len(named))
	program := hosts.Program{Path: self, Hash: hash, Command: AnswerCommand, Copied: e.copied}
	if e.network != "" {
		program.Command += " --interface " + hosts.Quote(e.network)
	}
	var all sync.WaitGroup
	for i, h := range named {
		all.Go(func() { seen[i], faults[i] = e.start(ctx, h.Name, program) })
	}
	all.Wait()
	for i, h := range named {
		if faults[i] != nil {
			out = append(out, finding{Subject: h.Name, Found: faults[i].Error(), Level: bad, Costs: "no job can have processes there", Mend: "see whether `ssh -o BatchMode=yes " + h.Name + " true` works, and whether this program is there, or have it copied: --copy"})
			continue
		}
		out = append(out, seen[i].findings(ctx, e.version, hash)...)
		_ = seen[i].session.Close()
	}
	return out
}

func (e *checkRun) start(ctx context.Context, host string, program hosts.Program) (*remoteHost, error) {
	s, err := hosts.SSH{Command: strings.Fields(e.ssh), Within: within}.StartProgram(ctx, host, program, within)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, s.Kill)()
	return probeHost(host, s, s.Reason)
}

type hostReport struct {
	Version string    `json:"version"`
	Hash    string    `json:"hash"`
	Plain   string    `json:"plain"`  // listen address without TLS
	TLS     string    `json:"tls"`    // listen address with TLS
	Others  []route   `json:"others"` // listen addresses on other interfaces
	Found   []finding `json:"findings"`
}

// remoteHost is another host under test.
type remoteHost struct {
	name    string
	session io.ReadWriteCloser
	ticket  transport.Ticket
	hostReport
}

// probeHost sends a ticket to another host and reads the report; why explains a session's end.
func probeHost(name string, session io.ReadWriteCloser, why func() string) (*remoteHost, error) {
	p := &remoteHost{name: name, session: session, ticket: transport.NewTicket()}
	late := time.AfterFunc(within, func() { _ = session.Close() })
	defer late.Stop()
	_, err := fmt.Fprintln(session, p.ticket)
	var line []byte
	if err == nil {
		line, err = bufio.NewReader(io.LimitReader(session, 1<<20)).ReadBytes('\n')
	}
	if err != nil {
		_ = session.Close()
		return nil, errors.New(why())
	}
	if err := json.Unmarshal(line, &p.hostReport); err != nil {
		_ = session.Close()
		return nil, fmt.Errorf("what it says is not understood (does its shell write something at the start?): %w", err)
	}
	return p, nil
}

func (p *remoteHost) findings(ctx context.Context, version, hash string) (out []finding) {
	program := finding{Subject: p.name + ": program", Found: "version " + p.Version, Level: ok}
	if p.Hash != hash || p.Version != version {
		program.Level, program.Costs = bad, fmt.Sprintf("here is version %s (sha256 %.12s), there %s (%.12s): they form no job", version, hash, p.Version, p.Hash)
		program.Mend = "copy this one there, or have it copied: --copy here, --set job.copy=true of a job"
	}
	out = append(out, program)
	for _, f := range p.Found {
		f.Subject = p.name + ": " + f.Subject
		out = append(out, f)
	}
	if p.Version != version {
		return out // the handshake would be refused
	}
	plain, chosen := p.link(ctx, "link", p.Plain, version, transport.TLSOff)
	under, _ := p.link(ctx, "link under TLS", p.TLS, version, transport.TLSOn)
	if out = append(out, plain, under); len(p.Others) > 0 {
		out = append(out, compare(p.name, chosen, p.try(ctx, version)))
	}
	return out
}

func (p *remoteHost) link(ctx context.Context, what, addr, version, mode string) (f finding, s speed) {
	f = finding{Subject: p.name + ": " + what, Level: ok}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dial(ctx, addr, version, p.ticket, mode)
	if err == nil {
		defer conn.Close()
		s, err = measure(conn)
		f.Found = s.String()
	}
	if err != nil {
		f.Found, f.Level, f.Costs = fmt.Sprintf("%s: %v", addr, err), bad, "ranks here do not reach those there"
		f.Mend = "let what comes from this host in at that address: a firewall's rule, or --interface NAME of another network"
	}
	return f, s
}
