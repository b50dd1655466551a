package collective

import (
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Config configures a group. All values except SlowAfter must be equal on all ranks.
type Config struct {
	// Ranks are the ranks of the mesh that form the group, in the group's order, this rank
	// included. Empty means all, in the mesh's order.
	Ranks []int
	// Hosts is the host number of each rank of the mesh. Empty means one host.
	Hosts []int
	// Algorithm is the algorithm of all operations that have it; rules choose the algorithm of
	// other operations. Auto or empty means rules for all operations.
	Algorithm string
	// Profile has the rules that replace the default ones: see Tune and Group.Use.
	Profile *Profile
	// Rules are the rules (Group.Rules) of a tuned group with the same number of ranks. A
	// configuration has Rules or a Profile, not both.
	Rules Rules
	// Timeout is the longest single wait for a peer; an operation has many waits, and may take
	// longer. 0 means 10 minutes.
	Timeout time.Duration
	// SegmentBytes is the largest message, 64 bytes to 1 GiB. Chunks are cut into segments so that
	// sending, receiving and adding overlap. 0 means 512 KiB.
	SegmentBytes int
	// InFlight is the number of operations that run simultaneously, at most 64, with a total of at
	// most InFlight x SegmentBytes; a larger operation runs alone. 0 means 4.
	InFlight int
	// SlowAfter is the shortest wait that Group.Waiting reports. 0 reports every wait.
	SlowAfter time.Duration
	// Record is the recorder of operations. nil means a small recorder of the group.
	Record *record.Recorder
	// ID is the group's number, below 1<<30. Groups over a mesh with a common rank need different
	// IDs, even after a group has ended. IDs below 1<<20 differ from those of Group.Dup. In groups
	// with IDs 0 to 7 ranks of a host share memory; in groups with IDs 8 to 23 they share less, and
	// none for Send and Receive; in other groups none.
	ID uint32
	// ShmSlot is the number, 1 to 16, of the group's place (slot) in shared memory, for IDs from
	// FirstSubgroup on. 0 means the slot of the ID, if it has one; below 0 means no shared memory.
	// Groups with a common rank need different slots, unless one group has released its slot
	// (Group.ShmReleased) before the next uses it. ShmSlot must be equal on all ranks of the group.
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

// FirstSubgroup is the lowest ID of groups that get less shared memory than others: see Config.ID.
const FirstSubgroup = 8

const (
	maxSubgroup = 1 << 20 // lowest ID of duplicates
	shmSlots    = 16      // see Config.ShmSlot
)

// room returns the number of the group's slot in shared memory, counted from the slots of IDs below
// FirstSubgroup; -1: the group has no slot.
func (c Config) room() int {
	switch {
	case c.ShmSlot > 0:
		return FirstSubgroup + c.ShmSlot - 1
	case c.ShmSlot == 0 && c.ID < shareGroups:
		return int(c.ID)
	}
	return -1
}

// dupID returns the ID of the k-th duplicate (Group.Dup), k from 1, of the group with this id.
func dupID(id, k uint32) uint32 {
	if id+k < FirstSubgroup {
		return id + k
	}
	return id + k*maxSubgroup
}

// Validate returns all errors of the configuration together.
func (c Config) Validate() error {
	bad := faults.In("collective: ")
	if _, ok := methodOf(c.Algorithm); !ok && c.Algorithm != Auto {
		bad.Add(setting.Errorf(pathAlgorithm, "%q is not known%s: want one of auto, %s", c.Algorithm, spelling.Hint(c.Algorithm, Algorithms()...), strings.Join(Algorithms(), ", ")))
	}
	if _, err := c.Rules.ruleSet(0); err != nil {
		bad.Add(setting.Errorf(pathRules, "%v: %w", c.Rules, err))
	}
	if c.Profile != nil && len(c.Rules) > 0 {
		bad.Add(setting.Errorf(pathRules, "%v and %v, of %d ranks, both set the algorithms: remove one of the two", c.Rules, setting.Path("tuning.profile"), c.Profile.Ranks))
	}
	if c.Timeout < 0 {
		bad.Add(setting.Errorf("job.timeout", "%v: want a positive time, such as 30s, or 0 for %v", c.Timeout, defaultTimeout))
	}
	bad.If(c.SegmentBytes != 0 && (c.SegmentBytes < minSegment || c.SegmentBytes > maxSegment),
		"segment bytes %d: want %d to %d, or 0 for %d", c.SegmentBytes, minSegment, maxSegment, defaultSegment)
	bad.If(c.InFlight < 0 || c.InFlight > maxInFlight,
		"in flight %d: want 1 to %d operations, or 0 for %d", c.InFlight, maxInFlight, defaultInFlight)
	bad.If(c.SlowAfter < 0, "slow after %v: want 0 or more", c.SlowAfter)
	bad.If(c.ShmSlot > shmSlots || c.ShmSlot > 0 && c.ID < FirstSubgroup,
		"shared-memory slot %d of group %d: want 1 to %d, only for groups from %d on, or none", c.ShmSlot, c.ID, shmSlots, FirstSubgroup)
	bad.If(c.ShmSlot != 0 && c.ID >= maxSubgroup,
		"group %d: a member has already been in %d groups: keep groups instead of making new ones", c.ID, maxSubgroup-FirstSubgroup)
	bad.If(c.ID > maxID, "id %d: want at most %d", c.ID, maxID)
	return bad.Err()
}

// Settings returns the rows of the settings of collective operations, bound to c.
func (c *Config) Settings() []setting.Row {
	return []setting.Row{
		{
			Path: pathAlgorithm, Commands: setting.AllCommands, Flag: "collective-algorithm", Scope: setting.JobFixed,
			About: "algorithm of sums and gathers, for operations that have it; auto: chosen by the number of ranks and bytes",
			Value: setting.Choice(&c.Algorithm, append([]string{Auto}, Algorithms()...)...),
		},
		{
			Path: "job.timeout", Commands: setting.AllCommands &^ setting.Run, Flag: "timeout", Unit: "TIME", Scope: setting.JobMutable,
			About: "maximum wait for a rank in an exchange, or for a server; lost processes are detected much earlier, slow processes are only reported until then",
			Value: setting.Duration(&c.Timeout),
		},
		{
			Path: pathRules, Commands: setting.Bench | setting.BenchStep, Scope: setting.JobFixed,
			About: "algorithms by operation, each with its maximum bytes, as measured by an earlier run with the same number of ranks, such as allreduce=doubling:128KiB,pairwise; barrier=doubling",
			Value: setting.Textual(&c.Rules),
		},
	}
}

// filled returns c with defaults instead of zero values, and an empty algorithm instead of Auto.
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

// members returns the mesh's ranks that form the group, or all errors of Ranks and Hosts together.
func (c Config) members(m transport.Mesh) ([]int, error) {
	var bad faults.List
	ranks := slices.Clone(c.Ranks)
	if len(ranks) == 0 {
		for r := range m.Size() {
			ranks = append(ranks, r)
		}
	}
	for i, r := range ranks {
		bad.If(r < 0 || r >= m.Size(), "ranks %v: %d is not a rank of a mesh of %d", ranks, r, m.Size())
		bad.If(slices.Contains(ranks[:i], r), "ranks %v: %d is there twice", ranks, r)
	}
	bad.If(!slices.Contains(ranks, m.Rank()), "ranks %v: this rank, %d, is missing", ranks, m.Rank())
	bad.If(len(c.Hosts) != 0 && len(c.Hosts) != m.Size(),
		"hosts %v: %d numbers, want one for each of the mesh's %d ranks", c.Hosts, len(c.Hosts), m.Size())
	return ranks, bad.Err()
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

// distinct returns the number of different values in x.
func distinct(x []int) int {
	seen := map[int]bool{}
	for _, v := range x {
		seen[v] = true
	}
	return len(seen)
}
