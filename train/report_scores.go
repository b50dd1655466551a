package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/progressive"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
)

// Progressive are the figures of the last samples of a click model's training, each scored before it was learnt from: by the forward pass
// of its own step. See package internal/progressive.
type Progressive struct {
	// Samples is how many there are: Config.AUCWindow, fewer at the beginning of a run and after it was resumed.
	Samples int64 `json:"progressive_samples"`
	// AUC is not known where all are of one kind. AUCError is by how much at most it differs from that of an order without bins.
	AUC         OptionalFloat `json:"progressive_auc,omitzero"`
	AUCError    float64       `json:"progressive_auc_error,omitempty"`
	LogLoss     float64       `json:"progressive_logloss"`
	Calibration float64       `json:"progressive_calibration"`
}

// progressiveBy are the metrics by which Config.Best can compare epochs, besides the evaluation's.
var progressiveBy = []string{"progressive_auc", "progressive_logloss"}

// by is the figure of a name of progressiveBy.
func (p *Progressive) by(name string) (v float64, known bool) {
	switch {
	case p == nil:
		return 0, false
	case name == "progressive_auc":
		return p.AUC.Value, p.AUC.Known
	}
	return p.LogLoss, name == "progressive_logloss"
}

// usualAUCWindow is how many samples make the figures, of all ranks: the area's standard error is then below 0.001.
const usualAUCWindow = 1_000_000

// maxAUCWindow bounds the window's memory, of 8 bytes a sample.
const maxAUCWindow = 50_000_000

// shownPerWindow is how often ranks put their windows together while one passes by, and more often while it fills, but never before
// leastBetween steps, so that it costs them nothing to speak of.
const (
	shownPerWindow = 10
	leastBetween   = 20
)

// lastScores are those of this rank, and what all ranks' last came to.
type lastScores struct {
	score  func(p model.Pass, sample int) float32
	window *progressive.Window
	merged progressive.Counts
	bytes  []byte
	last   *Progressive // told; nil: there is nothing yet
	// steps is how many this rank has made in this process, since how many of them after the last telling.
	steps, since int
}

// aucWindow stands for Config.AUCWindow, which is no setting of a job.
const aucWindow setting.Path = "AUCWindow"

// aucWindow is how many samples of all ranks make the figures.
func (c Config) aucWindow() int { return cmp.Or(c.AUCWindow, usualAUCWindow) }

// beginScores makes the window of a model that has scores, and reports a setting of one that has none.
func (r *reports) beginScores() error {
	i := slices.IndexFunc(r.replica.model.Metrics, func(m model.Metric) bool { return m.Score != nil })
	if i < 0 {
		if r.cfg.AUCWindow > 0 {
			return setting.Errorf(aucWindow, "%d has no effect on %s, which predicts no clicks", r.cfg.AUCWindow, r.cfg.name())
		}
		return nil
	}
	r.scores = &lastScores{score: r.replica.model.Metrics[i].Score, window: progressive.New(max(1, r.cfg.aucWindow()/r.job.Size()))}
	return nil
}

// add adds a pass, before anything is learnt from it.
func (s *lastScores) add(p model.Pass) {
	if s != nil {
		for i, label := range p.Batch.Labels {
			s.window.Add(s.score(p, i), label == 1)
		}
	}
}

// latest is the last figures, which the caller does not change.
func (s *lastScores) latest() *Progressive {
	if s == nil {
		return nil
	}
	return s.last
}

// store takes down what counts come to.
func (s *lastScores) store(c *progressive.Counts) {
	f := c.Figures()
	if f.Samples == 0 {
		return
	}
	s.last = &Progressive{
		Samples: f.Samples, AUC: OptionalFloat{f.AUC, f.Ranked}, AUCError: f.AUCError, LogLoss: f.LogLoss, Calibration: f.Calibration,
	}
}

// meetScores puts the windows of all ranks together. It is a collective call.
func (r *reports) meetScores() error {
	s := r.scores
	if s == nil {
		return nil
	}
	s.bytes = s.window.Counts().Append(s.bytes[:0])
	all, err := r.peers.gather(s.bytes)
	if err != nil {
		return fmt.Errorf("putting the ranks' scores together: %w", err)
	}
	s.merged = progressive.Counts{}
	for rank, theirs := range all {
		if theirs == nil {
			continue // it is lost
		}
		if err := s.merged.Merge(theirs); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	s.store(&s.merged)
	return nil
}

// afterScores tells of the scores, now and then: of all ranks' where their steps are the same ones, else of this rank's own, those of all
// being put together after the epoch. c.mu is not held.
func (c *threadPool) afterScores() error {
	s := c.reports.scores
	if s == nil {
		return nil
	}
	c.mu.Lock()
	s.steps, s.since = s.steps+1, s.since+1
	due := s.since >= max(leastBetween, min(c.cfg.aucWindow()/c.data.samples, s.steps)/shownPerWindow)
	if due {
		s.since = 0
		s.store(s.window.Counts())
	}
	c.mu.Unlock()
	if due && c.inStep() {
		return c.reports.meetScores()
	}
	return nil
}
