package shm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/memfd"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/transport"
)

// Rounds of a formation, used as sequence numbers of the messages.
const (
	roundCards   = iota // every rank to all: properties
	roundOffer          // lowest rank of a host to the host's other ranks: socket of the memory
	roundDone           // reply: memory mapped
	roundVerdict        // lowest rank of a host to all: whether the host shares
)

const group = 0xffffffff

// formation is the state of setting up shared memory on a rank.
type formation struct {
	ctx      context.Context
	mesh     transport.Mesh
	cfg      Config
	deadline time.Time

	cards []*card
	ranks [][]int // ranks by host, ascending
	host  int     // this rank's host

	settled Settled

	sent, received int64 // messages
}

func form(ctx context.Context, mesh transport.Mesh, cfg Config) (*Mesh, error) {
	f := &formation{mesh: mesh, cfg: cfg, deadline: time.Now().Add(cfg.JoinTimeout)}
	var cancel context.CancelFunc
	f.ctx, cancel = context.WithDeadline(ctx, f.deadline)
	defer cancel()
	// Receives ignore the context.
	stop := context.AfterFunc(ctx, func() { mesh.Abort(context.Cause(ctx)) })
	m, region, err := f.run()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		region.discard()
		return nil, err
	}
	return m, nil
}

// run sets up shared memory. After an error the caller discards the region, if it is not nil.
func (f *formation) run() (*Mesh, *region, error) {
	var err error
	if f.cards, err = f.exchangeCards(); err != nil {
		return nil, nil, err
	}
	m := &Mesh{Mesh: f.mesh}
	m.hosts, f.ranks = hostsOf(f.cards)
	f.host = m.hosts[f.mesh.Rank()]
	if err := f.settle(); err != nil {
		return nil, nil, err
	}
	region, why, err := f.share()
	if err != nil {
		return nil, region, err
	}
	whys, err := f.judge(why)
	if err != nil {
		return nil, region, err
	}
	m.reason, m.failed = f.outcome(whys)
	m.arranging = transport.Traffic{PayloadSent: messageBytes * f.sent, PayloadReceived: messageBytes * f.received, MessagesSent: f.sent}
	if region != nil && whys[f.host] != "" {
		region.discard()
	} else if region != nil {
		m.windows = region.windows(f.ranks[f.host], f.mesh.Rank(), f.settled.Cores)
	}
	return m, region, nil
}

func (f *formation) exchangeCards() ([]*card, error) {
	mine := describe()
	mine.threads = f.cfg.Threads
	if f.cfg.Off != "" {
		mine.ok, mine.disabled, mine.text = false, true, f.cfg.Off
	}
	if f.cfg.ArenaBytes > 0 {
		mine.arena = f.cfg.ArenaBytes
	}
	all := make([]int, f.mesh.Size())
	for r := range all {
		all[r] = r
	}
	if err := f.broadcast(all, roundCards, mine); err != nil {
		return nil, err
	}
	cards, err := f.collect(all, roundCards)
	if err != nil {
		return nil, err
	}
	cards[f.mesh.Rank()] = mine
	return cards, nil
}

// settle lets Config.Settle place this rank, before its memory is created or mapped.
func (f *formation) settle() (err error) {
	if f.cfg.Settle != nil {
		f.settled, err = f.cfg.Settle(neighbours(f.cards, f.mesh.Rank()))
	}
	if f.settled.Cores == 0 {
		f.settled.Cores = coresOf(f.cards, f.ranks[f.host])
	}
	return err
}

// share maps the memory of this rank's host. The region is nil if the host does not share; why is
// the reason on this rank, for the verdict.
func (f *formation) share() (r *region, why string, err error) {
	ranks := f.ranks[f.host]
	if len(ranks) < 2 || unable(f.cards, ranks) != "" {
		return nil, "", nil
	}
	if ranks[0] == f.mesh.Rank() {
		return f.lead(ranks[1:])
	}
	r, err = f.follow(ranks[0])
	return r, "", err
}

// lead creates the memory and sends the descriptor to the other ranks of this host.
func (f *formation) lead(others []int) (*region, string, error) {
	ranks, arena := len(others)+1, f.cards[f.mesh.Rank()].arena
	if f.cfg.ArenaBytes == 0 {
		arena = min(arena, defaultSpan/int64(ranks))
	}
	source, r, err := f.prepare(others, arena)
	if err != nil {
		why := fmt.Sprintf("rank %d: %v", f.mesh.Rank(), err)
		return nil, why, f.broadcast(others, roundOffer, &card{text: why})
	}
	defer source.close()
	if err := f.broadcast(others, roundOffer, &card{ok: true, arena: arena, text: source.name}); err != nil {
		return r, "", err
	}
	answers, err := f.collect(others, roundDone)
	if err != nil {
		return r, "", err
	}
	return r, unable(answers, others), nil
}

// prepare creates and maps the memory, and listens for requests.
func (f *formation) prepare(others []int, arena int64) (*source, *region, error) {
	fd, err := newMemory(regionBytes(len(others)+1, arena))
	if err != nil {
		return nil, nil, err
	}
	r, err := mapMemory(fd, len(others)+1, arena)
	if err != nil {
		memfd.Close(fd)
		return nil, nil, err
	}
	f.house(r)
	s, err := newSource(f.ctx, fd, f.hello(), f.cfg.Ticket, others)
	if err != nil {
		memfd.Close(fd)
		r.discard()
		return nil, nil, err
	}
	return s, r, nil
}

// follow gets the memory from the lowest rank of this host and maps it.
func (f *formation) follow(leader int) (*region, error) {
	offers, err := f.collect([]int{leader}, roundOffer)
	if err != nil || !offers[leader].ok {
		return nil, err // the verdict has the reason
	}
	answer := &card{ok: true}
	r, err := f.fetch(leader, offers[leader])
	if err != nil {
		answer = &card{text: err.Error()}
	}
	return r, f.broadcast([]int{leader}, roundDone, answer)
}

func (f *formation) fetch(leader int, offer *card) (*region, error) {
	fd, err := receiveMemory(f.ctx, offer.text, f.hello(), f.cfg.Ticket, leader)
	if err != nil {
		return nil, err
	}
	defer memfd.Close(fd)
	ranks := len(f.ranks[f.host])
	if err := memfd.Check(fd, regionBytes(ranks, offer.arena), memfd.Fixed); err != nil {
		return nil, err
	}
	r, err := mapMemory(fd, ranks, offer.arena)
	if err == nil {
		f.house(r)
	}
	return r, err
}

// house requests this rank's part of the memory from its NUMA node before any access: otherwise the
// first reader of a flag would choose the node. A failure, as in a sandbox, costs only speed.
func (f *formation) house(r *region) {
	if f.settled.Homed {
		for _, part := range r.parts(slices.Index(f.ranks[f.host], f.mesh.Rank())) {
			_ = placement.Prefer(part, f.settled.Node)
		}
	}
}

func (f *formation) hello() transport.Hello {
	return transport.Hello{Version: f.cfg.Version, Purpose: transport.Memory, Rank: f.mesh.Rank(), WorldSize: f.mesh.Size()}
}

// judge exchanges the verdicts: for each host the reason against sharing, or "". The cards alone
// decide for some hosts; for each other host its lowest rank sends the verdict, for this host why.
func (f *formation) judge(why string) ([]string, error) {
	whys := make([]string, len(f.ranks))
	var leaders []int
	for h, ranks := range f.ranks {
		if whys[h] = unable(f.cards, ranks); whys[h] == "" && len(ranks) > 1 {
			leaders = append(leaders, ranks[0])
		}
	}
	if whys[f.host] == "" && len(f.ranks[f.host]) > 1 && f.ranks[f.host][0] == f.mesh.Rank() {
		all := make([]int, f.mesh.Size())
		for r := range all {
			all[r] = r
		}
		if err := f.broadcast(all, roundVerdict, &card{ok: why == "", text: why}); err != nil {
			return nil, err
		}
		whys[f.host] = why
	}
	verdicts, err := f.collect(leaders, roundVerdict)
	if err != nil {
		return nil, err
	}
	for h, ranks := range f.ranks {
		if v := verdicts[ranks[0]]; v != nil && !v.ok {
			whys[h] = v.text
		}
	}
	return whys, nil
}

// maxWhys is the maximum number of hosts in a reason.
const maxWhys = 4

func (f *formation) outcome(whys []string) (reason string, failed bool) {
	var faults []string
	more, several := 0, false
	for h, ranks := range f.ranks {
		if len(ranks) < 2 {
			continue
		}
		switch several = true; {
		case whys[h] == "" || toldAll(f.cards, ranks):
		case len(faults) == maxWhys:
			more++
		default:
			faults = append(faults, fmt.Sprintf("%s (%s)", names(ranks), whys[h]))
		}
	}
	if !several {
		return alone(f.cards), false
	}
	if reason = strings.Join(faults, ", "); more > 0 {
		reason += fmt.Sprintf(", and ranks of more hosts (%d)", more)
	}
	return reason, len(faults) > 0
}

// broadcast sends c to all of ranks except this rank.
func (f *formation) broadcast(ranks []int, round int, c *card) error {
	b := c.encode()
	for _, r := range ranks {
		if r == f.mesh.Rank() {
			continue
		}
		if err := f.mesh.Send(r, transport.Tag{Group: group, Seq: uint32(round)}, b, time.Until(f.deadline)); err != nil {
			return err
		}
		f.sent++
	}
	return nil
}

// collect receives from all of ranks except this rank, and returns the cards by rank.
func (f *formation) collect(ranks []int, round int) ([]*card, error) {
	n := f.mesh.Size()
	cards, posted, bufs := make([]*card, n), make([]transport.Recv, n), make([][]byte, n)
	for _, r := range ranks {
		if r != f.mesh.Rank() {
			bufs[r] = make([]byte, messageBytes)
			f.mesh.Post(&posted[r], r, transport.Tag{Group: group, Seq: uint32(round)}, bufs[r])
		}
	}
	for _, r := range ranks {
		if bufs[r] == nil {
			continue
		}
		err := posted[r].Wait(time.Until(f.deadline))
		if err == nil {
			if cards[r], err = decodeCard(bufs[r]); err != nil {
				err = fmt.Errorf("rank %d sent %w", r, err)
			}
		}
		if err != nil {
			return nil, err // the mesh's owner closes the mesh, ending the other receives
		}
		f.received++
	}
	return cards, nil
}
