package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/progressive"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
)

// Progressive has metrics of a click model over the latest training samples. Each sample was scored
// by the forward pass of its step, before the update. See package internal/progressive.
type Progressive struct {
	// Samples is Config.AUCWindow, or fewer if the run has not had so many since it began or
	// resumed.
	Samples int64 `json:"progressive_samples"`
	// AUC is unknown if all samples have the same label. AUCError is the largest error that sorting
	// scores into bins can cause.
	AUC         OptionalFloat `json:"progressive_auc,omitzero"`
	AUCError    float64       `json:"progressive_auc_error,omitempty"`
	LogLoss     float64       `json:"progressive_logloss"`
	Calibration float64       `json:"progressive_calibration"`
}

// progressiveBy lists the metrics for Config.Best in addition to the evaluation's.
var progressiveBy = []string{"progressive_auc", "progressive_logloss"}

func (p *Progressive) by(name string) (v float64, known bool) {
	switch {
	case p == nil:
		return 0, false
	case name == "progressive_auc":
		return p.AUC.Value, p.AUC.Known
	}
	return p.LogLoss, name == "progressive_logloss"
}

// usualAUCWindow is the default number of samples of all ranks, at which the standard error of the
// AUC is below 0.001.
const usualAUCWindow = 1_000_000

// maxAUCWindow limits the window's memory, 8 bytes a sample.
const maxAUCWindow = 50_000_000

// shownPerWindow is the number of merges of the ranks' windows per window of samples. Merges are
// more frequent while the window fills, but at least minBetween steps lie between two, so that
// their cost is negligible.
const (
	shownPerWindow = 10
	minBetween     = 20
)

// lastScores has the latest scores of this rank, and the metrics of the last merge with other
// ranks.
type lastScores struct {
	score  func(p model.Pass, sample int) float32
	window *progressive.Window
	merged progressive.Counts
	bytes  []byte
	last   *Progressive // nil before the first merge
	// steps counts this rank's steps in this process; since counts those after the last merge.
	steps, since int
}

// aucWindow names Config.AUCWindow, which has no setting.
const aucWindow setting.Path = "AUCWindow"

// aucWindow returns the number of samples of all ranks.
func (c Config) aucWindow() int { return cmp.Or(c.AUCWindow, usualAUCWindow) }

// beginScores makes the window of a model with scores; other models reject Config.AUCWindow.
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

// add adds the scores of a pass, before the update of its step.
func (s *lastScores) add(p model.Pass) {
	if s != nil {
		for i, label := range p.Batch.Labels {
			s.window.Add(s.score(p, i), label == 1)
		}
	}
}

// latest returns the last metrics, which the caller must not change.
func (s *lastScores) latest() *Progressive {
	if s == nil {
		return nil
	}
	return s.last
}

func (s *lastScores) store(c *progressive.Counts) {
	f := c.Figures()
	if f.Samples == 0 {
		return
	}
	s.last = &Progressive{
		Samples: f.Samples, AUC: OptionalFloat{f.AUC, f.Ranked}, AUCError: f.AUCError, LogLoss: f.LogLoss, Calibration: f.Calibration,
	}
}

// meetScores merges the windows of all ranks. All ranks call it.
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
			continue // lost
		}
		if err := s.merged.Merge(theirs); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	s.store(&s.merged)
	return nil
}

// afterScores updates the metrics at intervals. If ranks make the same steps, it merges all ranks'
// windows; otherwise the metrics are this rank's until the merge after the epoch. c.mu is not held.
func (c *threadPool) afterScores() error {
	s := c.reports.scores
	if s == nil {
		return nil
	}
	c.mu.Lock()
	s.steps, s.since = s.steps+1, s.since+1
	due := s.since >= max(minBetween, min(c.cfg.aucWindow()/c.data.samples, s.steps)/shownPerWindow)
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
