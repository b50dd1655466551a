// Package download fetches public data sets from mirrors, and verifies their files.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/setting"
)

// File is a file to fetch. The mirror and the folder store the file gzipped as Name.gz; Size and
// SHA256 describe the decompressed content, because mirrors compress differently. A Plain file is
// stored under its own name, and Size and SHA256 describe the stored file.
type File struct {
	Name   string // without .gz, unless Plain
	Size   int64  // size in bytes, decompressed unless Plain; with Check the maximum
	SHA256 string // checksum of the same bytes, in hexadecimal; empty with Check
	Plain  bool
	// Check validates the content if no checksum is published. The error describes the problem.
	Check func(content io.Reader) error
}

// stored returns the file's name on the mirror and in the folder.
func (file File) stored() string {
	if file.Plain {
		return file.Name
	}
	return file.Name + ".gz"
}

// ErrOffline is wrapped by Fetch's error if no mirror was reachable.
var ErrOffline = errors.New("no mirror can be reached: this machine seems to be offline")

var (
	errStalled   = errors.New("the transfer stalled")
	errUnusable  = errors.New("not the expected content")
	errNoOffset  = errors.New("the server cannot resume from here")
	errHTTPReply = errors.New("unexpected reply")
)

// Fetcher downloads files into a folder. It resumes NAME.part of an earlier attempt and renames a
// file after verification. Published returns a Fetcher for each public set.
type Fetcher struct {
	Dir     string   // destination; created if missing
	Files   []File   // files in download order
	Mirrors []string // folders over HTTP(S), tried in order

	// Client makes the requests. nil: a client with timeouts for connecting and for the reply's
	// header. Client.Timeout must not be shorter than a transfer.
	Client *http.Client
	// Stall is the longest silence of a transfer before the next mirror is tried; 0: 30 s.
	Stall time.Duration
	// Progress, if not nil, receives the bytes of a file and the total (-1: unknown), on the
	// goroutine of Fetch. A complete file causes one call with done == total.
	Progress func(file string, done, total int64)
}

// Validate returns all errors joined.
func (f *Fetcher) Validate() error {
	var errs []error
	if f.Dir == "" {
		errs = append(errs, errors.New("fetch: no folder named to put the files in"))
	}
	if f.Stall < 0 {
		errs = append(errs, fmt.Errorf("fetch: stall timeout %v is negative", f.Stall))
	}
	if len(f.Files) == 0 {
		errs = append(errs, errors.New("fetch: no files named"))
	}
	if len(f.Mirrors) == 0 {
		errs = append(errs, errors.New("fetch: no mirrors named"))
	}
	for _, m := range f.Mirrors {
		u, err := url.Parse(m)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("fetch: mirror %q is not an http(s) address", m))
		}
	}
	for _, file := range f.Files {
		if file.Name == "" || file.Name != filepath.Base(file.Name) || file.Size < 0 || file.Check == nil && len(file.SHA256) != 64 {
			errs = append(errs, fmt.Errorf("fetch: bad description of file %q (%d bytes, sha256 %q)", file.Name, file.Size, file.SHA256))
		}
	}
	return errors.Join(errs...)
}

// complete returns a copy with defaults filled in.
func (f *Fetcher) complete() *Fetcher {
	c := *f
	if c.Stall == 0 {
		c.Stall = 30 * time.Second
	}
	if c.Progress == nil {
		c.Progress = func(string, int64, int64) {}
	}
	if c.Client == nil {
		t := &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: c.Stall,
			ForceAttemptHTTP2:     true,
		}
		c.Client = &http.Client{Transport: t}
	}
	return &c
}

// Fetch downloads the files sequentially. A file with the right content, gzipped or plain, is
// retained; a file with other content is renamed to NAME.damaged. Fetch stops at the first file
// that no mirror delivers and retains the partial file for the next call. The error has the reason
// of each mirror, and wraps ErrOffline if no mirror was reachable.
func (f *Fetcher) Fetch(ctx context.Context) error {
	if err := f.Validate(); err != nil {
		return err
	}
	c := f.complete()
	if f.Client == nil {
		defer c.Client.CloseIdleConnections()
	}
	if err := os.MkdirAll(c.Dir, 0o777); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	for _, file := range c.Files {
		there, err := c.keep(file)
		if err == nil && !there {
			err = c.fetch(ctx, file)
		}
		if err != nil {
			return fmt.Errorf("fetch: %s: %w", file.stored(), err)
		}
	}
	return nil
}

// keep reports whether a good copy exists. A bad copy is renamed, otherwise readers would use the
// bad copy instead of the download.
func (f *Fetcher) keep(file File) (there bool, err error) {
	names := []string{file.Name, file.stored()}
	if file.Plain {
		names = names[:1]
	}
	for _, name := range names {
		path := filepath.Join(f.Dir, name)
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		if err := file.verify(path); err == nil {
			f.Progress(name, info.Size(), info.Size())
			there = true
		} else if !errors.Is(err, errUnusable) {
			return false, err
		} else if err := os.Rename(path, path+".damaged"); err != nil {
			return false, err
		}
	}
	return there, nil
}

// fetch tries the mirrors in order, unless an earlier call ended between the last byte and the
// renaming.
func (f *Fetcher) fetch(ctx context.Context, file File) error {
	part := filepath.Join(f.Dir, file.stored()+".part")
	if n := size(part); n > 0 && file.verify(part) == nil {
		f.Progress(file.stored(), n, n)
		return settle(part)
	}
	var errs []error
	offline := true
	for _, mirror := range f.Mirrors {
		address := strings.TrimSuffix(mirror, "/") + "/" + file.stored()
		err := f.fromMirror(ctx, file, address)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted (%w); the downloaded part is kept: run the command again to continue", context.Cause(ctx))
		}
		var local *localError
		if errors.As(err, &local) {
			return local.err // other mirrors would not help
		}
		offline = offline && unreachable(err)
		errs = append(errs, err)
	}
	if offline {
		errs = append([]error{ErrOffline}, errs...)
	}
	for _, err := range append(errs[1:], byHand(f.Dir, f.Files)) {
		errs[0] = fmt.Errorf("%w; %w", errs[0], err)
	}
	return errs[0]
}

func byHand(dir string, files []File) error {
	what, last := "file", len(files)-1
	var names []string
	for _, file := range files {
		names = append(names, file.stored())
	}
	if last > 0 {
		what, names = "files", []string{strings.Join(names[:last], ", "), names[last]}
	}
	return setting.Errorf("", "copy the %s into %s by hand (%s), or train without with %v %s", what, dir, strings.Join(names, " and "), datafile.DirPath, datafile.Synthetic)
}

// unreachable reports whether no server answered.
func unreachable(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	return errors.As(err, &dns) || errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}
