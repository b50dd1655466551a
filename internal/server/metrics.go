package server

import (
	"strconv"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/usage"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/metrics/scrape"
)

func (s *server) samples() []scrape.Sample {
	out := sampler{server: strconv.Itoa(s.cfg.Index)}
	h := s.service.Health()
	up, connected := 0, 0
	if h.State == "up" || h.State == "waiting" {
		up = 1
	}
	for _, t := range h.Trainers {
		if t.Connected > 0 {
			connected++
		}
	}
	out.add(metrics.ServerUp, up)
	out.add(metrics.ServerTrainers, connected)
	n := s.service.Stats()
	for id, v := range map[metrics.ID]int64{
		metrics.ServerConnections: n.Connections, metrics.ServerPulls: n.Pulls, metrics.ServerWaitingPulls: n.Parked, metrics.ServerChanges: n.Changes,
		metrics.ServerPulledRows: n.RowsPulled, metrics.ServerPushedRows: n.RowsPushed, metrics.ServerReceived: n.BytesRead, metrics.ServerSent: n.BytesWritten,
	} {
		out.add(id, int(v))
	}
	r := usage.Read()
	out.add(metrics.ServerResident, int(r.ResidentBytes))
	out.float(metrics.ServerCPUTime, r.CPUSeconds)
	if e := s.opened(); e != nil {
		out.engine(e.Stats())
	}
	return out.all
}

type sampler struct {
	server string
	all    []scrape.Sample
}

func (o *sampler) add(id metrics.ID, v int, labels ...string) { o.float(id, float64(v), labels...) }

func (o *sampler) float(id metrics.ID, v float64, labels ...string) {
	o.all = append(o.all, scrape.Sample{Value: metrics.Value{ID: id, Value: v}, Labels: append([]string{o.server}, labels...)})
}

// engine adds the metrics of the tables.
func (o *sampler) engine(s engine.Stats) {
	o.float(metrics.ServerStaleness, float64(s.Highest-min(s.Highest, s.Slowest)))
	o.float(metrics.ServerStep, float64(s.Slowest))
	o.float(metrics.ServerCheckpoint, float64(s.Saved))
	if s.Log != nil {
		o.float(metrics.ServerLog, float64(s.LogPast))
		o.float(metrics.ServerLogLimit, float64(s.LogMost))
		o.float(metrics.ServerLogQueue, float64(s.Log.Last-min(s.Log.Last, s.Log.Safe)))
	}
	for _, t := range s.Tables {
		for _, tier := range []struct {
			name             string
			rows, bytes, hit int64
		}{{"memory", t.Rows, t.Bytes, t.Pulled + t.Pushed - t.Missed}, {"ssd", t.StoredRows, t.StoredBytes, t.Found}} {
			o.float(metrics.ServerRows, float64(tier.rows), t.Name, tier.name)
			o.float(metrics.ServerBytes, float64(tier.bytes), t.Name, tier.name)
			o.float(metrics.ServerHits, float64(tier.hit), t.Name, tier.name)
		}
		for id, v := range map[metrics.ID]int64{
			metrics.ServerKeys: t.Pulled + t.Pushed, metrics.ServerDenied: t.Denied, metrics.ServerEvicted: t.Evicted, metrics.ServerPrefetched: t.Prefetched, metrics.ServerDeleted: t.Deleted,
		} {
			o.float(id, float64(v), t.Name)
		}
	}
}
