package ringo

import (
	"time"

	"github.com/ringo-ml/ringo/metrics"
)

// Figures are what this rank counts for who watches the job; nil where nobody does, which counts nothing. What the job itself knows is
// counted without further ado, steps are the program's to tell: Figures.Step. See Config.Metrics.
func (j *Job) Figures() *metrics.Figures { return j.figures }

// count begins this rank's figures.
func (j *Job) count(board *metrics.Board) (err error) {
	if board == nil || j.serves() {
		return nil
	}
	if j.figures, err = board.Rank(j.rank, j.size); err != nil {
		return err
	}
	j.uncount = j.figures.Follow(metrics.Source{
		Sent:    func() int64 { return j.Traffic().WireSent },
		Waiting: func() (int, bool) { w, ok := j.waiting(time.Hour); return w.Peer, ok },
		Heard:   j.heard,
	})
	return nil
}

// heard is when the coordinator was last heard of.
func (j *Job) heard() (at time.Time) {
	if j.member != nil {
		at = j.member.Heard()
	}
	return at
}
