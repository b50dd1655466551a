package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/metrics/scrape"
)

// tokenFile is a file in a server's folder with the HTTP header that authorises requests, for
// curl's -H @FILE.
const tokenFile = "http-orders"

func (c Config) token() string {
	if c.AdminToken != "" {
		return c.AdminToken
	}
	mac := hmac.New(sha256.New, c.Ticket)
	mac.Write([]byte("ringo orders over HTTP"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// address returns the address that a request's Host may have, in addition to loopback addresses.
func (c Config) address() string {
	host, port, err := net.SplitHostPort(c.Admin.Addr().String())
	if err == nil && c.AdminHost != "" {
		host = c.AdminHost
	}
	return net.JoinHostPort(host, port)
}

func (s *server) serveAdmin(ctx context.Context) {
	if s.cfg.Dir == "" {
		s.tellToken("")
	}
	site := httpguard.NewServer(s.service.Handler(s.admin()))
	stop := context.AfterFunc(ctx, func() { _ = site.Close() }) // ends Serve
	defer stop()
	if err := site.Serve(httpguard.NewCrowd(s.cfg.Admin, httpguard.MaxConnections)); !errors.Is(err, http.ErrServerClosed) {
		s.cfg.Report(fmt.Sprintf("server %d: it answers no more at %s: %v", s.cfg.Index, s.cfg.Admin.Addr(), err))
	}
}

func (s *server) tokenPath() string { return filepath.Join(s.cfg.serverDir(), tokenFile) }

// writeToken writes the token to a file in the server's locked folder, and reports the path.
func (s *server) writeToken() {
	path := s.tokenPath()
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = writeOwn(path, fmt.Sprintf("Authorization: Bearer %s\n", s.cfg.token()))
	}
	if err != nil {
		s.cfg.Report(fmt.Sprintf("server %d: the token for orders cannot be kept in a file: %v", s.cfg.Index, err))
		path = ""
	}
	s.tellToken(path)
}

// writeOwn creates a file that only its owner can read, from the start.
func writeOwn(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// tellToken reports a command for POST requests, with the token's file or, without a file, the
// token. A configured token is not reported.
func (s *server) tellToken(path string) {
	if s.cfg.AdminToken != "" {
		return
	}
	header := fmt.Sprintf("'Authorization: Bearer %s'", s.cfg.token())
	if path != "" {
		header = "@" + path
	}
	at := s.cfg.Admin.Addr()
	host, _, _ := net.SplitHostPort(at.String())
	s.cfg.Report(fmt.Sprintf("server %d takes orders: curl -X POST -H %s http://%s/save", s.cfg.Index, header, httpguard.Reach(host, at)))
}

// admin returns the functions and metrics for HTTP.
func (s *server) admin() service.Admin {
	open := func() (*engine.Engine, error) {
		if e := s.opened(); e != nil {
			return e, nil
		}
		return nil, fmt.Errorf("ps: server %d has no tables yet: no trainer has come", s.cfg.Index)
	}
	return service.Admin{
		Metrics: scrape.Handler(s.samples, metrics.OfParameterServer), Address: s.cfg.address(), Token: s.cfg.token(), Report: s.cfg.Report,
		Stats: func() any {
			if e, err := open(); err == nil {
				return e.Stats()
			}
			return nil
		},
		Save: func(ctx context.Context, delta bool) (any, string, error) {
			e, err := open()
			if err != nil {
				return nil, "", err
			}
			saved, err := e.Save(ctx, delta)
			return saved, fmt.Sprintf("checkpoint %d is written, %s in %s", saved.Number, quantity.Bytes(saved.Bytes), quantity.Duration(saved.Took)), err
		},
		Shrink: func(ctx context.Context, days int) (any, string, error) {
			e, err := open()
			if err != nil {
				return nil, "", err
			}
			deleted, err := e.Shrink(ctx, days)
			return struct {
				Deleted int64 `json:"deleted_rows"`
			}{deleted}, fmt.Sprintf("days passed: %d, rows deleted: %d", days, deleted), err
		},
	}
}
