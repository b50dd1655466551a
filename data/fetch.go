package data

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// File is a file to fetch: gzipped on the mirror and in the folder as
// Name.gz, known by what it holds when decompressed (mirrors compress
// differently).
type File struct {
	Name   string // without .gz
	Size   int64  // bytes, decompressed
	SHA256 string // of the decompressed content, in hexadecimal
}

// MNISTFiles returns the four files of MNIST.
func MNISTFiles() []File {
	return []File{
		{trainImages, 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
		{trainLabels, 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
		{testImages, 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
		{testLabels, 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
	}
}

// MNISTMirrors returns where MNIST can be had, the first choice first.
func MNISTMirrors() []string {
	return []string{
		"https://ossci-datasets.s3.amazonaws.com/mnist/",
		"https://storage.googleapis.com/cvdf-datasets/mnist/",
	}
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
// in NAME.gz.part and verifying the content before it gets its name.
type Fetcher struct {
	Dir     string   // where the files go; made if missing
	Files   []File   // none: MNISTFiles()
	Mirrors []string // folders over HTTP(S), tried in order; none: MNISTMirrors()

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
	for _, m := range f.Mirrors {
		u, err := url.Parse(m)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("fetch: mirror %q is not an http(s) address", m))
		}
	}
	for _, file := range f.Files {
		if file.Name == "" || file.Name != filepath.Base(file.Name) || file.Size < 0 || len(file.SHA256) != 64 {
			errs = append(errs, fmt.Errorf("fetch: bad description of file %q (%d bytes, sha256 %q)", file.Name, file.Size, file.SHA256))
		}
	}
	return errors.Join(errs...)
}

// complete returns a copy with the zero values replaced by what they stand for.
func (f *Fetcher) complete() *Fetcher {
	c := *f
	if len(c.Files) == 0 {
		c.Files = MNISTFiles()
	}
	if len(c.Mirrors) == 0 {
		c.Mirrors = MNISTMirrors()
	}
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
			return fmt.Errorf("fetch: %s.gz: %w", file.Name, err)
		}
	}
	return nil
}

// keep looks for a good copy of the file. A bad one is set aside, or it would
// be read instead of the one to come.
func (f *Fetcher) keep(file File) (there bool, err error) {
	for _, name := range []string{file.Name, file.Name + ".gz"} {
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
	part := filepath.Join(f.Dir, file.Name+".gz.part")
	if n := size(part); n > 0 && file.verify(part) == nil {
		f.Progress(file.Name+".gz", n, n)
		return settle(part)
	}
	var errs []error
	offline := true
	for _, mirror := range f.Mirrors {
		address := strings.TrimSuffix(mirror, "/") + "/" + file.Name + ".gz"
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
	return fmt.Errorf("%w; %s", list(errs), byHand(f.Dir))
}

// list joins errors on one line.
func list(errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	return all
}

func byHand(dir string) string {
	return fmt.Sprintf("copy the files into %s by hand (their names are %s.gz, %s.gz, %s.gz and %s.gz), or train on digits drawn by the program with `--data synthetic`",
		dir, trainImages, trainLabels, testImages, testLabels)
}

// unreachable says whether no server answered at all.
func unreachable(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	return errors.As(err, &dns) || errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}
