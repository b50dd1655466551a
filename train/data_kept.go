package train

import (
	"errors"
	"reflect"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/snapshot"
	"github.com/ringo-ml/ringo/transport"
)

// A rank that continues after the loss or departure of another rank starts its next run in the same
// process. It uses the data set of the run before, which snapshot.Memory.Kept holds.

// keptSet is an open data set, with the name and the settings by which it was opened.
type keptSet struct {
	*data.Dataset
	name string
	cfg  data.Config
}

// openOrKept returns the kept data set if it is that of cfg, and opens the set otherwise.
func (d *runData) openOrKept(cfg Config) (*data.Dataset, error) {
	d.openedAs = keptSet{name: cfg.setName(), cfg: cfg.dataOf()}
	own := &d.openedAs.cfg
	own.Previous, own.Resumed, own.Threads = nil, false, 0 // without effect on the samples
	m := snapshot.From(d.ctx)
	if m == nil {
		return openSet(cfg)
	}
	k, _ := m.Kept.(*keptSet)
	if m.Kept = nil; k != nil && k.name == d.openedAs.name && reflect.DeepEqual(k.cfg, *own) {
		return k.Dataset, nil
	} else if k != nil {
		_ = k.Close() // read only
	}
	return openSet(cfg)
}

// keepSet keeps the open data set if err is the loss of a rank, or all ranks join again.
func (r *run) keepSet(err error) {
	d, m := r.data, snapshot.From(r.ctx)
	if m == nil || d.opened == nil || !rejoins(err) && !errors.As(r.job.Err(err), new(*transport.LostError)) {
		return
	}
	d.openedAs.Dataset, d.opened = d.opened, nil
	m.Kept = &d.openedAs
}
