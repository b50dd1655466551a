package rendezvous

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// Backend is the store for rank 0's notice. The methods are safe for concurrent use.
type Backend interface {
	// Publish stores a notice atomically. It replaces an earlier notice if its process no longer
	// listens or has ended, and otherwise waits or fails. withdraw removes the notice, unless
	// another has replaced it.
	Publish(ctx context.Context, n Endpoint) (withdraw func(), err error)
	// Lookup returns rank 0's notice for the job, or for any job if job is "". Lookup does not
	// check that rank 0 is alive. Most errors are temporary.
	Lookup(ctx context.Context, job string) (Endpoint, error)
}

// Schemes of a rendezvous in etcd: unencrypted, and with TLS.
const (
	Etcd    = "etcd://"
	EtcdTLS = "etcds://"
)

// IsBackend reports whether a rendezvous names a Backend instead of rank 0's HOST:PORT.
func IsBackend(rendezvous string) bool {
	return filepath.IsAbs(rendezvous) || strings.HasPrefix(rendezvous, Etcd) || strings.HasPrefix(rendezvous, EtcdTLS)
}

// IsPrivate reports whether only the job's owner can read the rendezvous: a file.
func IsPrivate(rendezvous string) bool { return filepath.IsAbs(rendezvous) }

// Open returns the Backend of a rendezvous, a File. The etcd client is in a separate module,
// because of its size, a third of ringo's: use Open of that module for etcd.
func Open(rendezvous string) (Backend, error) {
	switch {
	case filepath.IsAbs(rendezvous):
		return File(rendezvous), nil
	case IsBackend(rendezvous):
		where, _, _ := strings.Cut(rendezvous, "?")
		return nil, fmt.Errorf("meeting: %s: this program was built without etcd's client: docs/cluster.md says how to build ringo with it", where)
	}
	return nil, fmt.Errorf("meeting: %q: want the absolute path of a file, or %sHOST:PORT/KEY", rendezvous, Etcd)
}

const version = 1

// Endpoint is the notice of rank 0.
type Endpoint struct {
	Version int `json:"version"`
	// Job is the unique name of this start of the job, or "".
	Job string `json:"job,omitempty"`
	// Address is rank 0's listen address, HOST:PORT.
	Address string `json:"address"`
	// Ticket is the job's ticket in hexadecimal digits, if rank 0 generated the ticket, or "".
	Ticket string `json:"ticket,omitempty"`
}

// Encode returns the encoded notice.
func (n Endpoint) Encode() []byte {
	n.Version = version
	text, _ := json.Marshal(n) // strings and a number always encode
	return text
}

// Decode decodes the notice found at where, and checks that it belongs to job; "" matches any job.
func Decode(text []byte, where, job string) (n Endpoint, err error) {
	if err := json.Unmarshal(text, &n); err != nil {
		return n, fmt.Errorf("%s is no notice of rank 0: %w", where, err)
	}
	if _, _, err := net.SplitHostPort(n.Address); err != nil || n.Version != version {
		return n, fmt.Errorf("%s is no notice of rank 0 of this version of ringo, %d: version %d, address %q", where, version, n.Version, n.Address)
	}
	if job != "" && n.Job != job {
		return n, fmt.Errorf("%s has the address of another job, %q, not %q", where, n.Job, job)
	}
	return n, nil
}
