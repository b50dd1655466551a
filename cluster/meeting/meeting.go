// Package meeting is how processes find rank 0 of their job where nothing says its address: rank 0 listens at a free port and
// posts a notice in a file that all of them see, beside each other on one host or on a folder that hosts share. The notice has
// the job's ticket, too, where nobody has given the job one; so it is its owner's alone, and one that others may read or
// write is refused.
//
// An earlier job may have left a notice: it has another job's name, or nobody listens at its address; so who cannot connect looks
// again.
package meeting

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/folder"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/transport"
)

const (
	version   = 1
	maxNotice = 4 << 10 // bytes of a file that is read
	maxTicket = 4 << 10
)

// Notice is what rank 0 tells the others.
type Notice struct {
	Version int `json:"version"`
	// Job is the name of this start of the job; "": it has none.
	Job string `json:"job,omitempty"`
	// Address is where rank 0 listens, HOST:PORT.
	Address string `json:"address"`
	// Ticket is the job's, in hexadecimal digits, where rank 0 has made it; "": the others were given it.
	Ticket string `json:"ticket,omitempty"`
}

// Post writes a notice, in place of one of an earlier job. It appears whole. withdraw removes it, unless another has taken its
// place.
func Post(path string, n Notice) (withdraw func(), err error) {
	n.Version = version
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	f, err := folder.CreateSecret(path)
	if err != nil {
		return nil, fmt.Errorf("meeting: rank 0 cannot tell the others where it listens: %w", err)
	}
	temp := f.Name()
	err = errors.Join(write(f, text), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, fmt.Errorf("meeting: rank 0 cannot tell the others where it listens: %w", errors.Join(err, os.Remove(temp)))
	}
	return func() {
		if now, err := read(path); err == nil && now == n {
			_ = os.Remove(path)
		}
	}, nil
}

func write(w io.Writer, text []byte) error {
	_, err := w.Write(text)
	return err
}

// Look returns rank 0's notice, once it is there and of the job, "" for any. Whether it is still there, who connects finds out. An error that
// is no *UnsafeError may be gone with the next look.
func Look(path, job string) (Notice, error) {
	n, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return n, fmt.Errorf("rank 0 has not said in %s where it listens: there is no such file", path)
	case err != nil:
		return n, err
	case job != "" && n.Job != job:
		return n, fmt.Errorf("what %s says is of another job, %q, not %q", path, n.Job, job)
	}
	return n, nil
}

func read(path string) (n Notice, err error) {
	text, err := private(path, maxNotice, false)
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(text, &n); err != nil {
		return n, fmt.Errorf("%s is no notice of rank 0: %w", path, err)
	}
	if _, _, err := net.SplitHostPort(n.Address); err != nil || n.Version != version {
		return n, fmt.Errorf("%s is no notice of rank 0 of this version of ringo, %d: version %d, address %q", path, version, n.Version, n.Address)
	}
	return n, nil
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

// NewTicket writes a new ticket to a file that does not exist yet.
func NewTicket(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("ticket: %w", err)
	}
	_, err = fmt.Fprintln(f, transport.NewTicket())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
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
