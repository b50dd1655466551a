package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Messages between the ranks. All have messageBytes, so receives need not know the kind:
//
//	offset size
//	     0    1  layout, 4
//	     1    1  1: able, done, agreed; 0: unable, with a reason; 2: sharing turned off
//	     2    2  length of the text
//	     4    2  number of computing threads of the rank
//	     6    2  0
//	     8    8  bytes of each arena
//	    16   16  the machine, from its boot id
//	    32   16  the host: the machine and its network namespace
//	    48  128  the processors available to the rank, a bit each
//	   176    8  the process
//	   184       text: the reason, or the name of a socket
const (
	messageBytes = 2048
	textAt       = 184
	maxText      = messageBytes - textAt
	layout       = 4
	maskBytes    = 128
	// maxArena keeps lengths of whole regions far from overflow.
	maxArena = 1 << 50
)

// Values of the second byte.
const (
	notAble byte = iota
	able
	toldNot
)

// card is a message: a rank's properties, or the state of its formation.
type card struct {
	ok            bool
	disabled      bool // sharing is turned off
	arena         int64
	machine, host [16]byte
	threads       int // maximum 65535
	process       [8]byte
	cores         [maskBytes]byte
	text          string
}

var errCard = errors.New("a message that is none of this protocol: do all ranks run the same program?")

func (c *card) encode() []byte {
	b := make([]byte, messageBytes)
	b[0] = layout
	switch {
	case c.ok:
		b[1] = able
	case c.disabled:
		b[1] = toldNot
	}
	text := c.text
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText-3], "") + "..."
	}
	binary.LittleEndian.PutUint16(b[2:], uint16(len(text)))
	binary.LittleEndian.PutUint16(b[4:], uint16(c.threads))
	binary.LittleEndian.PutUint64(b[8:], uint64(c.arena))
	copy(b[16:], c.machine[:])
	copy(b[32:], c.host[:])
	copy(b[48:], c.cores[:])
	copy(b[176:], c.process[:])
	copy(b[textAt:], text)
	return b
}

func decodeCard(b []byte) (*card, error) {
	if len(b) != messageBytes || b[0] != layout || b[1] > toldNot {
		return nil, errCard
	}
	n, arena := int(binary.LittleEndian.Uint16(b[2:])), binary.LittleEndian.Uint64(b[8:])
	if n > maxText || arena > maxArena {
		return nil, fmt.Errorf("%w (a text of %d bytes, an arena of %d)", errCard, n, arena)
	}
	c := &card{ok: b[1] == able, disabled: b[1] == toldNot, arena: int64(arena), text: string(b[textAt : textAt+n])}
	c.threads = int(binary.LittleEndian.Uint16(b[4:]))
	copy(c.machine[:], b[16:])
	copy(c.host[:], b[32:])
	copy(c.cores[:], b[48:])
	copy(c.process[:], b[176:])
	return c, nil
}

// hostsOf numbers the hosts in the order of their lowest ranks.
func hostsOf(cards []*card) (hosts []int, ranks [][]int) {
	numbers := make(map[[16]byte]int)
	hosts = make([]int, len(cards))
	for r, c := range cards {
		n, known := numbers[c.host]
		if !known {
			n = len(ranks)
			numbers[c.host] = n
			ranks = append(ranks, nil)
		}
		hosts[r], ranks[n] = n, append(ranks[n], r)
	}
	return hosts, ranks
}

func unable(cards []*card, ranks []int) string {
	for _, r := range ranks {
		if !cards[r].ok {
			return fmt.Sprintf("rank %d: %s", r, cards[r].text)
		}
	}
	return ""
}

// toldAll reports whether sharing is turned off on all ranks of a host.
func toldAll(cards []*card, ranks []int) bool {
	return !slices.ContainsFunc(ranks, func(r int) bool { return !cards[r].disabled })
}

// names lists two ranks or more, ascending: "ranks 0 to 3", or "ranks 0, 2 and 3".
func names(ranks []int) string {
	if first, last := ranks[0], ranks[len(ranks)-1]; len(ranks) > 2 && last-first == len(ranks)-1 {
		return fmt.Sprintf("ranks %d to %d", first, last)
	}
	words := strings.Fields(strings.Trim(fmt.Sprint(ranks), "[]"))
	last := len(words) - 1
	return "ranks " + strings.Join(words[:last], ", ") + " and " + words[last]
}

// alone returns the reason why no two ranks share a host.
func alone(cards []*card) string {
	if len(cards) == 1 {
		return "there is one rank only"
	}
	for r, c := range cards[:len(cards)-1] {
		for s := r + 1; s < len(cards); s++ {
			if cards[s].machine == c.machine {
				return fmt.Sprintf("ranks %d and %d are on one machine, but in different network namespaces (containers): every rank counts as a host of its own", r, s)
			}
		}
	}
	return "every rank has a host of its own"
}

// coresOf counts the processors available to the ranks of a host together.
func coresOf(cards []*card, ranks []int) int {
	var all [maskBytes]byte
	n := 0
	for i := range all {
		for _, r := range ranks {
			all[i] |= cards[r].cores[i]
		}
		n += bits.OnesCount8(all[i])
	}
	return max(1, n)
}

// cpus returns the numbers of the processors available to the rank.
func (c *card) cpus() (out []int) {
	for cpu := range 8 * maskBytes {
		if c.cores[cpu/8]>>(cpu%8)&1 != 0 {
			out = append(out, cpu)
		}
	}
	return out
}

// neighbours returns the ranks of a rank's machine, including the rank itself.
func neighbours(cards []*card, me int) (out []Neighbour) {
	for r, c := range cards {
		if c.machine == cards[me].machine {
			out = append(out, Neighbour{Rank: r, Near: c.host == cards[me].host, CPUs: c.cpus(), Threads: c.threads, SameProcess: c.process == cards[me].process})
		}
	}
	return out
}
