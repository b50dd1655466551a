package train

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/setting"
)

// verifyData leaves the same bad images out on all ranks. Without train only those to evaluate on
// are checked. It is a collective call where the ranks have a mesh and share one set.
func (d *runData) verifyData(train bool) error {
	if d.cfg.SkipBad > 0 {
		d.prepares("decoding all images once, because of data.max-bad-records")
	}
	if d.job.ServersOnly() || d.cfg.Partition == PartitionFixed {
		return d.set.Verify(train, 0, 1, nil)
	}
	return d.set.Verify(train, d.job.Rank(), d.job.Size(), d.peers.gather)
}

// setLeft is what one rank's set leaves out. Ranks with the same Set count once; nil sets all
// count.
type setLeft struct {
	Set  []byte
	Left []data.LeftOut
}

// gatherLeft adds up what all ranks leave out, in the order of ranks. It is a collective call.
func gatherLeft(p communicator, set []byte, left []data.LeftOut) (sum []data.LeftOut, err error) {
	own, err := json.Marshal(setLeft{set, left})
	if err != nil {
		return nil, err
	}
	all, err := p.gather(own)
	if err != nil {
		return nil, fmt.Errorf("adding up what is left out: %w", err)
	}
	counted := map[string]bool{}
	for rank, text := range all {
		var s setLeft
		if text == nil { // it is lost
			continue
		}
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("what rank %d leaves out: %w", rank, err)
		}
		if s.Set != nil && counted[string(s.Set)] {
			continue
		}
		counted[string(s.Set)] = true
		sum = addLeft(sum, s.Left)
	}
	return sum, nil
}

// fewBad reports bad samples of all ranks that are more than data.max-bad-records allows.
func fewBad(left []data.LeftOut, most int) error {
	for _, l := range left {
		if l.Kind == data.BadSample && l.Count > most {
			return setting.Errorf("data.max-bad-records", "%d: all ranks' training and evaluation files together have more: %v", most, l)
		}
	}
	return nil
}

// addLeft adds the kinds of another list.
func addLeft(sum, other []data.LeftOut) []data.LeftOut {
	sum = slices.Clone(sum)
	for _, o := range other {
		i := slices.IndexFunc(sum, func(s data.LeftOut) bool { return s.Kind == o.Kind })
		if i < 0 {
			sum = append(sum, o)
			continue
		}
		sum[i].Count += o.Count
		sum[i].Names = slices.Concat(sum[i].Names, o.Names)[:max(len(sum[i].Names), len(o.Names))] // both have the first few
	}
	return sum
}
