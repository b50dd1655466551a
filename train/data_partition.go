package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

const settingPartition setting.Path = "data.partition"

const (
	// PartitionShuffled gives all ranks the same set, shuffled in each epoch before it is divided.
	PartitionShuffled = "shuffled"
	// PartitionFixed gives each rank one part for all epochs, shuffled separately: SINGA's
	// partition by global rank. Ranks may have different files: ranks with equal sets divide the
	// set. All ranks make as many steps as the rank with the fewest.
	PartitionFixed = "fixed"
	// PartitionFiles gives each rank whole files of a stream, so that a rank need not unpack other
	// ranks' files.
	PartitionFiles = "files"
)

// dataPartition is the division of samples among ranks.
type dataPartition struct {
	// ranks lists the ranks with this rank's set, in order; nil means all ranks.
	ranks []int
	// train and eval count the samples of all sets.
	train, eval int
	// steps is the number of batches of an epoch on every rank; 0 means all of this rank's part.
	steps int
	// parts are the ranks' parts of their sets; nil if all ranks share one set.
	parts    []data.SamplerConfig
	notes    []string
	excluded []data.LeftOut // samples excluded from all sets
}

// amongSharers returns those of the given ranks that have this rank's set.
func (s dataPartition) amongSharers(some []int) []int {
	if s.ranks == nil {
		return some
	}
	return slices.DeleteFunc(slices.Clone(some), func(rank int) bool { return !slices.Contains(s.ranks, rank) })
}

func lengthOf(src data.Source) int {
	if src == nil {
		return 0
	}
	return src.Len()
}

type dataSetInfo struct {
	Fingerprint, Meaning [sha256.Size]byte
	Train, Eval          int64
}

// agreeShares determines which ranks have the same set, and how many steps all ranks can make. All
// ranks call it.
func (d *runData) agreeShares() error {
	var own bytes.Buffer
	err := binary.Write(&own, binary.LittleEndian, dataSetInfo{d.fingerprint, d.set.Meaning(), int64(lengthOf(d.set.Train)), int64(d.set.Eval.Len())})
	if err != nil {
		return err
	}
	texts, err := d.peers.gather(own.Bytes())
	if err != nil {
		return fmt.Errorf("comparing the ranks' data sets: %w", err)
	}
	all := make([]dataSetInfo, len(texts))
	for rank, text := range texts {
		if err := binary.Read(bytes.NewReader(text), binary.LittleEndian, &all[rank]); err != nil {
			return fmt.Errorf("rank %d has sent %d bytes about its data set", rank, len(text))
		}
	}
	if d.shares, err = sharesOf(all, d.job.Rank(), d.cfg.Batch); err != nil {
		return err
	}
	if d.shares.excluded, err = gatherLeft(d.peers, d.fingerprint[:], d.set.LeftOut()); err == nil {
		err = fewBad(d.shares.excluded, d.cfg.SkipBad)
	}
	if err != nil {
		return err
	}
	if len(d.shares.ranks) < len(all) { // agreeShares determines which ranks share a set, and the number of steps that all can make. The call is collective.
		h := sha256.New()
		for _, t := range all {
			h.Write(t.Fingerprint[:])
		}
		d.fingerprint = [sha256.Size]byte(h.Sum(nil))
	}
	return nil
}

// sharesOf returns a rank's partition from the descriptions of all sets.
func sharesOf(all []dataSetInfo, rank, batch int) (s dataPartition, err error) {
	groups := map[[sha256.Size]byte][]int{}
	for r, t := range all {
		if t.Meaning != all[0].Meaning {
			return s, fmt.Errorf("samples of rank %d mean something else than those of rank 0 (another number or order of classes, words or columns, or another scale): %w", r,
				setting.Errorf("", "ranks with files of their own under %v %s need the same classes and encoding", settingPartition, PartitionFixed))
		}
		if groups[t.Fingerprint] == nil {
			s.train, s.eval = s.train+int(t.Train), s.eval+int(t.Eval)
		}
		groups[t.Fingerprint] = append(groups[t.Fingerprint], r)
	}
	part := func(r int) int { return int(all[r].Train) / len(groups[all[r].Fingerprint]) }
	least, most := 0, 0
	for r := range all {
		if part(r) < part(least) {
			least = r
		}
		if part(r) > part(most) {
			most = r
		}
	}
	s.ranks, s.parts = groups[all[rank].Fingerprint], make([]data.SamplerConfig, len(all))
	if part(least) < batch {
		return s, fmt.Errorf("rank %d has %s, less than a batch of %d, and all ranks make as many steps as the rank with the fewest: give the rank more samples, or use a smaller batch", least, quantity.Count(part(least), "training sample"), batch)
	}
	for _, ranks := range groups {
		c := data.SamplerConfig{N: int(all[ranks[0]].Train), Batch: batch, Size: len(ranks), Fixed: true}
		partsOf(c, ranks, s.parts)
	}
	for _, p := range s.parts {
		n := p.N / p.Size / batch
		if p.Samples(n) > 0 {
			n++
		}
		if s.steps == 0 || n < s.steps {
			s.steps = n
		}
	}
	if len(groups) == 1 {
		return s, nil
	}
	s.notes = []string{fmt.Sprintf("ranks have %d sets of their own, with %d to %d samples for a rank; an epoch has as many batches as the smallest part, that of rank %d, has: %d",
		len(groups), part(least), part(most), least, s.steps)}
	if part(most) >= 2*(part(least)+batch) {
		s.notes = append(s.notes, fmt.Sprintf("rank %d sees at most %d of its %d samples in an epoch", most, min(s.steps*batch, part(most)), part(most)))
	}
	return s, nil
}

// verifyData makes all ranks skip the same bad images; without train it checks evaluation images
// only. All ranks call it if they have connections and one set.
func (d *runData) verifyData(train bool) error {
	if d.cfg.SkipBad > 0 {
		d.prepares("decoding all images once, because of data.max-bad-records")
	}
	if d.job.ServersOnly() || d.cfg.Partition == PartitionFixed {
		return d.set.Verify(train, 0, 1, nil)
	}
	return d.set.Verify(train, d.job.Rank(), d.job.Size(), d.peers.gather)
}

// eachSet gathers a value of each rank's set, as JSON, and calls do in rank order: once for all
// ranks with the same set, and for each rank with a nil set. All ranks call it.
func eachSet[T any](p communicator, set []byte, own T, do func(rank int, value T) error) error {
	type ofSet struct {
		Set   []byte
		Value T
	}
	text, err := json.Marshal(ofSet{set, own})
	if err != nil {
		return err
	}
	all, err := p.gather(text)
	if err != nil {
		return err
	}
	counted := map[string]bool{}
	for rank, text := range all {
		var s ofSet
		if text == nil { // lost
			continue
		}
		if err := json.Unmarshal(text, &s); err != nil {
			return fmt.Errorf("of rank %d: %w", rank, err)
		}
		if s.Set != nil && counted[string(s.Set)] {
			continue
		}
		counted[string(s.Set)] = true
		if err := do(rank, s.Value); err != nil {
			return err
		}
	}
	return nil
}

// gatherLeft adds up the excluded samples of all ranks, in rank order. All ranks call it.
func gatherLeft(p communicator, set []byte, left []data.LeftOut) (sum []data.LeftOut, err error) {
	err = eachSet(p, set, left, func(_ int, excluded []data.LeftOut) error {
		sum = addLeft(sum, excluded)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("adding up the excluded samples: %w", err)
	}
	return sum, nil
}

// fewBad returns an error if all ranks have more than `most` (data.max-bad-records) bad samples.
func fewBad(left []data.LeftOut, most int) error {
	for _, l := range left {
		if l.Kind == data.BadSample && l.Count > most {
			return setting.Errorf("data.max-bad-records", "%d: all ranks' training and evaluation files together have more: %v", most, l)
		}
	}
	return nil
}

func addLeft(sum, other []data.LeftOut) []data.LeftOut {
	sum = slices.Clone(sum)
	for _, o := range other {
		i := slices.IndexFunc(sum, func(s data.LeftOut) bool { return s.Kind == o.Kind })
		if i < 0 {
			sum = append(sum, o)
			continue
		}
		sum[i].Count += o.Count
		sum[i].Names = slices.Concat(sum[i].Names, o.Names)[:max(len(sum[i].Names), len(o.Names))] // both have the first names
	}
	return sum
}
