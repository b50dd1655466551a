package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/usage"
	"github.com/ringo-ml/ringo/transport"
)

// ServerName is the hidden command of the server process of `ringo bench ps`. The process ends when
// its standard input is closed, also by the end of its parent.
const ServerName = "bench-ps-server"

type settings struct {
	clients      int
	memory, disk cli.Size
	dir          string
}

func (s *settings) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.IntVar(&s.clients, "clients", 1, "number of simultaneous trainers, each with a separate connection")
	fs.Var(&s.memory, "ps-memory", "maximum `SIZE` of the server's rows in memory, such as 64MiB; the least used rows are stored in --ps-dir; 0: no limit")
	fs.Var(&s.disk, "ps-disk", "maximum `SIZE` of the rows in --ps-dir; 0: no limit")
	fs.StringVar(&s.dir, "ps-dir", "", "`DIR` on an SSD for rows beyond --ps-memory; removed at the end")
}

// Server returns the hidden command of the server that `ringo bench ps` starts.
func Server() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use:    ServerName,
		Hidden: true,
		Args:   cli.NoArguments,
		RunE:   func(cmd *cobra.Command, _ []string) error { return s.serve(cmd) },
	}
	s.register(cmd)
	return cmd
}

// places are a server's addresses, printed as a JSON line when the server is ready.
type places struct {
	Addr  string `json:"addr"`
	Admin string `json:"admin"`
}

func (s *settings) serve(cmd *cobra.Command) error {
	text, _ := os.LookupEnv(launch.TicketVar)
	ticket, err := transport.ParseTicket(text)
	if err != nil {
		return fmt.Errorf("%s: %w", launch.TicketVar, err)
	}
	cfg := server.Config{
		Ticket: ticket, Version: ringo.Version, Servers: 1, Trainers: s.clients, Mode: engine.Async, Durability: engine.None,
		Dir: s.dir, MemoryBytes: int64(s.memory), DiskBytes: int64(s.disk), AdminToken: ticket.String(),
	}
	if cfg.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	if cfg.Admin, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return errors.Join(err, cfg.Listener.Close())
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	go func() { // runs until the process ends
		_, _ = io.Copy(io.Discard, cmd.InOrStdin())
		cancel()
	}()
	line, err := json.Marshal(places{cfg.Listener.Addr().String(), cfg.Admin.Addr().String()})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", line); err != nil {
		return err
	}
	if _, err = server.Run(ctx, cfg); ctx.Err() != nil {
		return nil // no reader is left
	}
	return err
}

// serverProcess is a server in a separate process, with its heap, threads and collector.
type serverProcess struct {
	places
	ticket transport.Ticket
	dir    string // temporary folder, removed at the end
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer // readable when the process has ended
	ended  chan struct{}
	err    error // set when ended is closed
	web    http.Client
}

// startLimit is the maximum time for a server to report its addresses, and to end.
const startLimit = 30 * time.Second

func (s *settings) start(ctx context.Context) (*serverProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program's own file, which is the server: %w", err)
	}
	p := &serverProcess{ticket: transport.NewTicket(), ended: make(chan struct{}), web: http.Client{Timeout: startLimit, Transport: &http.Transport{}}}
	if s.dir != "" {
		if p.dir, err = os.MkdirTemp(s.dir, "ringo-bench-ps-"); err != nil {
			return nil, fmt.Errorf("--ps-dir: %w", err)
		}
		if p.dir, err = filepath.Abs(p.dir); err != nil {
			return nil, err
		}
	}
	p.cmd = exec.Command(self, ServerName, fmt.Sprintf("--clients=%d", s.clients), "--ps-memory="+s.memory.String(),
		"--ps-disk="+s.disk.String(), "--ps-dir="+p.dir)
	p.cmd.Env = append(os.Environ(), launch.TicketVar+"="+p.ticket.String())
	p.cmd.Stderr, p.cmd.WaitDelay = &p.stderr, time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches this process only, which ends the server
	err = p.launch(ctx)
	if err != nil {
		return nil, errors.Join(err, p.removeDir())
	}
	return p, nil
}

// launch starts the process and waits until the server is ready.
func (p *serverProcess) launch(ctx context.Context) error {
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.stdin = stdin
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	p.cmd.Stdout = theirs
	err = p.cmd.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	said := make(chan error, 1)
	go func() { said <- json.NewDecoder(ours).Decode(&p.places) }()
	select {
	case err = <-said:
	case <-time.After(startLimit):
		err = fmt.Errorf("it has not said where it is for %v", startLimit)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("starting the server: %w", err), p.stop(ctx))
	}
	return nil
}

// stop ends the process, and returns nil if it ended in good order.
func (p *serverProcess) stop(ctx context.Context) error {
	p.web.CloseIdleConnections()
	_ = p.stdin.Close() // the process may be gone
	select {
	case <-p.ended:
	case <-time.After(startLimit):
		_ = p.cmd.Process.Kill() // the process may be gone
		<-p.ended
		return fmt.Errorf("the server did not end within %v and was killed", startLimit)
	}
	if p.err != nil && ctx.Err() == nil {
		return fmt.Errorf("the server has ended: %w: %s", p.err, strings.TrimSpace(p.stderr.String()))
	}
	return nil
}

// close ends the server, after its trainers have left or after a failure.
func (p *serverProcess) close(ctx context.Context, left bool) error {
	if left {
		select {
		case <-p.ended:
		case <-time.After(startLimit):
		}
	}
	return errors.Join(p.stop(ctx), p.removeDir())
}

func (p *serverProcess) removeDir() error {
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}

type serverFigures struct {
	Service service.Stats   `json:"service"`
	Tables  engine.Stats    `json:"tables"`
	Process usage.Resources `json:"process"`
}

// table returns the metrics of the only table.
func (f *serverFigures) table() shard.Stats {
	if len(f.Tables.Tables) == 0 {
		return shard.Stats{}
	}
	return f.Tables.Tables[0].Stats
}

func (p *serverProcess) figures(ctx context.Context) (f serverFigures, err error) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Admin+"/stats", nil)
	if err != nil {
		return f, err
	}
	ask.Header.Set("Authorization", "Bearer "+p.ticket.String())
	answer, err := p.web.Do(ask)
	if err != nil {
		return f, fmt.Errorf("asking the server for its figures: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return f, fmt.Errorf("asking the server for its figures: %s", answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(&f); err != nil {
		return f, fmt.Errorf("the server's figures: %w", err)
	}
	return f, nil
}
