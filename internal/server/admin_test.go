package server

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/transport"
)

// told collects what a server reports.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (l *told) report(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// about are the lines with a word, without what differs from run to run.
func (l *told) about(word string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, word) {
			out = append(out, regexp.MustCompile(`127\.0\.0\.1:\d+|[\d.]+ [KMi]*B in [^ ]+|\d+ bytes in [^ ]+`).ReplaceAllString(line, "N"))
		}
	}
	return out
}

// A page that reaches the server by a name of its own (DNS rebinding) can neither read nor delete rows; who has the token
// can, and each order is a line. The token is in a file that only its owner reads, while the server runs.
func TestOrdersNeedAToken(t *testing.T) {
	leakcheck.Check(t)
	ticket, dir := transport.NewTicket(), t.TempDir()
	var lines told
	r := run(t, ticket, func(c *Config) {
		c.Durability, c.Dir, c.DeleteAfter, c.Report = engine.WAL, dir, 1, lines.report
	})
	c := r.dial(t, ticket)
	if err := c.Session(0).SetDense(0, make([]float32, 5)); err != nil {
		t.Fatal(err)
	}
	push(t, c, 1)
	page := func(method, path, host string) int {
		req, err := http.NewRequest(method, r.admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Origin", "http://"+host)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	for _, path := range []string{"/shrink?days=1000", "/save", "/stats", "/health"} {
		if status := page("POST", path, "evil.example:8090"); status != http.StatusForbidden {
			t.Errorf("POST %s by a page: status %d", path, status)
		}
		if status := page("GET", path, "evil.example:8090"); status != http.StatusForbidden {
			t.Errorf("GET %s by a page: status %d", path, status)
		}
	}
	if status := page("POST", "/shrink?days=1000", strings.TrimPrefix(r.admin, "http://")); status != http.StatusUnauthorized {
		t.Errorf("without a token: status %d", status)
	}
	path := filepath.Join(dir, "server-0", "http-orders")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the token's file: %v, %v", info, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "Authorization: Bearer "+r.token+"\n" || len(r.token) != 32 {
		t.Errorf("it says %q, %v", b, err)
	}
	if status, out := r.ask(t, "POST", "/shrink?days=2147483648"); status != http.StatusBadRequest {
		t.Errorf("%d %v", status, out)
	}
	if got := row(t, c, 1); got[0] != -1 {
		t.Errorf("row 7 is %v after orders that were refused", got)
	}
	for _, path := range []string{"/shrink?days=1000", "/save?delta=true"} {
		if status, out := r.ask(t, "POST", path); status != 200 {
			t.Errorf("%s: %d %v", path, status, out)
		}
	}
	if err := errors.Join(c.Leave(context.Background()), <-r.end); err != nil {
		t.Error(err)
	}
	want := []string{
		"server 0 takes orders: curl -X POST -H @" + path + " http://N/save",
		`server 0: POST /shrink from N refused: the request is for the host "evil.example:8090": ask for localhost or a loopback address`,
		"server 0: POST /shrink from N refused: a request needs the token that the server printed at its start, in a header: Authorization: Bearer TOKEN",
		`server 0: POST /shrink from N refused: days="2147483648": want a number from 1 to 36500`,
		"server 0: POST /shrink?days=1000 from N: days passed: 1000, rows deleted: 1",
		"server 0: POST /save?delta=true from N: checkpoint 3 is written, N",
	}
	if got := slices.Concat(lines.about("orders:"), lines.about("POST /")); !slices.Equal(got, want) {
		t.Errorf("lines:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the token's file is left: %v", err)
	}
}

// Servers of one job have one token, whatever happens to them; one that was given is not told.
func TestToken(t *testing.T) {
	leakcheck.Check(t)
	ticket := transport.NewTicket()
	a, b := Config{Ticket: ticket, Index: 1}, Config{Ticket: transport.NewTicket()}
	if a.token() != (Config{Ticket: ticket}).token() || a.token() == b.token() {
		t.Errorf("tokens %s, %s", a.token(), b.token())
	}
	for _, given := range []string{"", "given by a person"} {
		var lines told
		r := run(t, ticket, func(c *Config) { c.AdminToken, c.Report = given, lines.report })
		if r.token = given; given == "" {
			r.token = a.token()
			eventually(t, "the token", func() bool {
				return slices.Equal(lines.about("curl"), []string{"server 0 takes orders: curl -X POST -H 'Authorization: Bearer " + a.token() + "' http://N/save"})
			})
		}
		if status, out := r.ask(t, "POST", "/save"); status != http.StatusConflict {
			t.Errorf("%d %v", status, out)
		}
		r.stop()
		<-r.end
		if given != "" && len(lines.about("curl")) > 0 {
			t.Errorf("it tells %q", lines.about("curl"))
		}
	}
}
