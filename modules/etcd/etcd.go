// Package etcd has the ranks of a job meet in etcd: rank 0 posts where it listens under a key of the job's own, and holds that key
// by a lease. So a notice goes away by itself within a quarter of a minute of its process, and while rank 0 lives no other
// takes its place.
//
// Only meeting needs etcd. Once ranks have met, rank 0's coordinator decides who is in, over connections of the job's own: etcd may be
// stopped, cut off or lose all it knows, and training goes on; rank 0 posts again when etcd is back.
//
// The ticket is never posted: whoever may read the key would be in.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
)

const (
	leaseTTL    = 15 // seconds after which a notice is gone whose process does not renew it
	callTimeout = 5 * time.Second
	retryPause  = time.Second
)

// Backend is a key of etcd.
type Backend struct {
	at  address
	ttl int64 // seconds
}

// Open returns the place that a rendezvous of etcd names,
//
//	etcd://HOST:PORT[,HOST:PORT...]/KEY
//	etcds://[USER@]HOST:PORT[,HOST:PORT...]/KEY[?cacert=FILE&cert=FILE&key=FILE&password-file=FILE]
//
// the latter under TLS. Files have absolute paths; that of the password is its owner's alone. Nothing is connected yet. It is a
// ringo.Config's OpenBackend.
func Open(rendezvous string) (rendezvous.Backend, error) {
	at, err := parse(rendezvous)
	if err != nil {
		return nil, err
	}
	if _, err := at.config(); err != nil {
		return nil, err
	}
	return &Backend{at: at, ttl: leaseTTL}, nil
}

// client returns a client, which reads certificates and the password anew.
func (p *Backend) client() (*clientv3.Client, error) {
	c, err := p.at.config()
	if err != nil {
		return nil, err
	}
	c.DialTimeout, c.Logger = callTimeout, zap.NewNop()
	c.DialKeepAliveTime, c.DialKeepAliveTimeout = callTimeout, callTimeout // a member that is cut off is left for another
	client, err := clientv3.New(c)
	if err != nil {
		return nil, p.fault("connecting", err)
	}
	return client, nil
}

func (p *Backend) fault(doing string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: is it running, and reachable from here? %w", err)
	}
	return fmt.Errorf("etcd: %s: %s: %w", p.at.shown, doing, err)
}

// Lookup is the method of rendezvous.Backend.
func (p *Backend) Lookup(ctx context.Context, job string) (n rendezvous.Endpoint, err error) {
	client, err := p.client()
	if err != nil {
		return n, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := client.Get(ctx, p.at.key)
	if err != nil {
		return n, p.fault("looking for rank 0", err)
	}
	if len(answer.Kvs) == 0 {
		return n, fmt.Errorf("rank 0 has not said in %s where it listens: there is no such key", p.at.shown)
	}
	return rendezvous.Decode(answer.Kvs[0].Value, p.at.shown, job)
}

// Publish is the method of rendezvous.Backend. It waits, as long as ctx lets it, for a notice whose
// process may still live, and is nobody's who reads no errors: what goes wrong after it has
// returned is tried again, until withdraw.
func (p *Backend) Publish(ctx context.Context, n rendezvous.Endpoint) (withdraw func(), err error) {
	if n.Ticket != "" {
		return nil, fmt.Errorf("etcd: %s: a ticket is not posted where others may read it: give it to all ranks in a file", p.at.shown)
	}
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	h := &holder{place: p, client: client, text: string(n.Encode()), done: make(chan struct{})}
	if err := h.take(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	var life context.Context
	life, h.stop = context.WithCancel(context.Background())
	go h.keep(life)
	return h.withdraw, nil
}
