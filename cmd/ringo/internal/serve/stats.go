package serve

import (
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/metrics/scrape"
)

// stats are the counters of a server.
type stats struct {
	mu       sync.Mutex
	counts   map[metrics.ID]float64
	labelled map[metrics.ID][]float64 // counts by the label's value
	buckets  []uint64                 // requests by duration, see metrics.Bounds
	seconds  float64                  // sum of the durations
}

func newStats() *stats {
	s := &stats{counts: map[metrics.ID]float64{}, labelled: map[metrics.ID][]float64{}, buckets: make([]uint64, len(metrics.Bounds)+1)}
	for _, id := range metrics.OfRole(metrics.OfServing) {
		if values := id.Row().Values; values != nil {
			s.labelled[id] = make([]float64, len(values))
		}
	}
	return s
}

// add adds to a metric without a label.
func (s *stats) add(id metrics.ID, x float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[id] += x
}

// count adds 1 for a value of the label, and ignores values that are not in the metric's row.
func (s *stats) count(id metrics.ID, label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(id.Row().Values, label); i >= 0 {
		s.labelled[id][i]++
	}
}

// forward counts a forward pass.
func (s *stats) forward(rows int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := s.labelled[metrics.ServeBatches]
	by[min(bits.Len(uint(rows-1)), len(by)-1)]++
	s.counts[metrics.ServeRows] += float64(rows)
	s.counts[metrics.ServeForward] += took.Seconds()
}

// request counts a request with the status of its response.
func (s *stats) request(status int, took time.Duration) {
	s.count(metrics.ServeRequests, strconv.Itoa(status))
	at, _ := slices.BinarySearch(metrics.Bounds, took.Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[at]++
	s.seconds += took.Seconds()
}

// samples returns all metrics, with gauges of the moment.
func (s *stats) samples(gauges map[metrics.ID]float64) (out []scrape.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range metrics.OfRole(metrics.OfServing) {
		values := id.Row().Values
		switch x, gauge := gauges[id]; {
		case id == metrics.ServeDuration:
			v := metrics.Value{ID: id, Value: s.seconds, Buckets: map[float64]uint64{}}
			for i, n := range s.buckets {
				if v.Count += n; i < len(metrics.Bounds) {
					v.Buckets[metrics.Bounds[i]] = v.Count
				}
			}
			out = append(out, scrape.Sample{Value: v})
		case gauge:
			out = append(out, scrape.Sample{Value: metrics.Value{ID: id, Value: x}})
		case values == nil:
			out = append(out, scrape.Sample{Value: metrics.Value{ID: id, Value: s.counts[id]}})
		}
		for i, label := range values {
			out = append(out, scrape.Sample{Value: metrics.Value{ID: id, Label: label, Value: s.labelled[id][i]}, Labels: []string{label}})
		}
	}
	return out
}
