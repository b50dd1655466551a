// Package scrape serves the metrics of a job (package metrics) to Prometheus, by its client.
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

// Path is the path of the metrics.
const Path = "/metrics"

// Sample is a value of a metric with its label values, in the order of the row's Labels.
type Sample struct {
	metrics.Value
	Labels []string
}

// Handler returns a handler that serves the result of collect, for the rows of the given roles.
func Handler(collect func() []Sample, roles ...metrics.Role) http.Handler {
	c := &collector{collect: collect, descs: map[metrics.ID]*prometheus.Desc{}}
	for _, role := range roles {
		for _, id := range metrics.OfRole(role) {
			r := id.Row()
			c.descs[id] = prometheus.NewDesc(r.Name, r.Help, r.Labels(), nil)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c) // a test checks the table
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: log.New(io.Discard, "", 0), MaxRequestsInFlight: mostAtOnce})
}

// mostAtOnce limits concurrent requests.
const mostAtOnce = 8

type collector struct {
	collect func() []Sample
	descs   map[metrics.ID]*prometheus.Desc
}

// Describe sends the descriptions of all metrics.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect sends the current values.
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

// Config configures an Answerer.
type Config struct {
	// Site gets the route of the metrics, and must not listen yet.
	Site    *httpguard.Site
	Board   *metrics.Dir
	Version string
	// Answers, if set, is called when this process begins to answer.
	Answers func()

	every time.Duration // interval of checking for another answering process; 0: takeOver
}

// Answerer serves the metrics of a host's ranks.
type Answerer struct {
	cfg     Config
	cancel  context.CancelFunc
	ended   chan struct{}
	release func() error
	first   bool
}

// takeOver is the default interval of checking for another answering process.
const takeOver = time.Second

// Start makes the site listen, immediately or after the end of another process of the job that
// answers. An error names an unavailable address.
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

// claim claims the right to answer, and the address.
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

// wait returns true when this process answers, and false when ctx has ended. An address still held
// by an ending process is not an error.
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

// First reports whether this process has answered from the start.
func (a *Answerer) First() bool { return a.first }

// Close ends the collection of metrics and waits for its end.
func (a *Answerer) Close() {
	a.cancel()
	<-a.ended
}

func (a *Answerer) collect() (out []Sample) {
	out = append(out, Sample{metrics.Value{ID: metrics.Build, Value: 1}, []string{a.cfg.Version}})
	for i, r := range a.cfg.Board.Read() {
		rank, alive := fmt.Sprint(r.Rank), metrics.Up
		if r.Role == metrics.OfAggregator {
			alive = metrics.AggregatorUp
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
