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

// metricsServer serves the job's metrics on this host, from memory that the ranks write. The zero
// value is no server.
//
// The launcher runs the server, because a launcher outlives its ranks: the metrics of a dead rank
// remain until the job ends, and an address in use is an error before ranks start. Ranks without a
// launcher find each other by the job's ticket. The first rank serves; after its end another rank
// takes over.
type metricsServer struct {
	board *metrics.Dir
	by    *scrape.Answerer
	token string // access token, also for parameter servers
}

// answer serves the dashboard of h, metrics and profiles at --http, if set.
func (f *jobFlags) answer(cmd *cobra.Command, h *dashboard.Collector) (a metricsServer, err error) {
	at := f.Output.HTTP
	if at == "" {
		return a, nil
	}
	fault := func(err error) (metricsServer, error) {
		return metricsServer{}, setting.Errorf("output.http", "%s: %w", at, err)
	}
	tell := tells(cmd)
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

// tokenOf returns the access token, and the text to print instead of a token that the user has
// chosen.
func tokenOf() (token, shown string, err error) {
	if token, err = launch.AdminTokenFromEnv(os.LookupEnv); token != "" || err != nil {
		return token, "$" + launch.AdminTokenVar, err
	}
	return rand.Text(), "", nil
}

// placeOf describes the addresses of a site for the user.
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

func (a metricsServer) path() string {
	if a.board == nil {
		return ""
	}
	return a.board.Path()
}

func (a metricsServer) end() {
	if a.board != nil {
		a.by.Close()
		a.board.Leave()
	}
}

func secret() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return b
}

// ofTicket returns a secret of all ranks without a launcher: the ticket, or a hash of the
// rendezvous backend's address. Joining the job reports errors.
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
