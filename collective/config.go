package collective

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Config says how a group works. All ranks must give the same values, except
// for SlowAfter.
type Config struct {
	// Ranks are the ranks of the mesh that make the group, in the group's order;
	// this one must be among them. Empty: all, in the mesh's order.
	Ranks []int
	// Hosts is a number for each rank of the mesh, equal for those of one host.
	// Empty: all are on one.
	Hosts []int
	// Algorithm carries out the operations that have it; the rules choose for the others.
	// Auto or empty: the rules choose for all.
	Algorithm string
	// Profile has the rules to use instead of the default ones, see Tune and Group.Use; the
	// same on every rank.
	Profile *Profile
	// Rules are those of a group that was tuned (Group.Rules), for one of as many ranks, in the place of its profile.
	Rules Rules
	// Timeout bounds every single wait for a peer; an operation that makes
	// progress may take longer. 0: 10 minutes.
	Timeout time.Duration
	// SegmentBytes is the largest message: chunks are cut into segments so
	// that sending, receiving and adding overlap. 64 bytes to 1 GiB.
	// 0: 512 KiB.
	SegmentBytes int
	// InFlight is how many operations make progress at the same time, at most
	// 64. Together they hold at most InFlight x SegmentBytes; a larger one
	// runs alone. 0: 4.
	InFlight int
	// SlowAfter is how long a wait must have lasted before Group.Waiting
	// reports it. 0: at once.
	SlowAfter time.Duration
	// Record is where operations are recorded. nil: in a recorder of the group's own, which is small.
	Record *record.Recorder
	// ID is the group's number, below 1<<30. Groups over one mesh that have a rank in common need
	// different ones, also if one is made after another has ended. Below 1<<20 it differs
	// from those that Group.Dup gives. Ranks share memory in groups with the IDs 0 to 7, and in
	// those with 8 to 23 with less room and not for Send and Receive.
	ID uint32
	// ShmSlot is the group's place in the memory that ranks share, 1 to 16, where its ID is from
	// FirstSubgroup on; 0: that of its ID, if there is one; below 0: none. Groups that have a rank
	// in common have different ones, or one after the other: see Group.ShmReleased. All members
	// have the same.
	ShmSlot int
}

const pathAlgorithm setting.Path = "job.collective-algorithm"

const (
	defaultTimeout  = 10 * time.Minute
	defaultSegment  = 512 << 10
	defaultInFlight = 4
	minSegment      = 64
	maxSegment      = 1 << 30
	maxInFlight     = 64
	maxID           = 1<<30 - 1
)

// FirstSubgroup is the lowest ID of groups with less shared memory.
const FirstSubgroup = 8

const (
	maxSubgroup = 1 << 20 // IDs from here on are those of duplicates
	shmSlots    = 16      // see Config.ShmSlot
)

// room is the group's place in shared memory, -1: it has none. Those of groups below FirstSubgroup come first.
func (c Config) room() int {
	switch {
	case c.ShmSlot > 0:
		return FirstSubgroup + c.ShmSlot - 1
	case c.ShmSlot == 0 && c.ID < shareGroups:
		return int(c.ID)
	}
	return -1
}

// dupID is the ID of duplicate k, from 1, of the group with an ID.
func dupID(id, k uint32) uint32 {
	if id+k < FirstSubgroup {
		return id + k
	}
	return id + k*maxSubgroup
}

// Validate reports all faults of the configuration together.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("collective: "+format, args...)) }
	if _, ok := methodOf(c.Algorithm); !ok && c.Algorithm != Auto {
		faults = append(faults, setting.Errorf(pathAlgorithm, "%q is not known%s: want one of auto, %s", c.Algorithm, spelling.Hint(c.Algorithm, Algorithms()...), strings.Join(Algorithms(), ", ")))
	}
	if _, err := c.Rules.ruleSet(0); err != nil {
		faults = append(faults, setting.Errorf(pathRules, "%v: %w", c.Rules, err))
	}
	if c.Profile != nil && len(c.Rules) > 0 {
		faults = append(faults, setting.Errorf(pathRules, "%v and %v, of %d ranks, are two sources for one choice: leave one of them out", c.Rules, setting.Path("tuning.profile"), c.Profile.Ranks))
	}
	if c.Timeout < 0 {
		faults = append(faults, setting.Errorf("job.timeout", "%v: want a positive time, such as 30s, or 0 for %v", c.Timeout, defaultTimeout))
	}
	if c.SegmentBytes != 0 && (c.SegmentBytes < minSegment || c.SegmentBytes > maxSegment) {
		fault("segment bytes %d: want %d to %d, or 0 for %d", c.SegmentBytes, minSegment, maxSegment, defaultSegment)
	}
	if c.InFlight < 0 || c.InFlight > maxInFlight {
		fault("in flight %d: want 1 to %d operations, or 0 for %d", c.InFlight, maxInFlight, defaultInFlight)
	}
	if c.SlowAfter < 0 {
		fault("slow after %v: want 0 or more", c.SlowAfter)
	}
	if c.ShmSlot > shmSlots || c.ShmSlot > 0 && c.ID < FirstSubgroup {
		fault("room %d of group %d: want 1 to %d, for groups from %d on, or none", c.ShmSlot, c.ID, shmSlots, FirstSubgroup)
	}
	if c.ShmSlot != 0 && c.ID >= maxSubgroup {
		fault("group %d: a member was in %d groups before: keep them in place of making them anew", c.ID, maxSubgroup-FirstSubgroup)
	}
	if c.ID > maxID {
		fault("id %d: want at most %d", c.ID, maxID)
	}
	return errors.Join(faults...)
}

// Settings are the rows of what a person says of operations of ranks, bound to c.
func (c *Config) Settings() []setting.Row {
	return []setting.Row{
		{
			Path: pathAlgorithm, Commands: setting.AllCommands &^ setting.Run, Flag: "collective-algorithm", Scope: setting.JobFixed,
			About: "how ranks sum and gather, for operations that have this algorithm; auto: chosen by the number of ranks and bytes",
			Value: setting.Choice(&c.Algorithm, append([]string{Auto}, Algorithms()...)...),
		},
		{
			Path: "job.timeout", Commands: setting.AllCommands &^ setting.Run, Flag: "timeout", Unit: "TIME", Scope: setting.JobMutable,
			About: "longest wait for another rank in an exchange, or for a server; dead ones are found much earlier, and slow ones are only reported until then",
			Value: setting.Duration(&c.Timeout),
		},
		{
			Path: pathRules, Commands: setting.Bench | setting.BenchStep, Scope: setting.JobFixed,
			About: "algorithms by operation, each with the bytes up to which it is taken, as an earlier run of as many ranks found them by measuring, such as allreduce=doubling:128KiB,pairwise; barrier=doubling",
			Value: setting.Textual(&c.Rules),
		},
	}
}

// filled returns c with zero values replaced by what they stand for, and Auto by none.
func (c Config) filled() Config {
	if c.Algorithm == Auto {
		c.Algorithm = ""
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = defaultSegment
	}
	if c.InFlight == 0 {
		c.InFlight = defaultInFlight
	}
	return c
}

// members returns the mesh's ranks that make the group. All faults are reported
// together.
func (c Config) members(m transport.Mesh) ([]int, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	ranks := slices.Clone(c.Ranks)
	if len(ranks) == 0 {
		for r := range m.Size() {
			ranks = append(ranks, r)
		}
	}
	for i, r := range ranks {
		if r < 0 || r >= m.Size() {
			fault("ranks %v: %d is not a rank of a mesh of %d", ranks, r, m.Size())
		}
		if slices.Contains(ranks[:i], r) {
			fault("ranks %v: %d is there twice", ranks, r)
		}
	}
	if !slices.Contains(ranks, m.Rank()) {
		fault("ranks %v: this rank, %d, is not among them", ranks, m.Rank())
	}
	if len(c.Hosts) != 0 && len(c.Hosts) != m.Size() {
		fault("hosts %v: %d numbers, want one for each of the mesh's %d ranks", c.Hosts, len(c.Hosts), m.Size())
	}
	return ranks, errors.Join(faults...)
}

// hostsAmong returns the host of each of ranks.
func (c Config) hostsAmong(ranks []int) []int {
	out := make([]int, len(ranks))
	if len(c.Hosts) == 0 {
		return out
	}
	for i, r := range ranks {
		out[i] = c.Hosts[r]
	}
	return out
}

// distinct counts the values in x.
func distinct(x []int) int {
	seen := map[int]bool{}
	for _, v := range x {
		seen[v] = true
	}
	return len(seen)
}
