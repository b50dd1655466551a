package main

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cluster/meeting"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/metrics/scrape"
	"github.com/ringo-ml/ringo/internal/web"
)

// answered is who answers Prometheus for the ranks of this host. The zero value is nobody.
//
// It is the launcher: it outlives its ranks, so that the figures of one that has died are told as long as the job lasts, and it knows
// before it starts any whether the address is to be had. Ranks that are started otherwise find each other by the
// job's ticket, and the first one answers; when it has ended, another one takes over.
type answered struct {
	board *metrics.Board
	by    *scrape.Answerer
}

// answer makes this process answer, where that is wanted. Processes of one job that have the same secret share what they answer with.
func (g *given) answer(cmd *cobra.Command, secret []byte) (a answered, err error) {
	at := g.Output.Metrics
	if at == "" {
		return a, nil
	}
	metrics.Sweep()
	if a.board, err = metrics.Open(metrics.PathOf(secret)); err != nil {
		return a, setting.Faultf("output.metrics", "%s: %w", at, err)
	}
	tell := func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }
	a.by, err = scrape.Start(scrape.Config{Address: at, Board: a.board, Version: ringo.Version, Report: tell})
	if err != nil {
		a.board.Leave()
		return answered{}, setting.Faultf("output.metrics", "%s: %w", at, err)
	}
	if where := a.by.Address(); where != nil {
		tell("metrics are at " + placeOf(at, where))
	}
	return a, nil
}

// placeOf says where one may ask of what was given, HOST:PORT, and listens at where. Of all addresses of this host it names one that works.
func placeOf(given string, where net.Addr) string {
	host, _, _ := net.SplitHostPort(given)
	text := "http://" + web.Reach(host, where) + scrape.Path
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		text += ", and at this host's other addresses"
	}
	return text
}

// path is the folder of the figures, for ranks.
func (a answered) path() string {
	if a.board == nil {
		return ""
	}
	return a.board.Path()
}

// end answers no more.
func (a answered) end() {
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

// ofTicket is what ranks have in common that other launchers or people start: the ticket, or the file in which rank 0 says where it
// listens. What is wrong with them, joining the job will say.
func (f *jobFlags) ofTicket() []byte {
	if ticket, err := f.ticket(); err == nil {
		return ticket
	}
	if meeting.IsPlace(f.Rendezvous) {
		sum := sha256.Sum256([]byte(f.Rendezvous))
		return sum[:]
	}
	return secret()
}
