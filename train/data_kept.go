package train

import (
	"errors"
	"reflect"
	"sync/atomic"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/transport"
)

// A rank that continues after the loss of another rank starts its next run in the same process,
// with the data set of the run before.

// keptSet is an open data set, with the name and the settings by which it was opened.
type keptSet struct {
	*data.Dataset
	name string
	cfg  data.Config
}

// lastSet is the data set of this process's last run, if the loss of a rank has ended the run.
var lastSet atomic.Pointer[keptSet]

// openOrKept returns the kept data set if it is that of cfg, and opens the set otherwise.
func (d *runData) openOrKept(cfg Config) (*data.Dataset, error) {
	d.openedAs = keptSet{name: cfg.setName(), cfg: cfg.dataOf()}
	own := &d.openedAs.cfg
	own.Previous, own.Resumed, own.Threads = nil, false, 0 // without effect on the samples
	if k := lastSet.Swap(nil); k != nil && k.name == d.openedAs.name && reflect.DeepEqual(k.cfg, *own) {
		return k.Dataset, nil
	} else if k != nil {
		_ = k.Close() // read only
	}
	return openSet(cfg)
}

// keepSet keeps the open data set if err is the loss of a rank.
func (r *run) keepSet(err error) {
	d := r.data
	if r.cfg.Workers == 0 || d.opened == nil || !errors.As(r.job.Err(err), new(*transport.LostError)) {
		return
	}
	d.openedAs.Dataset, d.opened = d.opened, nil
	if k := lastSet.Swap(&d.openedAs); k != nil {
		_ = k.Close() // read only
	}
}
