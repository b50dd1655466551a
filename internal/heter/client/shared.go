package client

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/internal/wire"
)

// frameStore has the memory of messages that are in transit or kept. If heter-trainers are on this
// host, the memory is shared: instead of the data, a message has the number of the memory's slot.
// The data have the same form for other hosts.
type frameStore struct {
	memory *sharedmem.Region // nil without; used by sendLoop
	slots  []int             // free slots
	full   bool              // no more memory available
	over   bool              // no more frames will be sent
	loans  bool              // no shared memory for parameters
	spare  [][]byte          // private memory
}

// get selects memory for a frame of size bytes. The returned function allocates it, without c.mu.
func (s *frameStore) get(f *request, size int) func() ([]byte, error) {
	if n := len(s.slots); n > 0 && !s.full && s.memory.Fits(message.FrameAt+size) {
		f.slot, s.slots = s.slots[n-1], s.slots[:n-1]
		return func() ([]byte, error) {
			b, err := s.memory.Slot(f.slot, message.FrameAt+size)
			if err != nil {
				s.full = true // used by sendLoop only
				return nil, err
			}
			return b[message.FrameAt:], nil
		}
	}
	var b []byte
	if n := len(s.spare); n > 0 {
		b, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	return func() ([]byte, error) { return bytesview.Sized(b, size), nil }
}

func (s *frameStore) put(f *request) {
	if f.slot >= 0 {
		s.slots = append(s.slots, f.slot)
	} else {
		s.spare = append(s.spare, f.frame)
	}
}

// lentSlot is the slot of the parameters, as defined in package message, if the trainer sends them.
// The trainer's goroutine writes it between steps.
const lentSlot = 0

// loan returns shared memory for n bytes of parameters, nil if unavailable. c.mu is held.
func (c *Client) loan(n int) []byte {
	s := &c.frames
	if s.memory == nil || s.over || s.loans || !s.memory.Fits(n) {
		return nil
	}
	b, err := s.memory.Slot(lentSlot, n)
	if err != nil {
		s.loans = true
		c.note(fmt.Sprintf("parameters that are lent go over links, no longer through memory that heter-trainers of this host have, too: %v", err))
		return nil
	}
	return b
}

// mostFrames is the maximum number of slots for frames in shared memory. An unused slot uses
// address space only.
const mostFrames = 1 << 10

// share returns the shared memory for frames, created by the first call.
func (c *Client) share(w message.Welcome) (*sharedmem.Region, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.frames
	if s.over {
		return nil, errors.New("the trainer has ended")
	}
	if s.memory != nil {
		return s.memory, nil
	}
	lent := 0
	if c.cfg.Lent {
		lent = w.Values
	}
	size, _ := c.layout.Slots(w.Samples, lent)
	m, err := sharedmem.New(mostFrames, size)
	if err != nil {
		return nil, err
	}
	s.memory, s.slots = m, downTo(m.Slots())
	if c.cfg.Lent {
		s.slots = s.slots[:m.Slots()-1] // all except lentSlot
	}
	return m, nil
}

// downTo returns the slots n-1 to 0, taken from the end: only used slots take memory.
func downTo(n int) (slots []int) {
	for i := n - 1; i >= 0; i-- {
		slots = append(slots, i)
	}
	return slots
}

// free frees the memory of frames, after sendLoop has ended. Before the start of the readers it
// closes the links' views as well.
func (c *Client) free(links []*link) {
	c.seekers.Wait()
	if c.begun.Load() {
		<-c.posted
	}
	c.freed.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.frames.over = true
		c.params.values = nil
		c.frames.memory.Close()
		if !c.begun.Load() {
			for _, k := range links {
				k.view.Close()
			}
		}
	})
}

// share exchanges shared memory with a heter-trainer on the same host. After an error the link is
// used.
func (k *link) share(ctx context.Context) {
	cfg := &k.c.cfg
	desk := sharedmem.Config{Ticket: cfg.Ticket, Version: cfg.Version, Index: k.index, Trainers: cfg.Trainers}
	var err error
	k.view, err = sharedmem.Exchange(ctx, desk, cfg.Trainer, k.welcome.ShmSocket, k.welcome.Key, func() (*sharedmem.Region, error) { return k.c.share(k.welcome) })
	if err != nil && ctx.Err() == nil {
		k.c.note(fmt.Sprintf("heter-trainer %d at %s is on this host and shares no memory, micro-batches go over the link: %v", k.index, k.addr, err))
	}
	if k.view != nil {
		n := k.view.Slots()
		if cfg.Lent { // the last slot is for sums
			n--
		}
		k.slots = downTo(min(n, k.welcome.Micros))
	}
}

func (c *Client) note(line string) {
	if c.cfg.Note == nil {
		c.report(line)
		return
	}
	c.cfg.Note(line)
}

// place selects the slot for the results of a request, if it can use shared memory. c.mu is held.
//
// invariant[heter-slot]: a heter-trainer always writes results only where the last micro-batch with
// the slot needs them, because no other micro-batch names the slot before the trainer has read the
// results; a frame's slot is written only after each receiver has answered, or is lost and cannot
// write there.
func (k *link) place(f *request) {
	if n := len(k.slots); f.slot >= 0 && n > 0 {
		f.back, k.slots = k.slots[n-1], k.slots[:n-1]
	} else {
		f.back = -1
	}
}

// leave frees the slot of results that have been read. c.mu is held.
func (k *link) leave(f *request) {
	if f.back >= 0 {
		k.slots = append(k.slots, f.back)
	}
}

// send sends a micro-batch, or its slots.
func (k *link) send(f *request) error {
	message.Renumber(f.frame[wire.HeaderSize:], f.number)
	if f.back < 0 {
		return k.io.Write(net.Buffers{f.frame})
	}
	h, err := message.ParseHead(f.frame[wire.HeaderSize:][:message.HeadSize])
	if err != nil {
		return err
	}
	return k.io.WriteFrame(message.TypePlaced, message.SharedMicroBatch{Head: h, RequestSlot: f.slot, ResultSlot: f.back}.Append(nil))
}

func (k *link) placedDone(b []byte) error {
	return k.came(b, true, func(h message.Head, f *request) error {
		c := k.c
		back, err := k.view.Slot(f.back, c.layout.ResultBytes(f.n, f.eval)-message.HeadSize)
		if err != nil {
			return message.Malformed("the results of micro-batch %d: %v", h.Number, err)
		}
		return c.layout.ParsePlacedDone(h, back, f.micro)
	})
}

// placedSum reads a gradient sum from shared memory.
//
// invariant[heter-sum-slot]: a heter-trainer always writes a sum to shared memory only on request,
// because the trainer requests the next sum only after it has read the last.
func (k *link) placedSum() error {
	k.c.mu.Lock()
	wanted := k.lending.asked && k.lending.placed && k.lending.have == 0
	k.c.mu.Unlock()
	if !wanted {
		return message.Malformed("a sum in shared memory that nobody has asked for")
	}
	b, err := k.view.Slot(k.view.Slots()-1, 4*k.c.Len())
	if err != nil {
		return message.Malformed("a sum: %v", err)
	}
	return k.c.gathered(k, bytesview.As[float32](b), false)
}
