package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

// tries is the number of requests to one mirror after broken transfers.
const tries = 4

// localError is an error of the local disk: other mirrors cannot help.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// fromMirror fetches one file from one address. It resumes a partial file, asks again while bytes
// arrive, and restarts once if the assembled content is wrong (mirrors compress differently).
func (f *Fetcher) fromMirror(ctx context.Context, file File, address string) error {
	part := filepath.Join(f.Dir, file.stored()+".part")
	var err error
	for range tries {
		from := size(part)
		err = f.transfer(ctx, file, address, part, from)
		if err == nil {
			if err = file.verify(part); err == nil {
				return settle(part)
			}
			err = fmt.Errorf("GET %s: %w", address, err)
		}
		var local *localError
		switch {
		case errors.As(err, &local):
			return err
		case errors.Is(err, errUnusable), errors.Is(err, errNoOffset):
			if e := os.Remove(part); e != nil && !errors.Is(e, os.ErrNotExist) {
				return &localError{e}
			}
			if from == 0 {
				return err
			}
		case ctx.Err() != nil || size(part) <= from:
			return err
		}
	}
	return err
}

// settle syncs a verified file to disk and renames the file.
func settle(part string) error {
	file, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return &localError{err}
	}
	err = errors.Join(dirlock.SyncFile(file), file.Close())
	if err == nil {
		err = os.Rename(part, part[:len(part)-len(".part")])
	}
	if err != nil {
		return &localError{err}
	}
	return nil
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// transfer requests the bytes from an offset on and appends them to part. If the server returns the
// whole file, part is rewritten from the start. A silence of f.Stall ends the transfer.
func (f *Fetcher) transfer(ctx context.Context, file File, address, part string, from int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(f.Stall, func() { cancel(fmt.Errorf("%w: no byte for %v", errStalled, f.Stall)) })
	defer watchdog.Stop()

	reply, err := f.request(ctx, address, from)
	if err != nil {
		return cause(ctx, address, err)
	}
	defer reply.Body.Close()
	start, err := offset(reply, from)
	if err != nil {
		return fmt.Errorf("GET %s: %w", address, err)
	}
	out, err := openAt(part, start)
	if err != nil {
		return &localError{err}
	}
	err = f.copy(out, reply, file, start, func() { watchdog.Reset(f.Stall) })
	if e := out.Close(); err == nil && e != nil {
		err = &localError{e}
	}
	if err != nil {
		return cause(ctx, address, err)
	}
	return nil
}

func (f *Fetcher) request(ctx context.Context, address string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity") // the .gz itself, without decompression in transit
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	return f.Client.Do(req)
}

// offset returns the position of the reply's body in the file.
func offset(reply *http.Response, from int64) (int64, error) {
	switch reply.StatusCode {
	case http.StatusOK:
		return 0, nil
	case http.StatusPartialContent:
		var first, last int64
		rangeOf := reply.Header.Get("Content-Range")
		if n, _ := fmt.Sscanf(rangeOf, "bytes %d-%d/", &first, &last); n != 2 || first != from || from == 0 {
			return 0, fmt.Errorf("%w: asked for bytes from %d, got %q", errNoOffset, from, rangeOf)
		}
		return from, nil
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, fmt.Errorf("%w: %s at byte %d", errNoOffset, reply.Status, from)
	}
	return 0, fmt.Errorf("%w: %s", errHTTPReply, reply.Status)
}

// openAt opens part for writing at start and truncates the rest.
func openAt(part string, start int64) (*os.File, error) {
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := out.Truncate(start); err == nil {
		_, err = out.Seek(start, io.SeekStart)
		if err == nil {
			return out, nil
		}
	}
	return nil, errors.Join(err, out.Close())
}

// copy writes the body, at most the largest possible size of the file: an endless reply cannot fill
// the disk.
func (f *Fetcher) copy(out io.Writer, reply *http.Response, file File, done int64, alive func()) error {
	total := int64(-1)
	if reply.ContentLength >= 0 {
		total = done + reply.ContentLength
	}
	most := file.Size + file.Size/1000 + 4096 // plus deflate's overhead for incompressible content
	buf := make([]byte, 64<<10)
	f.Progress(file.stored(), done, total)
	for {
		n, err := reply.Body.Read(buf)
		if n > 0 {
			alive()
			if done += int64(n); done > most {
				return fmt.Errorf("%w: more than %d bytes", errUnusable, most)
			}
			if _, err := out.Write(buf[:n]); err != nil {
				return &localError{err}
			}
			f.Progress(file.stored(), done, total)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("broken off after %d bytes: %w", done, err)
		}
	}
}

// cause adds to err the address and, of an abandoned transfer, the reason.
func cause(ctx context.Context, address string, err error) error {
	var request *url.Error // repeats the address
	if why := context.Cause(ctx); why != nil {
		err = why
	} else if errors.As(err, &request) {
		err = request.Err
	}
	return fmt.Errorf("GET %s: %w", address, err)
}
