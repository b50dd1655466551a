// Package scrape answers Prometheus, by its own client, with the figures that processes of a job count (package metrics).
package scrape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
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

// Config holds the parameters of an Answerer.
type Config struct {
	// Site gets the route of the metrics. It must not listen yet.
	Site    *httpguard.Site
	Board   *metrics.Dir
	Version string
	// Answers is called if this process answers, when it begins to. It may be nil.
	Answers func()

	every time.Duration // how often a process that does not answer looks whether any other does; 0: takeOver
}

// Answerer answers for the ranks of a host.
type Answerer struct {
	cfg     Config
	cancel  context.CancelFunc
	ended   chan struct{}
	release func() error
	first   bool
}

// takeOver is how often a process that does not answer checks whether another one does.
const takeOver = time.Second

// Start has the site listen, or, while another process of the job answers for the board, when that
// has ended. An error names an address that is not available.
func Start(cfg Config) (*Answerer, error) {
	if cfg.Answers == nil {
		cfg.Answers = func() {}
	}
	a := &Answerer{cfg: cfg, ended: make(chan struct{})}
	cfg.Site.Public("GET "+Path, Handler(a.collect, metrics.OfHost, metrics.OfRank, metrics.OfAggregator))
	var err error
	if a.first, err = a.claim(); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	if a.first {
		cfg.Answers()
	}
	go func() {
		defer close(a.ended)
		if a.first || a.wait(ctx) {
			<-ctx.Done()
			cfg.Site.Close()
			_ = a.release()
		}
	}()
	return a, nil
}

// claim takes the right to answer, and the address.
func (a *Answerer) claim() (ok bool, err error) {
	release, ok, err := a.cfg.Board.Answer()
	if err != nil || !ok {
		return false, err
	}
	if err := a.cfg.Site.Listen(); err != nil {
		return false, errors.Join(err, release())
	}
	a.release = release
	return true, nil
}

// wait returns true when this process answers, false when ctx has ended. An address that a process
// which ends still has is no error then.
func (a *Answerer) wait(ctx context.Context) bool {
	t := time.NewTicker(cmp.Or(a.cfg.every, takeOver))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			if ok, _ := a.claim(); ok {
				a.cfg.Answers()
				return true
			}
		}
	}
}

// First reports whether this process has answered from the beginning.
func (a *Answerer) First() bool { return a.first }

// Close ends the site.
func (a *Answerer) Close() {
	a.cancel()
	<-a.ended
}

// collect reads the board.
func (a *Answerer) collect() (out []Sample) {
	out = append(out, Sample{metrics.Value{ID: metrics.Build, Value: 1}, []string{a.cfg.Version}})
	for i, r := range a.cfg.Board.Read() {
		rank, alive := fmt.Sprint(r.Rank), metrics.Up
		if r.Role == metrics.OfAggregator {
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
