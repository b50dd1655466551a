package plan

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// byteUnits are the units of rates, in bytes per second.
var byteUnits = map[string]float64{
	"B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12,
	"KiB/s": 1 << 10, "MiB/s": 1 << 20, "GiB/s": 1 << 30,
	"bit/s": 1. / 8, "kbit/s": 1e3 / 8, "Mbit/s": 1e6 / 8, "Gbit/s": 1e9 / 8, "Tbit/s": 1e12 / 8,
}

// parseRate parses a rate such as 6GB/s or 25Gbit/s, in bytes per second. The unit is required,
// because bits and bytes differ by a factor of eight.
func parseRate(text string) (float64, error) {
	at := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if at < 0 {
		at = len(text)
	}
	number, err := strconv.ParseFloat(text[:at], 64)
	unit, known := byteUnits[text[at:]]
	if err != nil || !known || !(number > 0) || math.IsInf(number*unit, 0) {
		return 0, fmt.Errorf("%q: want a positive number and a unit, such as 6GB/s, 500MB/s or 25Gbit/s", text)
	}
	return number * unit, nil
}

// cluster is a described cluster. Its hosts have about the same number of ranks.
type cluster struct {
	np, hosts    int
	inter, intra float64 // bytes per second: of a host's link in each direction, and of a rank's link within a host
	latency      float64 // seconds per message
}

// way is an exchange with its traffic: bytes sent by a rank per byte of payload.
type way struct {
	bucket.Send
	moved float64
}

// slowest returns the rate of the slowest link of a ring with the ranks in host order.
func (c cluster) slowest() float64 {
	switch {
	case c.hosts == 1:
		return c.intra
	case c.np == c.hosts:
		return c.inter
	}
	return min(c.inter, c.intra)
}

// local returns the largest number of ranks on a host.
func (c cluster) local() int { return (c.np + c.hosts - 1) / c.hosts }

// shared returns the time per byte if all ranks send simultaneously and the given share of bytes
// goes to other hosts over the host's shared link.
func (c cluster) shared(abroad float64) float64 {
	m := float64(c.local())
	if c.hosts == 1 {
		return 1 / c.intra
	}
	return max(m*abroad/c.inter, (1-abroad)/c.intra)
}

// dense returns the allreduces of a payload:
//
//	ring          2(N-1) messages, 2(N-1)/N bytes a byte, over the slowest link
//	hierarchical  reduce-scatter within hosts, a ring over hosts for each of its
//	              parts, all at once, and allgather within hosts
//	doubling      everything to another rank in each of log2(N) rounds
//	naive         all to rank 0 and back
func (c cluster) dense(p bucket.Payload) []way {
	if c.np == 1 {
		return []way{{Send: bucket.Send{Name: "none", Payload: p}}}
	}
	n, h, m := float64(c.np), float64(c.hosts), float64(c.local())
	add := func(ways []way, name string, messages, perByte, moved float64) []way {
		return append(ways, way{bucket.Send{Name: name, Payload: p, Fixed: messages * c.latency, PerByte: perByte}, moved})
	}
	cost := collective.Cost{Bytes: 1, Ranks: c.np}
	ways := add(nil, collective.Ring, 2*(n-1), cost.RingBytes()/c.slowest(), cost.RingBytes())
	if c.hosts > 1 && m > 1 {
		ways = add(ways, "hierarchical", 2*(m-1)+2*(h-1), 2*(m-1)/m/c.intra+2*(h-1)/h/c.inter, 2*(m-1)/m+2*(h-1)/h/m)
	}
	within, rounds := float64(bits.Len(uint(c.local()-1))), float64(bits.Len(uint(c.np-1)))
	ways = add(ways, "doubling", rounds, within/c.intra+(rounds-within)*m/c.inter, rounds)
	return add(ways, collective.Naive, 2, 2*(n-1)/c.slowest(), 2*(n-1)/n)
}

// sparse returns exchanges of entries, with exchange.Situation's costs, or of all values if
// cheaper:
//
//	allgather  every rank's entries go round the ring of all
//	tree       sums go to ranks twice as far away in each round
//	split      each rank sums a part of the index space, then they gather the parts
func (c cluster) sparse(p, dense bucket.Payload) []way {
	if c.np == 1 {
		return c.dense(p)
	}
	ways := []way{
		c.entries(exchange.AllGather, p, 1/c.slowest()),
		c.entries(exchange.Tree, p, c.shared(c.abroad())),
		c.entries(exchange.Split, p, c.shared(float64(c.hosts-1)/float64(c.hosts))),
	}
	for _, w := range c.dense(dense) {
		if w.Name != collective.Naive {
			w.Name = "dense-" + w.Name
			ways = append(ways, w)
		}
	}
	return ways
}

// abroad returns the share of a rank's bytes in a tree that goes to other hosts: rounds within
// hosts come first, and each round sends twice as much as the previous.
func (c cluster) abroad() float64 {
	all, within := 1<<(bits.Len(uint(c.np))-1), 1<<(bits.Len(uint(c.local()))-1)
	if c.hosts == 1 || all <= within {
		return 0
	}
	return float64(all-within) / float64(all-1)
}

const (
	// entryTime is the seconds to code, decode, merge or add an entry, as in exchange.Choose.
	entryTime = 8e-9
	// planLength is the vector length used for costs in general: large enough to ignore headers,
	// and without integer overflow for any --np.
	planLength = 1 << 20
)

// entries returns the linear cost of an exchange of entries: the time without entries, and the time
// per byte of a rank's payload. perByte is the time per byte if all ranks send.
func (c cluster) entries(algorithm string, p bucket.Payload, perByte float64) way {
	own := p.Entries(planLength)
	payload := p.Bytes(planLength)
	at := func(own int, payload float64) exchange.Cost {
		return exchange.Situation{Ranks: c.np, Len: planLength, Entries: c.np * own, Payload: c.np * int(payload)}.Cost(algorithm)
	}
	none, all := at(0, 0), at(own, payload)
	moved := float64(all.Bytes-none.Bytes) / payload
	first := bits.Len(uint(c.np - 1)) // messages that announce the sizes
	return way{bucket.Send{
		Name: algorithm, Payload: p,
		Fixed:   float64(first+all.Steps)*c.latency + float64(none.Bytes)*perByte,
		PerByte: moved*perByte + float64(all.Entries)*entryTime/payload,
	}, moved}
}

// entryBytes returns the bytes per entry in a payload with the given share of all values.
func entryBytes(share float64) float64 {
	k := max(1, int(share*planLength))
	return float64(exchange.PayloadBytes(planLength, k)) / float64(k)
}

// auto leaves the choice of an algorithm to the costs.
const auto = "auto"

// pick returns the ways with the name; auto selects all except naive.
func pick(ways []way, name string) []way {
	return slices.DeleteFunc(ways, func(w way) bool {
		return name != auto && w.Name != name || name == auto && w.Name == collective.Naive
	})
}

func sendsOf(ways []way) (out []bucket.Send) {
	for _, w := range ways {
		out = append(out, w.Send)
	}
	return out
}

// naiveTimes returns the naive exchange's times: to rank 0 alone, often quoted, and both ways.
func (c cluster) naiveTimes(bytes float64) (oneWay, both time.Duration) {
	cost := collective.Cost{Bytes: bytes, Ranks: c.np, Bandwidth: c.slowest()}
	return cost.NaiveOneWay(), cost.Naive()
}

// String describes the cluster on one line.
func (c cluster) String() string {
	text := cli.Counted(c.np, "rank") + " on " + cli.Counted(c.hosts, "host")
	var links []string
	if c.hosts > 1 {
		links = append(links, rateText(c.inter)+" between hosts")
	}
	if c.np > c.hosts {
		links = append(links, rateText(c.intra)+" within")
	}
	if c.np > 1 {
		links = append(links, cli.Milliseconds(1e3*c.latency)+" ms a message")
	}
	if len(links) == 0 {
		return text
	}
	return text + ": " + strings.Join(links, ", ")
}

func rateText(rate float64) string { return cli.Bytes(rate) + "/s" }
