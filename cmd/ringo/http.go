package main

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/metrics/scrape"
)

// metricsServer is the job's address on this host, and the memory in which its ranks count. The
// zero value is none.
//
// It belongs to the launcher, which outlives its ranks: the metrics of a rank that has died remain
// as long as the job lasts, and an address that is taken is an error before any rank starts. Ranks
// that are started otherwise find each other by the job's ticket. The first one answers, and
// another one takes over when that has ended.
type metricsServer struct {
	board *metrics.Dir
	by    *scrape.Answerer
	token string // of the address, for parameter servers
}

// answer serves the dashboard of the hub, metrics and profiles at --http, if that is set.
func (f *jobFlags) answer(cmd *cobra.Command, h *dashboard.Collector) (a metricsServer, err error) {
	at := f.Output.HTTP
	if at == "" {
		return a, nil
	}
	fault := func(err error) (metricsServer, error) {
		return metricsServer{}, setting.Errorf("output.http", "%s: %w", at, err)
	}
	tell := func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }
	token, shown, err := tokenOf()
	if err != nil {
		return a, err
	}
	site, err := httpguard.NewSite(at, token, tell)
	if err != nil {
		return fault(err)
	}
	secret := secret()
	if f.ByHand() {
		secret = f.ofTicket()
	}
	metrics.Sweep()
	if a.board, err = metrics.Open(metrics.PathOf(secret)); err != nil {
		return fault(err)
	}
	a.token = token
	h.Serve(site)
	a.by, err = scrape.Start(scrape.Config{Site: site, Board: a.board, Version: ringo.Version, Answers: func() { tell(placeOf(at, shown, site)) }})
	if err != nil {
		a.board.Leave()
		return fault(err)
	}
	if !a.by.First() {
		tell(fmt.Sprintf("another process of this job answers on this host; this one answers at %s when that has ended", at))
	}
	return a, nil
}

// tokenOf returns the token of this process's address, and what to print instead of a token that
// the user has chosen.
func tokenOf() (token, shown string, err error) {
	if token, err = launch.AdminTokenFromEnv(os.LookupEnv); token != "" || err != nil {
		return token, "$" + launch.AdminTokenVar, err
	}
	return rand.Text(), "", nil
}

// placeOf describes the addresses of a site that listens at what was given.
func placeOf(given, shown string, site *httpguard.Site) string {
	host, _, _ := net.SplitHostPort(given)
	text := "dashboard: " + site.URL(shown) + ", metrics: http://" + site.At() + scrape.Path
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		text += ", and at this host's other addresses"
	}
	if site.Exposed() {
		text += " (other hosts can reach them; all but /metrics and /healthz needs the token)"
	}
	return text
}

// path is the folder of the metrics, for ranks.
func (a metricsServer) path() string {
	if a.board == nil {
		return ""
	}
	return a.board.Path()
}

// end answers no more.
func (a metricsServer) end() {
	if a.board != nil {
		a.by.Close()
		a.board.Leave()
	}
}

// secret is one that only this process knows.
func secret() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return b
}

// ofTicket is what ranks have in common that other launchers or people start: the ticket, or the
// file in which rank 0 says where it listens. What is wrong with them, joining the job will say.
func (f *jobFlags) ofTicket() []byte {
	if ticket, err := f.ticket(); err == nil {
		return ticket
	}
	if rendezvous.IsBackend(f.Rendezvous) {
		sum := sha256.Sum256([]byte(f.Rendezvous))
		return sum[:]
	}
	return secret()
}
