// Package etcd is a rendezvous backend: rank 0 stores its address under a key of the job, bound to
// a lease. The key disappears at most a quarter of a minute after the end of rank 0's process, and
// no other process can replace it before.
//
// Only the rendezvous needs etcd. Later, rank 0's coordinator decides on membership, over the job's
// own connections: training continues if etcd stops, is cut off or loses all data. Rank 0 stores
// the key again when etcd is back.
//
// The ticket is never stored in etcd: any reader of the key could join the job.
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
	leaseTTL    = 15 // seconds from the last renewal to the removal of the key
	callTimeout = 5 * time.Second
	retryPause  = time.Second
)

// Backend is a key of etcd.
type Backend struct {
	at  address
	ttl int64 // seconds
}

// Open returns the backend of a rendezvous in etcd,
//
//	etcd://HOST:PORT[,HOST:PORT...]/KEY
//	etcds://[USER@]HOST:PORT[,HOST:PORT...]/KEY[?PARAMETER=FILE&...]
//
// with TLS for etcds. Parameters are cacert, cert, key and password-file, with absolute paths; only
// the owner may read the password file. Open does not connect. Use it as ringo.Config.OpenBackend.
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

// client returns a client, and reads certificates and the password again.
func (p *Backend) client() (*clientv3.Client, error) {
	c, err := p.at.config()
	if err != nil {
		return nil, err
	}
	c.DialTimeout, c.Logger = callTimeout, zap.NewNop()
	c.DialKeepAliveTime, c.DialKeepAliveTimeout = callTimeout, callTimeout // replaces an unreachable member of etcd
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

// Lookup implements rendezvous.Backend.
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

// Publish implements rendezvous.Backend. Until ctx ends it waits for the removal of another
// process's key. After Publish has returned, errors are not reported: the key is stored again after
// a loss, until withdraw.
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
