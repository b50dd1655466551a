package data

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

// File is a file to fetch. Usually it lies gzipped on the mirror and in the
// folder as Name.gz, known by what it holds when decompressed (mirrors
// compress differently). A Plain file has its own name and is known as it is.
type File struct {
	Name   string // without .gz, unless Plain
	Size   int64  // bytes, decompressed unless Plain; with Check: at most
	SHA256 string // of the same bytes, in hexadecimal; empty with Check
	Plain  bool
	// Check judges the content where no checksum is published. Its error says
	// what is wrong.
	Check func(content io.Reader) error
}

// stored is the file's name on the mirror and in the folder.
func (file File) stored() string {
	if file.Plain {
		return file.Name
	}
	return file.Name + ".gz"
}

// ErrOffline is in the error of a fetch that reached no mirror at all.
var ErrOffline = errors.New("no mirror can be reached: this machine seems to be offline")

var (
	errStalled   = errors.New("the transfer stalled")
	errUnusable  = errors.New("not the expected content")
	errNoOffset  = errors.New("the server cannot resume from here")
	errHTTPReply = errors.New("unexpected reply")
)

// Fetcher downloads files into a folder, resuming what an earlier attempt left
// in NAME.part and verifying the content before it gets its name. Published
// gives one for each set.
type Fetcher struct {
	Dir     string   // where the files go; made if missing
	Files   []File   // in this order
	Mirrors []string // folders over HTTP(S), tried in order

	// Client makes the requests; nil: one with timeouts for connecting and for
	// the reply's header. It must not set a Timeout shorter than a transfer.
	Client *http.Client
	// Stall is how long a transfer may go without a byte before the next
	// mirror is tried; 0: 30 s.
	Stall time.Duration
	// Progress, if set, is told how many of a file's bytes are there, of how
	// many (-1: unknown), from the goroutine that called Fetch. For a file that
	// is already there it is called once, with done == total.
	Progress func(file string, done, total int64)
}

// Validate reports all faults together.
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

// complete returns a copy with the zero values replaced by what they stand for.
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

// Fetch brings every file into the folder, one after the other. A file that is
// there with the right content, gzipped or plain, is kept; one with another
// content is set aside as NAME.damaged. It stops at the first file that no
// mirror delivers; what had come of it stays for the next call. The error
// names every mirror's reason; ErrOffline is in it when none could be reached.
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

// keep looks for a good copy of the file. A bad one is set aside, or it would
// be read instead of the one to come.
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

// fetch tries the mirrors in turn, unless an earlier call ended between the
// last byte and the file's name.
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
			return fmt.Errorf("interrupted (%w); what has come is kept, call again to go on", context.Cause(ctx))
		}
		var local *localError
		if errors.As(err, &local) {
			return local.err // another mirror would not help
		}
		offline = offline && unreachable(err)
		errs = append(errs, err)
	}
	if offline {
		errs = append([]error{ErrOffline}, errs...)
	}
	return fmt.Errorf("%w; %w", list(errs), byHand(f.Dir, f.Files))
}

// list joins errors on one line.
func list(errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	return all
}

func byHand(dir string, files []File) error {
	what, names := "file", files[0].stored()
	for i, file := range files[1:] {
		between := ", "
		if i+2 == len(files) {
			between = " and "
		}
		what, names = "files", names+between+file.stored()
	}
	return setting.Errorf("", "copy the %s into %s by hand (%s), or train without with %v %s", what, dir, names, datafile.DirPath, datafile.Synthetic)
}

// unreachable says whether no server answered at all.
func unreachable(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	return errors.As(err, &dns) || errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}
