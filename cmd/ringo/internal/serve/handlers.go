package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/serving/batcher"
	"github.com/ringo-ml/ringo/internal/serving/sample"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/predict"
	"github.com/ringo-ml/ringo/ps/client"
)

// statusError is an error with the status of its response.
type statusError struct {
	status int
	error
}

// ServersError is an error of parameter servers that this server reads rows from.
type ServersError struct{ Err error }

// Error returns the cause.
func (e ServersError) Error() string { return e.Err.Error() }

// statusLeft is the status, in metrics, of a request after its client has disconnected.
const statusLeft = 499

// errEnding is the answer of a server that ends.
var errEnding = statusError{http.StatusServiceUnavailable, errors.New("the server is ending: ask another one")}

// only rejects other methods.
func only(method string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && !(method == http.MethodGet && r.Method == http.MethodHead) {
			w.Header().Set("Allow", method)
			fail(w, http.StatusMethodNotAllowed, fmt.Errorf("%s: want %s", httpguard.Quote(r.Method), method))
			return
		}
		next(w, r)
	}
}

// fail writes an error as JSON.
func fail(w http.ResponseWriter, status int, err error) {
	text, _ := json.Marshal(map[string]string{"error": err.Error()}) // strings never fail
	write(w, status, text)
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	write(w, http.StatusOK, text)
}

// write writes a response in whole, so that its connection may be closed afterwards.
func write(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client has left
	_ = http.NewResponseController(w).Flush()
}

// timed runs a handler of predictions within the limits, and counts its result.
func (s *Server) timed(do func(m *served, r *http.Request, body []byte) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		s.active.Add(1)
		defer s.active.Add(-1)
		text, err := s.limited(w, r, do)
		status := http.StatusOK
		if e := (statusError{}); errors.As(err, &e) {
			status = e.status
		} else if err != nil {
			status = http.StatusInternalServerError
		}
		s.stats.request(status, time.Since(start))
		switch {
		case err == nil:
			write(w, status, text)
		case status == statusLeft:
		default:
			if status == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "1")
			}
			if status == http.StatusRequestEntityTooLarge || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout {
				w.Header().Set("Connection", "close") // a part of the body may be unread
			}
			fail(w, status, err)
		}
	}
}

// reject counts a rejection, and returns its error.
func (s *Server) reject(reason string, status int, format string, args ...any) error {
	s.stats.count(metrics.ServeRejections, reason)
	return statusError{status, fmt.Errorf(format, args...)}
}

// limited reads the body, and runs do with the model in use.
func (s *Server) limited(w http.ResponseWriter, r *http.Request, do func(*served, *http.Request, []byte) ([]byte, error)) ([]byte, error) {
	switch {
	case s.ending.Load():
		return nil, errEnding
	case s.active.Load() > int64(s.cfg.Requests):
		return nil, s.reject("requests", http.StatusTooManyRequests, "%d requests at a time: try again later", s.cfg.Requests)
	}
	if kind := r.Header.Get("Content-Type"); kind != "" {
		if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
			return nil, statusError{http.StatusUnsupportedMediaType, fmt.Errorf("content type %s: want application/json, as `curl --json` sends", httpguard.Quote(kind))}
		}
	}
	body, err := s.read(w, r)
	defer s.bodies.Add(-int64(len(body)))
	if err != nil {
		return nil, err
	}
	defer httpguard.Hold(r)()
	m, ok := s.use()
	if !ok {
		return nil, errEnding
	}
	defer m.release()
	return do(m, r, body)
}

// read reads the body. A byte counts towards the limit of all bodies only once it has arrived, so
// that slow clients use little of the limit. The caller subtracts the bytes of the result.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	if r.ContentLength > s.cfg.Body {
		return nil, s.reject("body", http.StatusRequestEntityTooLarge, "a body of %d bytes: at most %d: send fewer rows", r.ContentLength, s.cfg.Body)
	}
	in := http.MaxBytesReader(w, r.Body, s.cfg.Body)
	const piece = 16 << 10
	for {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, max(2*len(body), min(piece, int(r.ContentLength)+1), 512)), body...)
		}
		n, err := in.Read(body[len(body):min(cap(body), len(body)+piece)])
		body = body[:len(body)+n]
		if s.bodies.Add(int64(n)) > s.cfg.Memory {
			return body, s.reject("memory", http.StatusTooManyRequests, "bodies of %d bytes at a time: try again later", s.cfg.Memory)
		}
		large := (*http.MaxBytesError)(nil)
		switch {
		case err == nil:
			continue
		case err == io.EOF && len(body) == 0:
			return body, statusError{http.StatusBadRequest, errors.New("no body: want JSON")}
		case err == io.EOF:
			return body, nil
		case errors.As(err, &large):
			return body, s.reject("body", http.StatusRequestEntityTooLarge, "a body of more than %d bytes: send fewer rows", s.cfg.Body)
		case isTimeout(err):
			return body, s.reject("deadline", http.StatusRequestTimeout, "the body did not arrive in time, %d bytes of it", len(body))
		}
		return body, statusError{statusLeft, err}
	}
}

// compute runs the rows of a request through the model.
func (s *Server) compute(ctx context.Context, m *served, rows *sample.Rows, err error) ([]float32, error) {
	if count := (*sample.CountError)(nil); errors.As(err, &count) {
		return nil, s.reject("rows", http.StatusRequestEntityTooLarge, "%w", err)
	} else if err != nil {
		return nil, statusError{http.StatusBadRequest, err}
	}
	s.stats.add(metrics.ServeUnknownWords, float64(rows.UnknownWords))
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	r := &request{rows: rows}
	err = m.queue.Do(ctx, r, rows.N)
	full := (*batcher.FullError)(nil)
	switch {
	case err == nil:
		return r.outputs, nil
	case errors.As(err, &full):
		return nil, s.reject("queue", http.StatusTooManyRequests, "%w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, s.reject("deadline", http.StatusGatewayTimeout, "no prediction within %v: try again later", s.cfg.Timeout)
	case errors.Is(err, context.Canceled):
		return nil, statusError{statusLeft, err}
	case errors.Is(err, batcher.ErrClosed):
		return nil, errEnding
	case errors.As(err, new(*client.Error)) || errors.As(err, new(ServersError)):
		return nil, statusError{http.StatusServiceUnavailable, err}
	}
	return nil, err
}

// lines returns the predictions as JSON objects, a line each, as `ringo predict` writes them.
func (m *served) lines(rows *sample.Rows, outputs []float32, top int) ([]byte, error) {
	f, err := predict.NewFormatter(m.predictor, predict.Config{Top: top})
	if err != nil {
		return nil, statusError{http.StatusBadRequest, err}
	}
	named := data.Rows{Batch: rows.Batch}
	for i := range rows.N {
		named.Numbers = append(named.Numbers, int64(i))
	}
	text, err := f.Append(nil, &named, outputs)
	return bytes.TrimSuffix(text, []byte("\n")), err
}

// predict answers JSON rows.
func (s *Server) predict(m *served, r *http.Request, body []byte) ([]byte, error) {
	top, err := topOf(r)
	if err != nil {
		return nil, err
	}
	if _, err := predict.NewFormatter(m.predictor, predict.Config{Top: top}); err != nil {
		return nil, statusError{http.StatusBadRequest, err}
	}
	rows, err := m.codec.JSON(body, s.cfg.Rows)
	outputs, err := s.compute(r.Context(), m, rows, err)
	if err != nil {
		return nil, err
	}
	lines, err := m.lines(rows, outputs, top)
	if err != nil {
		return nil, err
	}
	about, err := json.Marshal(struct {
		Model   string   `json:"model"`
		Version string   `json:"version"`
		Words   int      `json:"unknown_words,omitempty"`
		Unknown []string `json:"unknown,omitempty"`
	}{s.cfg.Name, m.version, rows.UnknownWords, rows.Unknown})
	if err != nil {
		return nil, err
	}
	text := append(about[:len(about)-1], `,"predictions":[`...)
	text = append(text, bytes.ReplaceAll(lines, []byte("\n"), []byte(","))...)
	return append(text, "]}"...), nil
}

// topOf returns the number of classes that a request asks for, by top in the address.
func topOf(r *http.Request) (int, error) {
	for name := range r.URL.Query() {
		if name != "top" {
			return 0, statusError{http.StatusBadRequest, fmt.Errorf("parameter %s of the address is unknown: want top", httpguard.Quote(name))}
		}
	}
	text := r.URL.Query().Get("top")
	if text == "" {
		return 0, nil
	}
	top, err := strconv.Atoi(text)
	if err != nil || top < 1 {
		return 0, statusError{http.StatusBadRequest, fmt.Errorf("top %s: want a number of classes from 1 on", httpguard.Quote(text))}
	}
	return top, nil
}

// page answers with the form.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(page)
}

// mostWords limits the known values of a category in the description.
const mostWords = 1000

// describe answers with the inputs and outputs of the model, for the page.
func (s *Server) describe(w http.ResponseWriter, _ *http.Request) {
	m := s.current.Load()
	d := m.predictor.Description()
	about := struct {
		Model   string         `json:"model"`
		Version string         `json:"version"`
		File    string         `json:"checkpoint"`
		Data    string         `json:"data"`
		Target  string         `json:"target,omitempty"`
		Classes []string       `json:"classes,omitempty"`
		Inputs  []sample.Field `json:"inputs"`
		Rows    int            `json:"max_rows"`
	}{s.cfg.Name, m.version, m.file, d.Name, goal(d).Name, m.classes(), nil, s.cfg.Rows}
	for _, f := range m.codec.Fields() {
		f.Words = f.Words[:min(len(f.Words), mostWords)]
		about.Inputs = append(about.Inputs, f)
	}
	answer(w, about)
}
