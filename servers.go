package ringo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/hostport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/transport"
)

// serverAccess has the addresses and options for connections to parameter servers and
// heter-trainers (processes that compute a part of the model).
type serverAccess struct {
	addresses  []string             // addresses of parameter servers
	heters     []string             // addresses of heter-trainers
	checkpoint launch.CheckpointEnv // the launcher's checkpoint settings
	ticket     transport.Ticket     // nil in a job of one process
	tls        transport.TLS
	timeout    time.Duration  // maximum wait for another process
	settings   setting.Values // compared with the servers'
	watched    bool           // the launcher ends servers that hang
	connected  atomic.Int32   // clients of DialParameterServers that have not left
}

// unleftError returns an error if a program ended without an error but without Leave of a client of
// parameter servers. The servers and, through them, the other ranks would wait for this rank.
func (s *serverAccess) unleftError() error {
	if s.connected.Load() == 0 {
		return nil
	}
	return errors.New("it ended early: its client of the parameter servers has not left, so they wait for it: call Leave of each client at the end")
}

// ParameterServers returns the number of parameter servers.
func (j *Job) ParameterServers() int { return len(j.servers.addresses) }

// Heters returns the addresses of the job's heter-trainers (processes that compute a part of the
// model), by number, and the credentials that Dial of package internal/heter/client needs. A
// launcher starts heter-trainers, or Config.Heters has their addresses.
func (j *Job) Heters() (addrs []string, who transport.Credentials) {
	return j.servers.heters, j.servers.ticket.Under(j.servers.tls)
}

// Saving returns the options of `ringo run --checkpoint` for a job with parameter servers. Package
// train applies them. The zero value means no checkpoints.
func (j *Job) Saving() launch.CheckpointEnv { return j.servers.checkpoint }

// DialParameterServers connects this rank to the job's parameter servers, as trainer number Rank.
// It waits for servers that have not started. cfg has the caller's options; the job sets addresses,
// ticket, version and settings, and a zero Timeout to that of Config.Collective. The caller ends
// the client before the job: a program without an error must call the client's Leave, because
// servers otherwise wait for this rank. If a rank or a server is lost, the client's calls fail.
//
// Servers with `sync geo` need differences of parameters instead of gradients: they reject a client
// without the setting "sync".
func (j *Job) DialParameterServers(cfg client.Config) (*client.Client, error) {
	s := &j.servers
	switch {
	case j.heter != nil:
		return nil, j.heter.usageHint()
	case len(s.addresses) == 0:
		return nil, fmt.Errorf("the job has no servers that keep parameters: start it by ringo run with some (servers.count 1, sync async), or give all ranks their addresses (Config.ParameterServers)")
	case s.ticket == nil:
		return nil, fmt.Errorf("a job of one process has no servers of tables: start its ranks as processes")
	}
	cfg.Servers, cfg.Ticket, cfg.TLS, cfg.Version = s.addresses, s.ticket, s.tls, Version
	cfg.Trainer, cfg.Trainers, cfg.Watched = j.rank, j.size, s.watched
	cfg.Timeout, cfg.Record = cmp.Or(cfg.Timeout, s.timeout), j.records.recorder
	settings := setting.Values{}
	maps.Copy(settings, s.settings)
	maps.Copy(settings, cfg.Settings)
	cfg.Settings = settings
	onLeave := cfg.OnLeave
	cfg.OnLeave = func() {
		s.connected.Add(-1)
		if onLeave != nil {
			onLeave()
		}
	}
	ctx := cmp.Or(j.life.ctx, context.Background())
	c, err := client.Dial(ctx, cfg)
	if err == nil {
		s.connected.Add(1)
		context.AfterFunc(ctx, func() { c.Abort(context.Cause(ctx)) })
	}
	return c, err
}

// ErrHeterTrainerDone ends a program that a launcher has started as a heter-trainer, after all
// ranks have left. train.Run returns this error instead of a result, because the program's code
// after training is for ranks. ringo.Run treats the error as success.
var ErrHeterTrainerDone = errors.New("this process has been a heter-trainer of its job, and all ranks have left")

// HeterTrainer describes this process as a heter-trainer, which computes a part of the model for
// ranks. Package train implements the work.
type HeterTrainer struct {
	Index          int      // number of this heter-trainer
	Addrs          []string // listen addresses of all heter-trainers, by number
	Trainers       int      // ranks
	Times          cluster.Times
	LinkOnly       bool // no memory is shared with ranks of this host
	ContinueOnLoss bool // the other ranks continue without a lost one (Config.ServersOnly)

	env      launch.RoleEnv
	cfg      Config
	iface    string // network interface of its address
	listener net.Listener
	stop     func() // ends the heartbeats; nil before Begin
}

// HeterTrainer describes this process as a heter-trainer, or is nil in a rank. A heter-trainer has
// rank -1, no group and no servers: operations of its Group fail with an explanation.
func (j *Job) HeterTrainer() *HeterTrainer { return j.heter }

// heterPlace returns this process's place as a heter-trainer: from the launcher, or without a
// launcher from c or from environment variables. is reports whether the process is a heter-trainer.
func (c Config) heterPlace() (env launch.RoleEnv, is bool, err error) {
	if err := c.Validate(); err != nil {
		return env, false, err
	}
	lookup := c.lookup()
	switch {
	case c.serves || c.Size > 0 && !c.HeterTrainer:
		return env, false, nil
	case c.Size > 0:
		lookup = c.heterByHand(lookup)
	}
	if env, is, err = launch.RoleFromEnv(lookup, launch.Heter); !is || err != nil {
		return env, is, err
	}
	switch {
	case len(env.Addrs) == 0:
		err = fmt.Errorf("%s is not set: where all heter-trainers listen, HOST:PORT,HOST:PORT,…; this one at its own place", launch.HetersVar)
	case env.TicketFile != "":
		env.Ticket, err = rendezvous.Ticket(env.TicketFile)
	}
	return env, true, err
}

// heterByHand returns lookup, but with c's values for the variables of a heter-trainer.
func (c Config) heterByHand(lookup func(string) (string, bool)) func(string) (string, bool) {
	values := map[string]string{
		launch.HeterVar: strconv.Itoa(c.Rank), launch.HetersVar: strings.Join(c.Heters, ","), launch.WorldSizeVar: strconv.Itoa(c.Size),
		launch.ExitFDVar: "", launch.RecordFDVar: "", launch.ListenFDVar: "",
	}
	if c.TicketFile != "" {
		values[launch.TicketFileVar], values[launch.TicketVar] = c.TicketFile, ""
	}
	return func(name string) (string, bool) {
		if v, ok := values[name]; ok {
			return v, true
		}
		return lookup(name)
	}
}

// validateHeter returns the errors of c for a heter-trainer without a launcher.
func (c Config) validateHeter() (errs []error) {
	if len(c.Heters) == 0 {
		errs = append(errs, setting.Errorf("heter.addresses", "are missing: where all heter-trainers listen, HOST:PORT each; this one at its own place"))
	} else if c.Rank < 0 || c.Rank >= len(c.Heters) {
		errs = append(errs, fmt.Errorf("heter-trainer %d: want 0 to %d, as there are %d", c.Rank, len(c.Heters)-1, len(c.Heters)))
	}
	for i, addr := range c.Heters {
		if _, _, err := hostport.Split(addr, 1); err != nil {
			errs = append(errs, setting.Errorf("heter.addresses", "%q of heter-trainer %d: %w", addr, i, err))
		}
	}
	return errs
}

// joinHeter makes this process the heter-trainer that env describes.
func joinHeter(ctx context.Context, env launch.RoleEnv, cfg Config) (*Job, error) {
	j := &Job{
		identity: identity{rank: -1, size: env.WorldSize, serversOnly: true, launched: env.End > 0},
		cpus:     processors{count: 1},
		heter: &HeterTrainer{
			Index: env.Index, Addrs: env.Addrs, Trainers: env.WorldSize, Times: cfg.Times.WithDefaults(), ContinueOnLoss: cfg.ServersOnly,
			LinkOnly: cmp.Or(cfg.Transport, env.Transport) == TransportTCP, env: env, cfg: cfg,
		},
	}
	s := &j.servers
	s.heters, s.ticket, s.tls, s.timeout, s.settings = env.Addrs, env.Ticket, cfg.Network.TLS, cfg.Collective.Timeout, cfg.Settings
	j.records.recorder = env.Recorder()
	j.members.reportExit = func(end failure.Exit) bool { return ctx.Err() == nil && env.ReportExit(end) } // after a requested end the reason is known
	j.life.parent = ctx
	j.life.begin(ctx)
	unusable := mem.New(2)[1]
	unusable.Abort(j.heter.usageHint())
	cfg.Metrics, cfg.Servers = nil, 0
	if err := j.start(unusable, cfg); err != nil {
		_ = j.release() // a mesh in memory
		return nil, fmt.Errorf("joining the job: %w", err)
	}
	return j, nil
}

// usageHint returns an error that lists the calls that the program of a heter-trainer must make.
func (h *HeterTrainer) usageHint() error {
	return fmt.Errorf("this process is heter-trainer %d of %d of its job, and no rank: a program that has one calls train.Run or train.NewLoop with its model", h.Index, len(h.Addrs))
}

// notServedError returns an error if the program of a heter-trainer ends without serving.
func (j *Job) notServedError() error {
	if j.heter == nil || j.heter.stop != nil {
		return nil
	}
	return j.heter.usageHint()
}

// Begin opens the socket for ranks, and starts the heartbeats to the launcher. Package
// internal/heter/worker calls Begin once.
func (h *HeterTrainer) Begin() (l net.Listener, err error) {
	if h.stop != nil {
		return nil, fmt.Errorf("heter-trainer %d has begun already: one process serves once", h.Index)
	}
	if h.env.Socket > 0 {
		socket := os.NewFile(uintptr(h.env.Socket), "socket")
		if l, err = net.FileListener(socket); err != nil {
			return nil, fmt.Errorf("the socket that the launcher gave: %w", err)
		}
		_ = socket.Close() // l is another descriptor of it
	} else if l, err = cluster.Listen(context.Background(), h.Addrs[h.Index], h.Times.Join, h.cfg.Report); err != nil {
		return nil, setting.Errorf("heter.addresses", "has the place of heter-trainer %d, where it cannot listen: %w", h.Index, err)
	}
	if h.stop = func() {}; h.env.End > 0 {
		h.stop = h.env.SendHeartbeats(h.Times.Heartbeat)
	}
	h.listener, h.iface = l, interfaceOf(l.Addr())
	return l, nil
}

// end closes what Begin has opened.
func (h *HeterTrainer) end() {
	if h != nil && h.stop != nil {
		h.stop()
		_ = h.listener.Close() // the service has closed it
	}
}

// Meet forms a separate job of the heter-trainers in members, this process included. members[0]
// publishes its listen address at backend. The caller closes the job.
func (h *HeterTrainer) Meet(ctx context.Context, members []int, backend rendezvous.Backend) (*Job, error) {
	ticket := h.env.Ticket.String()
	cfg := Config{
		Size: len(members), Rank: slices.Index(members, h.Index), Times: h.cfg.Times, Collective: h.cfg.Collective, Network: h.cfg.Network, Bind: launch.BindNone,
		Rendezvous: fmt.Sprintf("/heter-trainer-%d", members[0]), OpenBackend: func(string) (rendezvous.Backend, error) { return backend, nil },
		Lookup: func(name string) (string, bool) {
			if name == launch.TicketVar {
				return ticket, true
			}
			return "", false
		},
	}
	cfg.Network.Interface = cmp.Or(cfg.Network.Interface, h.iface)
	j, err := Join(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("heter-trainer %d, meeting %v: %w", h.Index, members, err)
	}
	return j, nil
}

// interfaceOf returns the network interface with the address addr, or "".
func interfaceOf(addr net.Addr) string {
	own, ok := addr.(*net.TCPAddr)
	all, err := net.Interfaces()
	if !ok || err != nil {
		return ""
	}
	for _, i := range all {
		addrs, _ := i.Addrs() // empty if the interface has just been removed
		if slices.ContainsFunc(addrs, func(a net.Addr) bool { n, is := a.(*net.IPNet); return is && n.IP.Equal(own.IP) }) {
			return i.Name
		}
	}
	return ""
}
