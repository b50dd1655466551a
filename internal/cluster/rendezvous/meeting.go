// Package rendezvous is how processes find rank 0 of their job where nothing says its address: rank
// 0 listens at a free port and posts a notice at a place that all of them see. That is a file,
// beside each other on one host or on a folder that hosts share, or a key of etcd (module
// cluster/rendezvous/etcd). The notice in a file has the job's ticket, too, where nobody has given
// the job one; so it is its owner's alone, and one that others may read or write is refused.
//
// An earlier job may have left a notice: it has another job's name, or nobody listens at its address; so who cannot connect looks
// again.
package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/transport"
)

// The most bytes of files that are read.
const (
	maxNotice = 4 << 10
	maxTicket = 4 << 10
)

// File is a Backend: a file by its absolute path, in a folder that all processes see.
type File string

// Publish is the method of Backend. It waits while another rank 0 listens at the address of an
// earlier notice: two jobs that are started together with the same variables meet one after the
// other.
func (f File) Publish(ctx context.Context, n Endpoint) (withdraw func(), err error) {
	path := string(f)
	text := n.Encode()
	file, err := dirlock.CreateSecret(path)
	if err != nil {
		return nil, fmt.Errorf("meeting: rank 0 cannot tell the others where it listens: %w", err)
	}
	temp := file.Name()
	err = errors.Join(write(file, text), file.Close())
	if err == nil {
		err = f.publish(ctx, temp)
	}
	if err != nil {
		return nil, fmt.Errorf("meeting: rank 0 cannot tell the others where it listens: %w", errors.Join(err, os.Remove(temp)))
	}
	return func() {
		if now, err := private(path, maxNotice, false); err == nil && bytes.Equal(now, text) {
			_ = os.Remove(path)
		}
	}, nil
}

// publish gives a written notice its name, once no other rank 0 listens at the address of the notice that has the name.
func (f File) publish(ctx context.Context, temp string) error {
	path := string(f)
	for {
		err := os.Link(temp, path)
		if err == nil {
			return os.Remove(temp)
		}
		if !errors.Is(err, fs.ErrExist) { // a file system without links
			return os.Rename(temp, path)
		}
		earlier, _ := private(path, maxNotice, false) // unreadable: it gives way
		other, err := Decode(earlier, path, "")
		if err != nil || !listens(other.Address) {
			if now, _ := private(path, maxNotice, false); bytes.Equal(now, earlier) {
				_ = os.Remove(path) // else another rank 0 has just posted: the next look finds it
			}
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("rank 0 of another job with the same variables still waits for its ranks at %s, as %s says: give one of the jobs another port (MASTER_PORT) or file (--rendezvous)", other.Address, path)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// listens reports whether a process accepts connections at an address IP:PORT.
func listens(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	if net.ParseIP(host) == nil {
		return false
	}
	c, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func write(w io.Writer, text []byte) error {
	_, err := w.Write(text)
	return err
}

// Lookup is the method of Backend. An *UnsafeError stays with the next look.
func (f File) Lookup(_ context.Context, job string) (n Endpoint, err error) {
	text, err := private(string(f), maxNotice, false)
	if errors.Is(err, fs.ErrNotExist) {
		return n, fmt.Errorf("rank 0 has not said in %s where it listens: there is no such file", string(f))
	}
	if err != nil {
		return n, err
	}
	return Decode(text, string(f), job)
}

// Ticket reads a job's ticket from a file that its owner alone may read, such as `ringo ticket FILE` makes. A file of root's,
// such as a Secret's of Kubernetes, may be its group's, too. No error shows what the file holds.
func Ticket(path string) (transport.Ticket, error) {
	text, err := private(path, maxTicket, true)
	if err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	ticket, err := transport.ParseTicket(string(text))
	if err != nil {
		return nil, fmt.Errorf("ticket: %s: %w", path, err)
	}
	return ticket, nil
}

// Secret reads another secret, such as a password, from a file that its owner alone may read, likewise. Space around it is no part
// of it.
func Secret(path string) (string, error) {
	text, err := private(path, maxTicket, true)
	return strings.TrimSpace(string(text)), err
}

// NewTicket writes a new ticket to a file that does not exist yet.
func NewTicket(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("ticket: %w", err)
	}
	_, err = fmt.Fprintln(f, transport.NewTicket())
	if err = errors.Join(err, dirlock.SyncFile(f), f.Close()); err != nil {
		return fmt.Errorf("ticket: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}

// UnsafeError says that a file which holds a secret is not its owner's alone.
type UnsafeError struct {
	Path string
	Why  string // "others may read it (mode -rw-r--r--)"
}

// Error says what is wrong and what to do.
func (e *UnsafeError) Error() string {
	return fmt.Sprintf("%s holds a secret, and %s: chmod 600 it, or, of a Secret's mount, defaultMode: 0400", e.Path, e.Why)
}

// private reads a file that belongs to this user, or where that is allowed to root, and that nobody else may read or write.
func private(path string, most int64, roots bool) ([]byte, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if why := exposed(info, roots); why != "" {
		return nil, &UnsafeError{Path: path, Why: why}
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, err
}

// Private is a file of that name for notices among the processes of this host and user, in a folder that nobody else can write.
func Private(name string) (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("ringo-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if why := exposed(info, false); why != "" || !info.IsDir() {
		if why == "" {
			why = "it is no folder"
		}
		return "", fmt.Errorf("%s is where processes of this user meet, and %s: remove it, or name another file: --rendezvous FILE", dir, why)
	}
	return filepath.Join(dir, name), nil
}
