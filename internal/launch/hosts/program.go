package hosts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// Program is this program, as required on other hosts.
type Program struct {
	// Path is the program's path on this host, and on the other hosts unless Copied.
	Path string
	// Hash is the program's checksum, from the function Hash.
	Hash string
	// Command is the program's arguments on the other host.
	Command string
	// Copied reports whether to run a copy in ~/.cache/ringo of the other host, created if missing.
	Copied bool
}

// Hash is the checksum of a file, SHA-256 in hexadecimal digits.
func Hash(path string) (string, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// place returns the shell assignment of the copy's path.
func (p Program) place() string {
	return `f="$HOME/.cache/ringo/ringo-` + p.Hash[:32] + `"; `
}

// StartProgram starts the program on a host, after copying within patience if needed, until ctx
// ends.
func (s SSH) StartProgram(ctx context.Context, host string, p Program, patience time.Duration) (*Session, error) {
	if !p.Copied {
		return s.Start(host, "exec "+Quote(p.Path)+" "+p.Command)
	}
	check, err := s.Start(host, p.place()+fmt.Sprintf(`test -x "$f" || exit %d`, NoCopy))
	if err != nil {
		return nil, err
	}
	late := time.AfterFunc(patience, check.Kill)
	told := context.AfterFunc(ctx, check.Kill)
	status := check.Status()
	_ = check.Close()
	inTime := late.Stop()
	if !told() {
		return nil, context.Cause(ctx)
	}
	switch status {
	case 0:
	case NoCopy:
		if err := s.copy(ctx, host, p, patience); err != nil {
			return nil, err
		}
	default:
		if !inTime {
			return nil, fmt.Errorf("host %s: ssh has not answered in %v: raise job.join-timeout", host, patience)
		}
		return nil, fmt.Errorf("host %s: %s", host, check.Reason())
	}
	return s.Start(host, p.place()+`exec "$f" `+p.Command)
}

// copy copies the program to a host, atomically.
func (s SSH) copy(ctx context.Context, host string, p Program, patience time.Duration) error {
	f, err := pathname.Open(p.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	to, err := s.Start(host, p.place()+installing(info.Size()))
	if err != nil {
		return err
	}
	late := time.AfterFunc(patience, to.Kill)
	told := context.AfterFunc(ctx, to.Kill)
	_, err = io.Copy(to, f)
	_ = to.in.Close()
	status := to.Status()
	_ = to.Close()
	inTime := late.Stop()
	switch {
	case !told():
		err = context.Cause(ctx)
	case status != 0 && !inTime:
		err = fmt.Errorf("it took longer than %v: raise job.join-timeout, or copy it yourself", patience)
	case status != 0:
		err = errors.New(to.Reason())
	}
	if err != nil {
		return fmt.Errorf("host %s: copying this program there: %w", host, err)
	}
	return nil
}

// installing returns the shell command that installs a program of size bytes from standard input. A
// lost connection also ends the input, so a shorter program is discarded.
func installing(size int64) string {
	return `umask 077; mkdir -p "$HOME/.cache/ringo" && cat >"$f.$$" && ` +
		fmt.Sprintf(`test "$(wc -c <"$f.$$")" -eq %d`, size) +
		` && chmod 700 "$f.$$" && mv "$f.$$" "$f" || { rm -f "$f.$$"; echo "the program did not come whole, or there is no room" >&2; exit 1; }`
}
