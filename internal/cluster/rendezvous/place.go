package rendezvous

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// Backend is where rank 0 posts its notice and the others look for it. Its methods may be called by
// several goroutines.
type Backend interface {
	// Publish puts a notice there; it appears whole. One of an earlier job gives way as soon as its
	// process does not listen at its address, or is known to be gone. withdraw removes the notice,
	// unless another has taken its place.
	Publish(ctx context.Context, n Endpoint) (withdraw func(), err error)
	// Lookup returns rank 0's notice, once it is there and of the job, "" for any. Whether rank 0
	// is still there, who connects finds out. Most errors may be gone with the next look.
	Lookup(ctx context.Context, job string) (Endpoint, error)
}

// Schemes of a rendezvous in etcd: in the clear, and under TLS.
const (
	Etcd    = "etcd://"
	EtcdTLS = "etcds://"
)

// IsBackend reports whether a rendezvous names a place and not the HOST:PORT of rank 0.
func IsBackend(rendezvous string) bool {
	return filepath.IsAbs(rendezvous) || strings.HasPrefix(rendezvous, Etcd) || strings.HasPrefix(rendezvous, EtcdTLS)
}

// IsPrivate reports whether a rendezvous is a place of which nobody but the job's owner reads what is posted, so that the ticket
// may be: a file.
func IsPrivate(rendezvous string) bool { return filepath.IsAbs(rendezvous) }

// Open returns the place that a rendezvous names, a File. Etcd's client has a module of its own, since it weighs as much as a third of
// ringo: its Open is for etcd.
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

// version is that of a notice's form.
const version = 1

// Endpoint is what rank 0 tells the others.
type Endpoint struct {
	Version int `json:"version"`
	// Job is the name of this start of the job; "": it has none.
	Job string `json:"job,omitempty"`
	// Address is where rank 0 listens, HOST:PORT.
	Address string `json:"address"`
	// Ticket is the job's, in hexadecimal digits, where rank 0 has made it; "": the others were given it.
	Ticket string `json:"ticket,omitempty"`
}

// Encode is the notice as it is posted.
func (n Endpoint) Encode() []byte {
	n.Version = version
	text, _ := json.Marshal(n) // of strings and a number: it never fails
	return text
}

// Decode is the notice that was found where, if it is one of the job, "" for any.
func Decode(text []byte, where, job string) (n Endpoint, err error) {
	if err := json.Unmarshal(text, &n); err != nil {
		return n, fmt.Errorf("%s is no notice of rank 0: %w", where, err)
	}
	if _, _, err := net.SplitHostPort(n.Address); err != nil || n.Version != version {
		return n, fmt.Errorf("%s is no notice of rank 0 of this version of ringo, %d: version %d, address %q", where, version, n.Version, n.Address)
	}
	if job != "" && n.Job != job {
		return n, fmt.Errorf("what %s says is of another job, %q, not %q", where, n.Job, job)
	}
	return n, nil
}
