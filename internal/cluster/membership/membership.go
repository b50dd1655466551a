// Package membership makes a process a member of a cluster: it finds rank 0, hosts the coordinator
// there without a launcher, and leaves at the end.
package membership

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/transport"
)

// Config is the part of a job's configuration that decides how processes find each other.
type Config struct {
	Version   string
	Interface string // network interface; "": the interface toward the coordinator
	Ports     cluster.PortRange
	TLS       transport.TLS
	Times     cluster.Times
	Settings  setting.Values // compared with those of other processes
	// OpenBackend opens a rendezvous that is not an address. nil means the backends of this binary.
	OpenBackend func(rendezvous string) (rendezvous.Backend, error)
	// NoMesh reports whether ranks have no connections, and therefore need no coordinator.
	NoMesh bool
	// Report, if set, receives one line for each connection or rank that needs attention.
	Report func(line string)
}

// Membership is the place of a process in a cluster.
type Membership struct {
	Member      *cluster.Member // nil before Join
	cfg         Config
	backend     rendezvous.Backend   // nil: the address of rank 0 is known
	listener    net.Listener         // listener of rank 0, from Find to Join; nil without a backend
	withdraw    func()               // removes rank 0's endpoint from backend; nil: not published
	coordinator *cluster.Coordinator // set in rank 0 of a job without a launcher
}

// Find completes env: a ticket comes from its file, and rank 0 publishes its endpoint if the
// rendezvous is a backend. Leave must follow, also after an error.
func Find(ctx context.Context, env *launch.RankEnv, cfg Config) (m *Membership, err error) {
	m = &Membership{cfg: cfg}
	if env.TicketFile != "" {
		if env.Ticket, err = rendezvous.Ticket(env.TicketFile); err != nil {
			return m, err
		}
	}
	if rendezvous.IsBackend(env.Rendezvous) {
		open := cfg.OpenBackend
		if open == nil {
			open = openBackend
		}
		if m.backend, err = open(env.Rendezvous); err != nil {
			return m, err
		}
	}
	if env.Rank == 0 && !cfg.NoMesh && m.backend != nil {
		err = m.publish(ctx, env)
	}
	return m, err
}

// publish listens at a free port and publishes the address, with a new ticket if rank 0 has none.
func (m *Membership) publish(ctx context.Context, env *launch.RankEnv) error {
	ip, err := cluster.HostAddress(m.cfg.Interface, env.OneHost)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
	if err != nil {
		return fmt.Errorf("listening at rank 0: %w", err)
	}
	endpoint := rendezvous.Endpoint{Job: env.Job, Address: listener.Addr().String()}
	if env.Ticket == nil {
		env.Ticket = transport.NewTicket()
		endpoint.Ticket = env.Ticket.String()
	}
	limited, cancel := context.WithTimeout(ctx, m.cfg.Times.Join)
	defer cancel()
	if m.withdraw, err = m.backend.Publish(limited, endpoint); err != nil {
		_ = listener.Close() // err says more
		return err
	}
	m.listener, env.Rendezvous = listener, endpoint.Address
	return nil
}

// Join makes the process a member, and returns when all members have joined. Rank 0 hosts the
// coordinator if there is no launcher.
func (m *Membership) Join(ctx context.Context, env launch.RankEnv) (err error) {
	if env.Rank == 0 && !env.Launched {
		if err := m.coordinate(ctx, env); err != nil {
			return err
		}
	}
	m.Member, err = cluster.Join(ctx, cluster.MemberConfig{
		Rendezvous: env.Rendezvous, Ticket: env.Ticket, TLS: m.cfg.TLS, Version: m.cfg.Version,
		Rank: env.Rank, WorldSize: env.Members(), Times: m.cfg.Times, Interface: m.cfg.Interface, Ports: m.cfg.Ports,
		Settings: m.cfg.Settings, Look: m.lookup(ctx, env), Report: m.cfg.Report,
	})
	if _, file := m.backend.(rendezvous.File); err == nil && file && m.withdraw != nil {
		m.withdraw() // all ranks have joined: another job may now use the same file
	}
	return err
}

// coordinate starts the coordinator.
func (m *Membership) coordinate(ctx context.Context, env launch.RankEnv) (err error) {
	if m.listener == nil {
		if m.listener, err = cluster.Listen(ctx, env.Rendezvous, m.cfg.Times.Join, m.cfg.Report); err != nil {
			return err
		}
	}
	m.coordinator, err = cluster.NewCoordinator(cluster.CoordinatorConfig{
		Address: env.Rendezvous, Listener: m.listener, WorldSize: env.Members(), Servers: env.Servers,
		Ticket: env.Ticket, TLS: m.cfg.TLS, Version: m.cfg.Version, Times: m.cfg.Times, Report: m.cfg.Report,
	})
	if err != nil {
		_ = m.listener.Close() // err says more
	}
	return err
}

// lookup returns a function that reads rank 0's address from the backend, and the ticket if env has
// none. lookup returns nil without a backend and in the publishing process.
func (m *Membership) lookup(ctx context.Context, env launch.RankEnv) func() (string, transport.Ticket, error) {
	if m.backend == nil || m.withdraw != nil {
		return nil
	}
	return func() (string, transport.Ticket, error) {
		endpoint, err := m.backend.Lookup(ctx, env.Job)
		if err != nil {
			return "", nil, err
		}
		if (endpoint.Ticket == "") != (env.Ticket != nil) {
			return "", nil, fmt.Errorf("%s is of a job whose rank 0 was not given a ticket as this rank was, or the other way around: give it to all (%s), or to none", env.Rendezvous, launch.TicketFileVar)
		}
		if ticket := env.Ticket; ticket != nil {
			return endpoint.Address, ticket, nil
		}
		ticket, err := transport.ParseTicket(endpoint.Ticket)
		return endpoint.Address, ticket, err
	}
}

// Abandon reports err of a process that could not join, so that no other process waits, and returns
// whether the coordinator has the error.
func (m *Membership) Abandon(rank int, err error) (reported bool) {
	if m.Member != nil {
		reported = m.Member.Fail(err)
	} else {
		reported = cluster.IsVerdict(err)
	}
	if m.coordinator != nil {
		m.coordinator.MarkLost(rank, err.Error())
	}
	return reported
}

// Leave leaves the cluster after the last operation, such as "allreduce 98"; "": none.
func (m *Membership) Leave(last string) error {
	var errs []error
	if m.Member != nil {
		errs = append(errs, m.Member.Leave(last))
	}
	if m.coordinator != nil {
		errs = append(errs, m.coordinator.Close())
	}
	if m.withdraw != nil {
		m.withdraw()
	}
	return errors.Join(errs...)
}
