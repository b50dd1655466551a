// Package rendezvous lets processes find rank 0 of their job without a configured address: rank 0
// listens at a free port and publishes a notice in a Backend visible to all processes. A Backend is
// a file, on one host or in a shared folder, or a key in etcd (module modules/etcd). If
// no ticket is configured, a notice in a file also has the job's ticket. The file is therefore
// private to its owner; readers refuse a file accessible to other users.
//
// An earlier job may have left a notice, with another job's name or an address without a listener.
// A process that cannot connect therefore looks up the notice again.
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

// Maximum sizes of the files read, in bytes.
const (
	maxNotice = 4 << 10
	maxTicket = 4 << 10
)

// File is a Backend: a file with an absolute path, in a folder visible to all processes.
type File string

// Publish implements Backend. Publish waits while another rank 0 listens at the address of an
// earlier notice: two jobs started together with equal variables thus form sequentially.
func (f File) Publish(ctx context.Context, n Endpoint) (withdraw func(), err error) {
	path := string(f)
	text := n.Encode()
	file, err := dirlock.CreateSecret(path)
	if err != nil {
		return nil, fmt.Errorf("rendezvous: rank 0 cannot publish its address: %w", err)
	}
	temp := file.Name()
	err = errors.Join(write(file, text), file.Close())
	if err == nil {
		err = f.publish(ctx, temp)
	}
	if err != nil {
		return nil, fmt.Errorf("rendezvous: rank 0 cannot publish its address: %w", errors.Join(err, os.Remove(temp)))
	}
	return func() {
		if now, err := private(path, maxNotice, false); err == nil && bytes.Equal(now, text) {
			_ = os.Remove(path)
		}
	}, nil
}

// publish renames a written notice, once no rank 0 listens at the existing notice's address.
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
		earlier, _ := private(path, maxNotice, false) // an unreadable notice is replaced
		other, err := Decode(earlier, path, "")
		if err != nil || !listens(other.Address) {
			if now, _ := private(path, maxNotice, false); bytes.Equal(now, earlier) {
				_ = os.Remove(path) // after a failure the next attempt finds the notice of another rank 0
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

// Lookup implements Backend. An *UnsafeError is permanent.
func (f File) Lookup(_ context.Context, job string) (n Endpoint, err error) {
	text, err := private(string(f), maxNotice, false)
	if errors.Is(err, fs.ErrNotExist) {
		return n, fmt.Errorf("rank 0 has not written its address to %s: the file does not exist", string(f))
	}
	if err != nil {
		return n, err
	}
	return Decode(text, string(f), job)
}

// Ticket reads a job's ticket from a file readable only by the owner, such as a file of `ringo
// ticket FILE`. A file of root, such as a Kubernetes Secret, may also be readable by the group. No
// error contains the file's contents.
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

// Secret reads another secret, such as a password, as Ticket does, without surrounding space.
func Secret(path string) (string, error) {
	text, err := private(path, maxTicket, true)
	return strings.TrimSpace(string(text)), err
}

// NewTicket writes a new ticket to a new file.
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

// UnsafeError means that a file with a secret is accessible to other users.
type UnsafeError struct {
	Path string
	Why  string // reason, such as "others may read it (mode -rw-r--r--)"
}

// Error returns the problem and the remedy.
func (e *UnsafeError) Error() string {
	return fmt.Sprintf("%s holds a secret, and %s: chmod 600 it, or, of a Secret's mount, defaultMode: 0400", e.Path, e.Why)
}

// private reads a file that only this user, or with roots also root, owns and can access.
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

// Private returns the path of a file for notices between processes of this host and user, in a
// folder that only the user can write.
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
			why = "it is not a folder"
		}
		return "", fmt.Errorf("%s is the folder for rendezvous files of this user, but %s: remove it, or choose another file: --rendezvous FILE", dir, why)
	}
	return filepath.Join(dir, name), nil
}
