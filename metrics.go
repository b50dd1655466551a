package ringo

import (
	"time"

	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Metrics are what this rank counts for who watches the job; nil where nobody does, which counts
// nothing. What the job itself knows is counted without further ado, steps are the program's to
// tell: Metrics.Step. See Config.Metrics.
func (j *Job) Metrics() *metrics.RankMetrics { return j.figures }

// startMetrics begins this rank's figures.
func (j *Job) startMetrics(board *metrics.Dir) (err error) {
	if board == nil {
		return nil
	}
	if j.serves() {
		return j.countAggregation(board)
	}
	if j.figures, err = board.Rank(j.rank, j.size); err != nil {
		return err
	}
	j.uncount = j.figures.Follow(metrics.Source{
		Sent:          func() int64 { return j.Traffic().WireSent },
		Carried:       j.carried,
		Queued:        j.queued,
		Waiting:       func() (int, bool) { w, ok := j.waiting(time.Hour); return w.Peer, ok },
		LastHeartbeat: j.lastHeartbeat,
	})
	return nil
}

// countAggregation begins the figures of a server that sums.
func (j *Job) countAggregation(board *metrics.Dir) (err error) {
	if j.figures, err = board.Aggregator(j.rank-j.size, j.size); err != nil {
		return err
	}
	j.uncount = j.figures.Follow(metrics.Source{
		Waiting: func() (int, bool) { w, ok := j.waiting(time.Hour); return w.Peer, ok },
		Summed:  func() metrics.AggregatorStats { return metrics.AggregatorStats(j.server.Stats()) },
	})
	return nil
}

// carried is how many bytes shared memory has carried.
func (j *Job) carried() int64 {
	if w := j.SharedMemory(); w != nil {
		return w.BytesCarried.Load()
	}
	return 0
}

// queued is how many operations of all ranks have begun and not ended.
func (j *Job) queued() (n int) {
	for _, e := range j.recorder.Open(nil) {
		if e.Kind == record.Operation {
			n++
		}
	}
	return n
}

// lastHeartbeat is when the coordinator was last heard of.
func (j *Job) lastHeartbeat() (at time.Time) {
	if j.member != nil {
		at = j.member.LastHeartbeat()
	}
	return at
}
