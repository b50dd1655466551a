package ringo

import (
	"context"
	"fmt"
	"net"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

// rendezvous completes a place whose ticket stands in a file, or whose rank 0 says elsewhere where
// it listens: rank 0 listens and posts that. Of rank 0 it returns the listener.
func (j *Job) rendezvous(env *launch.RankEnv, cfg Config) (listener net.Listener, err error) {
	if env.TicketFile != "" {
		if env.Ticket, err = rendezvous.Ticket(env.TicketFile); err != nil {
			return nil, err
		}
	}
	if rendezvous.IsBackend(env.Rendezvous) {
		open := cfg.OpenBackend
		if open == nil {
			open = openBackend
		}
		if j.place, err = open(env.Rendezvous); err != nil {
			return nil, err
		}
	}
	if env.Rank == 0 && !cfg.ServersOnly && j.place != nil {
		listener, err = j.publish(env, cfg)
	}
	j.ticket = env.Ticket
	return listener, err
}

// publish listens at a free port, and tells the others.
func (j *Job) publish(env *launch.RankEnv, cfg Config) (net.Listener, error) {
	ip, err := cluster.HostAddress(cfg.Network.Interface, env.OneHost)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
	if err != nil {
		return nil, fmt.Errorf("rank 0 listens for the others: %w", err)
	}
	notice := rendezvous.Endpoint{Job: env.Job, Address: listener.Addr().String()}
	if env.Ticket == nil {
		env.Ticket = transport.NewTicket()
		notice.Ticket = env.Ticket.String()
	}
	limited, cancel := context.WithTimeout(j.ctx, cfg.Times.WithDefaults().Join)
	defer cancel()
	if j.withdraw, err = j.place.Publish(limited, notice); err != nil {
		_ = listener.Close() // err says more
		return nil, err
	}
	env.Rendezvous = notice.Address
	return listener, nil
}

// lookup finds what rank 0 has posted: its address, and the ticket, unless this process was given
// one. It is nil where nothing is posted, and for who has posted it.
func (j *Job) lookup(env launch.RankEnv) func() (string, transport.Ticket, error) {
	if j.place == nil || j.withdraw != nil {
		return nil
	}
	return func() (string, transport.Ticket, error) {
		notice, err := j.place.Lookup(j.ctx, env.Job)
		if err != nil {
			return "", nil, err
		}
		if (notice.Ticket == "") != (env.Ticket != nil) {
			return "", nil, fmt.Errorf("%s is of a job whose rank 0 was not given a ticket as this rank was, or the other way around: give it to all (%s), or to none", env.Rendezvous, launch.TicketFileVar)
		}
		if ticket := env.Ticket; ticket != nil {
			return notice.Address, ticket, nil
		}
		ticket, err := transport.ParseTicket(notice.Ticket)
		return notice.Address, ticket, err
	}
}

// enter joins the cluster, which rank 0 hosts unless there is a launcher: at listener, or, where
// that is nil, at the rendezvous.
func (j *Job) enter(env launch.RankEnv, listener net.Listener, cfg Config) (err error) {
	if env.Rank == 0 && !env.Launched {
		if listener == nil {
			if listener, err = cluster.Listen(j.ctx, env.Rendezvous, cfg.Times.Join, cfg.Report); err != nil {
				return err
			}
		}
		j.coordinator, err = cluster.NewCoordinator(cluster.CoordinatorConfig{
			Address: env.Rendezvous, Listener: listener, WorldSize: env.Members(), Servers: env.Servers, Ticket: env.Ticket, TLS: cfg.Network.TLS, Version: Version,
			Times: cfg.Times, Report: cfg.Report,
		})
		if err != nil {
			_ = listener.Close() // err says more
			return err
		}
	}
	j.member, err = cluster.Join(j.ctx, cluster.MemberConfig{
		Rendezvous: env.Rendezvous, Ticket: env.Ticket, TLS: cfg.Network.TLS, Version: Version,
		Rank: env.Rank, WorldSize: env.Members(), Times: cfg.Times,
		Interface: cfg.Network.Interface, Ports: cfg.Network.ports(), Settings: cfg.Settings, Look: j.lookup(env), Report: cfg.Report,
	})
	if _, file := j.place.(rendezvous.File); err == nil && file && j.withdraw != nil {
		j.withdraw() // all ranks are here: a job with the same variables may meet now
	}
	return err
}

// localRank is a member's number among those of its host, by the host of each.
func localRank(hosts []int, rank int) (n int) {
	for _, h := range hosts[:rank] {
		if h == hosts[rank] {
			n++
		}
	}
	return n
}
