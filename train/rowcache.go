package train

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/trainer"
)

// RowCache is what came of a rank's cache of rows, those of all of its threads together. Rates are of the rows that batches named, each
// once a batch: which share of them did not travel.
type RowCache struct {
	TrainHitRate float64 `json:"train_hit_rate"` // 0 in bsp, where the rank's own push makes each row that it has out of date
	EvalHitRate  float64 `json:"eval_hit_rate"`
	SavedBytes   int64   `json:"saved_bytes"` // keys and rows that did not travel
}

// String tells what did not travel.
func (c RowCache) String() string {
	return fmt.Sprintf("its cache had %s of rows in training and %s in evaluations, %s did not travel", quantity.Percent(c.TrainHitRate), quantity.Percent(c.EvalHitRate), quantity.Traffic(float64(c.SavedBytes)))
}

// cacheUse is what came of the replica's cache since it was last asked.
func (p *serverParams) cacheUse() trainer.CacheUse {
	was := p.reportedCacheUse
	t, e := p.trainer.CacheUse()
	p.reportedCacheUse = t.Plus(e)
	return trainer.CacheUse{Lookups: p.reportedCacheUse.Lookups - was.Lookups, Hits: p.reportedCacheUse.Hits - was.Hits, Saved: p.reportedCacheUse.Saved - was.Saved}
}

// rowCache returns the use of the rank's cache in all its replicas.
func (s *servers) rowCache() *RowCache {
	var train, eval trainer.CacheUse
	for _, p := range s.replicas {
		t, e := p.trainer.CacheUse()
		train, eval = train.Plus(t), eval.Plus(e)
	}
	rate := func(u trainer.CacheUse) float64 { return float64(u.Hits) / float64(max(1, u.Lookups)) }
	return &RowCache{rate(train), rate(eval), train.Saved + eval.Saved}
}
