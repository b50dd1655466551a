// Package scrape answers Prometheus, by its own client, with the figures that processes of a job count (package metrics).
package scrape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/web"
)

// Path is where metrics are.
const Path = "/metrics"

// Sample is a value of a metric, with what its labels are, in the order of the row's Labels.
type Sample struct {
	metrics.Value
	Labels []string
}

// Handler answers with what collect returns at each request, of the rows of one role and those of the host that are in it.
func Handler(collect func() []Sample, roles ...metrics.Role) http.Handler {
	c := &collector{collect: collect, descs: map[metrics.ID]*prometheus.Desc{}}
	for _, role := range roles {
		for _, id := range metrics.OfRole(role) {
			r := id.Row()
			c.descs[id] = prometheus.NewDesc(r.Name, r.Help, r.Labels(), nil)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c) // of a table that a test has checked
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: log.New(io.Discard, "", 0), MaxRequestsInFlight: mostAtOnce})
}

// mostAtOnce bounds how many readers are answered at the same time.
const mostAtOnce = 8

// collector is what Prometheus's client asks.
type collector struct {
	collect func() []Sample
	descs   map[metrics.ID]*prometheus.Desc
}

// Describe tells of all metrics that there may be.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect tells the values at this moment.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.collect() {
		desc, ok := c.descs[s.ID]
		if !ok {
			continue
		}
		var m prometheus.Metric
		var err error
		switch s.ID.Row().Type {
		case metrics.Histogram:
			m, err = prometheus.NewConstHistogram(desc, s.Count, s.Value.Value, s.Buckets, s.Labels...)
		case metrics.Counter:
			m, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value.Value, s.Labels...)
		default:
			m, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value.Value, s.Labels...)
		}
		if err != nil {
			m = prometheus.NewInvalidMetric(desc, err)
		}
		to <- m
	}
}

// Config says who answers.
type Config struct {
	// Address is the HOST:PORT to listen at. A HOST that is empty or 0.0.0.0 stands for all of this host's addresses.
	Address string
	Board   *metrics.Board
	Version string
	// Report gets a line about what a person should know; nil: nobody does.
	Report func(line string)

	every time.Duration // how often a process that does not answer looks whether anybody does; 0: takeOver
}

// Answerer answers for the ranks of a host.
type Answerer struct {
	cfg     Config
	cancel  context.CancelFunc
	ended   chan struct{}
	release func() error
	listens net.Listener
	addr    net.Addr // where it answers from the beginning
}

// takeOver is how often a process that does not answer looks whether anybody else does.
const takeOver = time.Second

// Start makes this process the one that answers for the board at the address, or, while another one of the job does, the one that
// takes its place when it has ended. An error says that the address is not to be had.
func Start(cfg Config) (*Answerer, error) {
	if cfg.Report == nil {
		cfg.Report = func(string) {}
	}
	a := &Answerer{cfg: cfg, ended: make(chan struct{})}
	answers, err := a.claim()
	if err != nil {
		return nil, err
	}
	if answers {
		a.addr = a.listens.Addr()
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(a.ended)
		if !answers && !a.wait(ctx) {
			return
		}
		a.serve(ctx)
	}()
	return a, nil
}

// claim takes the right to answer, and the address.
func (a *Answerer) claim() (ok bool, err error) {
	release, ok, err := a.cfg.Board.Answer()
	if err != nil || !ok {
		return false, err
	}
	l, err := net.Listen("tcp", a.cfg.Address)
	if err != nil {
		return false, errors.Join(fmt.Errorf("metrics cannot be had at %s: %w", a.cfg.Address, err), release())
	}
	a.release, a.listens = release, l
	return true, nil
}

// wait returns true when this process answers, false when ctx has ended. That an address is taken for a while, by a process that ends,
// is no fault then.
func (a *Answerer) wait(ctx context.Context) bool {
	t := time.NewTicker(cmp.Or(a.cfg.every, takeOver))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			if ok, _ := a.claim(); ok {
				return true
			}
		}
	}
}

// serve answers until ctx ends.
func (a *Answerer) serve(ctx context.Context) {
	server := web.NewServer(a.handler())
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // which ends Serve
	defer stop()
	if err := server.Serve(web.NewCrowd(a.listens, web.MaxConnections)); !errors.Is(err, http.ErrServerClosed) {
		a.cfg.Report(fmt.Sprintf("there are no metrics at %s any more: %v", a.listens.Addr(), err))
	}
	_ = a.release()
}

// handler answers who may ask.
func (a *Answerer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, Handler(a.collect, metrics.OfHost, metrics.OfRank, metrics.OfSummer))
	host, _, _ := net.SplitHostPort(a.cfg.Address)
	_, port, _ := net.SplitHostPort(a.listens.Addr().String())
	return web.NewGuard(net.JoinHostPort(host, port), "").Before(mux, func(*http.Request, string) {})
}

// Address is where this process answers; nil: another one did when this one began.
func (a *Answerer) Address() net.Addr { return a.addr }

// Close answers no more.
func (a *Answerer) Close() {
	a.cancel()
	<-a.ended
}

// collect reads the board.
func (a *Answerer) collect() (out []Sample) {
	out = append(out, Sample{metrics.Value{ID: metrics.Build, Value: 1}, []string{a.cfg.Version}})
	for i, r := range a.cfg.Board.Read() {
		rank, alive := fmt.Sprint(r.Rank), metrics.Up
		if r.Role == metrics.OfSummer {
			alive = metrics.SumUp
		}
		if i == 0 {
			out = append(out, Sample{Value: metrics.Value{ID: metrics.Ranks, Value: float64(r.Size)}})
		}
		up := 0.0
		if r.Alive {
			up = 1
		}
		out = append(out, Sample{metrics.Value{ID: alive, Value: up}, []string{rank}})
		for _, v := range r.Values {
			labels := []string{rank}
			if v.ID.Row().Label != "" {
				labels = append(labels, v.Label)
			}
			out = append(out, Sample{v, labels})
		}
	}
	return out
}
