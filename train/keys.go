package train

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo/nn"
)

// What a run tells of keys: how many different ones it was trained on, and which rows they have.

// distinctKeys is about how many different keys all ranks have trained on, from 0.8 % of it one standard deviation away; 0: the model
// takes none. It is a collective call.
func (r *reports) distinctKeys() (int64, error) {
	if len(r.spec.Slots) == 0 {
		return 0, nil
	}
	own := &r.workers[0].keys
	for _, w := range r.workers[1:] {
		if err := own.Merge(w.keys.Bytes()); err != nil {
			return 0, err
		}
	}
	all, err := r.peers.gather(own.Bytes())
	for _, theirs := range all {
		if err == nil {
			err = own.Merge(theirs)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("counting different keys: %w", err)
	}
	return int64(math.Round(own.Estimate())), nil
}

// keyed is where the rows of keys are, in lines; none where the model takes no keys. Who has a table of so many rows should know that
// keys may share one, and that a run with servers would not need the number.
func (e *runEnv) keyed() []string {
	rows, served := "", e.cfg.Servers.Consistency != ""
	for _, t := range e.replica.Params.Tables() {
		switch {
		case t.Slots == nil:
			continue
		case served:
			return []string{"rows of tables: one for each key, made when it first comes"}
		case rows == "":
			rows = strconv.Itoa(t.Rows)
		case rows != strconv.Itoa(t.Rows):
			rows = "a fixed number"
		}
	}
	if rows == "" {
		return nil
	}
	return []string{fmt.Sprintf("rows of tables: %s, which keys share by a hash (data.table-rows); on servers (sync) each key has its own", rows)}
}

// params is how many parameters there are, without rows of keys on servers: there are as many as keys have come.
func (e *runEnv) params() int {
	n := e.replica.Params.Count()
	if slices.ContainsFunc(e.replica.Params.List(), func(p *nn.Param) bool { return p.Name == standInName }) {
		n--
	}
	for _, t := range e.replica.Params.Tables() {
		if t.Slots != nil && e.cfg.Servers.Consistency != "" {
			n -= t.Rows * t.Dim
		}
	}
	return n
}
