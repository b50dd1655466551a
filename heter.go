package ringo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/hostport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// ErrHeterTrainerDone ends a program that a launcher has started as a heter-trainer: it has
// computed for the ranks until all of them had left. What a rank would do next is not for it, so
// train.Run returns this error in place of a result. Run takes it for a good end.
var ErrHeterTrainerDone = errors.New("this process has been a heter-trainer of its job, and all ranks have left")

// HeterTrainer is the place in a job of a process that computes a part of the model for ranks.
// Package train does its work.
type HeterTrainer struct {
	Index          int      // its number
	Addrs          []string // where all of them listen, by number
	Trainers       int      // how many ranks there are
	Times          cluster.Times
	LinkOnly       bool // no memory is to be shared with ranks of this host
	ContinueOnLoss bool // the others go on without a rank that is lost (Config.ServersOnly)

	place  launch.RoleEnv
	cfg    Config
	over   string // the network interface by which it is reached
	listen net.Listener
	stop   func() // ends what shows its life; nil: it does not yet
}

// HeterTrainer is the place of this process if it is a heter-trainer, and nil of a rank. A heter-trainer has rank -1, no others to agree
// with and no servers: operations of its Group fail, and say so.
func (j *Job) HeterTrainer() *HeterTrainer { return j.heter }

// heterPlace finds the place of a heter-trainer: that of a launcher, or by hand what c says, or variables.
func (c Config) heterPlace() (place launch.RoleEnv, is bool, err error) {
	if err := c.Validate(); err != nil {
		return place, false, err
	}
	lookup := c.lookup()
	switch {
	case c.serves || c.Size > 0 && !c.HeterTrainer:
		return place, false, nil
	case c.Size > 0:
		lookup = c.heterByHand(lookup)
	}
	if place, is, err = launch.RoleFromEnv(lookup, launch.Heter); !is || err != nil {
		return place, is, err
	}
	switch {
	case len(place.Addrs) == 0:
		err = fmt.Errorf("%s is not set: where all heter-trainers listen, HOST:PORT,HOST:PORT,…; this one at its own place", launch.HetersVar)
	case place.TicketFile != "":
		place.Ticket, err = rendezvous.Ticket(place.TicketFile)
	}
	return place, true, err
}

// heterByHand is lookup with the place that c says.
func (c Config) heterByHand(lookup func(string) (string, bool)) func(string) (string, bool) {
	mine := map[string]string{
		launch.HeterVar: strconv.Itoa(c.Rank), launch.HetersVar: strings.Join(c.Heters, ","), launch.WorldSizeVar: strconv.Itoa(c.Size),
		launch.EndVar: "", launch.RecordVar: "", launch.SocketVar: "",
	}
	if c.TicketFile != "" {
		mine[launch.TicketFileVar], mine[launch.TicketVar] = c.TicketFile, ""
	}
	return func(name string) (string, bool) {
		if v, ok := mine[name]; ok {
			return v, true
		}
		return lookup(name)
	}
}

// validateHeter reports what is wrong with a heter-trainer that is placed by hand.
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

// joinHeter makes this process a heter-trainer in a place.
func joinHeter(ctx context.Context, place launch.RoleEnv, cfg Config) (*Job, error) {
	j := &Job{
		rank: -1, size: place.WorldSize, heters: place.Addrs, ticket: place.Ticket, tls: cfg.Network.TLS, serversOnly: true, launched: place.End > 0,
		outer: ctx, timeout: cfg.Collective.Timeout, settings: cfg.Settings, cores: 1, recorder: place.Recorder(),
	}
	j.heter = &HeterTrainer{
		Index: place.Index, Addrs: place.Addrs, Trainers: place.WorldSize, Times: cfg.Times.WithDefaults(),
		LinkOnly: cmp.Or(cfg.Transport, place.Transport) == TransportTCP, ContinueOnLoss: cfg.ServersOnly, place: place, cfg: cfg,
	}
	j.reportExit = func(end failure.Exit) bool { return ctx.Err() == nil && place.ReportExit(end) } // who has ended it knows why
	j.ctx, j.cancel = context.WithCancelCause(ctx)
	nobody := mem.New(2)[1]
	nobody.Abort(j.heter.usageHint())
	cfg.Metrics, cfg.Servers = nil, 0
	if err := j.start(nobody, cfg); err != nil {
		_ = j.release() // of a mesh in memory
		return nil, fmt.Errorf("joining the job: %w", err)
	}
	return j, nil
}

// usageHint says what a program has to do as a heter-trainer.
func (h *HeterTrainer) usageHint() error {
	return fmt.Errorf("this process is heter-trainer %d of %d of its job, and no rank: a program that has one calls train.Run or train.NewLoop with its model", h.Index, len(h.Addrs))
}

// notServedError is why a program has ended too early that was to be a heter-trainer.
func (j *Job) notServedError() error {
	if j.heter == nil || j.heter.stop != nil {
		return nil
	}
	return j.heter.usageHint()
}

// Begin opens the socket at which ranks find the process, and shows its launcher from now on that it lives. It is called once, by
// role.Serve.
func (h *HeterTrainer) Begin() (l net.Listener, err error) {
	if h.stop != nil {
		return nil, fmt.Errorf("heter-trainer %d has begun already: one process serves once", h.Index)
	}
	if h.place.Socket > 0 {
		socket := os.NewFile(uintptr(h.place.Socket), "socket")
		if l, err = net.FileListener(socket); err != nil {
			return nil, fmt.Errorf("the socket that the launcher gave: %w", err)
		}
		_ = socket.Close() // l is another descriptor of it
	} else if l, err = cluster.Listen(context.Background(), h.Addrs[h.Index], h.Times.Join, h.cfg.Report); err != nil {
		return nil, setting.Errorf("heter.addresses", "has the place of heter-trainer %d, where it cannot listen: %w", h.Index, err)
	}
	if h.stop = func() {}; h.place.End > 0 {
		h.stop = h.place.SendHeartbeats(h.Times.Heartbeat)
	}
	h.listen, h.over = l, interfaceOf(l.Addr())
	return l, nil
}

// end gives back what Begin has opened.
func (h *HeterTrainer) end() {
	if h != nil && h.stop != nil {
		h.stop()
		_ = h.listen.Close() // whoever served has closed it
	}
}

// Meet forms a job of some heter-trainers alone, of which this is one, members[0] says at place where it listens for the others. The job
// is its caller's to close.
func (h *HeterTrainer) Meet(ctx context.Context, members []int, place rendezvous.Backend) (*Job, error) {
	ticket := h.place.Ticket.String()
	cfg := Config{
		Size: len(members), Rank: slices.Index(members, h.Index), Times: h.cfg.Times, Collective: h.cfg.Collective, Network: h.cfg.Network, Bind: launch.BindNone,
		Rendezvous: fmt.Sprintf("/heter-trainer-%d", members[0]), OpenBackend: func(string) (rendezvous.Backend, error) { return place, nil },
		Lookup: func(name string) (string, bool) {
			if name == launch.TicketVar {
				return ticket, true
			}
			return "", false
		},
	}
	cfg.Network.Interface = cmp.Or(cfg.Network.Interface, h.over)
	j, err := Join(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("heter-trainer %d, meeting %v: %w", h.Index, members, err)
	}
	return j, nil
}

// interfaceOf names the network interface that has an address: trainers reach this process by it, and so do other heter-trainers. "": none.
func interfaceOf(addr net.Addr) string {
	mine, ok := addr.(*net.TCPAddr)
	all, err := net.Interfaces()
	if !ok || err != nil {
		return ""
	}
	for _, one := range all {
		addrs, _ := one.Addrs() // of one that has just gone there are none
		if slices.ContainsFunc(addrs, func(a net.Addr) bool { n, is := a.(*net.IPNet); return is && n.IP.Equal(mine.IP) }) {
			return one.Name
		}
	}
	return ""
}
