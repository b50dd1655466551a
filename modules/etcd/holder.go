package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
)

// holder keeps a key in etcd during the life of the process.
type holder struct {
	place  *Backend
	client *clientv3.Client
	text   string
	lease  clientv3.LeaseID
	stop   context.CancelFunc
	done   chan struct{}
}

// take stores the key as soon as no other process holds it.
func (h *holder) take(ctx context.Context) error {
	var last error
	for {
		there, err := h.try(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return h.place.fault("rank 0 cannot tell the others where it listens", err)
		case err != nil && last == nil:
			return h.place.fault("rank 0 cannot tell the others where it listens", context.Cause(ctx))
		case err != nil:
			return last
		case there == h.text:
			return nil
		}
		last = h.taken(there)
		if !pause(ctx, retryPause/4) {
			return last
		}
	}
}

// taken returns the error of a key that another rank 0 holds.
func (h *holder) taken(there string) error {
	who := "something else"
	if n, err := rendezvous.Decode([]byte(there), h.place.at.shown, ""); err == nil {
		who = "rank 0 of another job, or of an earlier start of this one, at " + n.Address
	}
	return fmt.Errorf("etcd: %s: the key is held by %s: give each job a key of its own, or wait until that one is gone, %d s after its end", h.place.at.shown, who, h.place.ttl)
}

// try stores the key if it does not exist, and returns the stored value.
func (h *holder) try(ctx context.Context) (there string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	granted, err := h.client.Grant(ctx, h.place.ttl)
	if err != nil {
		return "", err
	}
	key := h.place.at.key
	answer, err := h.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, h.text, clientv3.WithLease(granted.ID))).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return "", err
	}
	if answer.Succeeded {
		h.lease = granted.ID
		return h.text, nil
	}
	h.revoke(granted.ID)
	kvs := answer.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return "", nil // gone in between
	}
	if there = string(kvs[0].Value); there == h.text {
		h.lease = clientv3.LeaseID(kvs[0].Lease) // an earlier request succeeded, but the response was lost
	}
	return there, nil
}

// keep renews the lease, and stores the key again after a loss. Errors affect only processes that
// join later, which report them.
func (h *holder) keep(life context.Context) {
	defer close(h.done)
	for life.Err() == nil {
		if renewed, err := h.client.KeepAlive(life, h.lease); err == nil {
			for range renewed {
			} // until the lease is lost
		}
		for life.Err() == nil {
			if there, err := h.try(life); err == nil && there == h.text {
				break
			}
			pause(life, retryPause)
		}
	}
}

// withdraw removes the key with the lease; another process's key has another lease. It waits a few
// seconds at most.
func (h *holder) withdraw() {
	h.stop()
	<-h.done
	h.revoke(h.lease)
	_ = h.client.Close() // no request is in progress
}

func (h *holder) revoke(lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, _ = h.client.Revoke(ctx, lease) // otherwise the lease expires
}

// pause waits for d and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
