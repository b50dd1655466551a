package client

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/message"
)

// gatherState is where a client is in the meetings of its job.
type gatherState struct {
	sync.Mutex
	number uint64 // of the last one
}

const (
	lengthSize = 8       // of a blob's length in bytes, which comes before it
	maxMeeting = 1 << 30 // bytes of a blob
)

// AllGather brings a blob to a meeting of all trainers, at server 0, and returns what each has
// brought, by trainer: nil of those that have left or are lost, and something empty of
// those that came with nothing. All get the same. It waits until all that are there have
// come, for Config.Timeout; a server that is started again meanwhile goes on with it.
//
// The server keeps the last meeting's blobs in memory, and all of them go to each
// trainer, message.MaxBlob bytes of each at a time: it is for figures, not for data. A
// blob has at most 1 GiB.
func (c *Client) AllGather(blob []byte) ([][]byte, error) {
	if len(blob) > maxMeeting {
		return nil, fmt.Errorf("ps: trainer %d: meeting: %d bytes: want at most %d", c.cfg.Trainer, len(blob), maxMeeting)
	}
	m := &c.meeting
	m.Lock()
	defer m.Unlock()
	own := append(binary.LittleEndian.AppendUint64(make([]byte, 0, lengthSize+len(blob)), uint64(len(blob))), blob...)
	out := make([][]byte, c.cfg.Trainers)
	for round, rounds := 0, 1; round < rounds; round++ {
		lo := min(round*message.MaxBlob, len(own))
		parts, err := c.gatherRound(own[lo:min(lo+message.MaxBlob, len(own))])
		if err != nil {
			return nil, err
		}
		here := make([]bool, len(out))
		for _, p := range parts {
			here[p.Trainer] = true
			out[p.Trainer] = append(out[p.Trainer], p.Blob...)
		}
		for t := range out {
			if !here[t] {
				out[t] = nil // what it brought to earlier rounds is of no use
			}
		}
		if round == 0 {
			if rounds, err = roundsOf(out); err != nil {
				return nil, err
			}
		}
	}
	return c.whole(out)
}

// gatherRound is one meeting of the server's.
func (c *Client) gatherRound(blob []byte) ([]message.Part, error) {
	l := c.Session(0)
	l.mu.Lock()
	p := l.pull(nil, 0)
	c.meeting.number++
	err := l.links[0].meet(p, c.meeting.number, blob)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p.part(nil)
	if err := p.Wait(); err != nil {
		return nil, err
	}
	return l.links[0].lastParts()
}

// roundsOf is how many rounds the longest blob takes, by the first one.
func roundsOf(first [][]byte) (rounds int, err error) {
	for t, b := range first {
		switch {
		case b == nil:
		case len(b) < lengthSize || binary.LittleEndian.Uint64(b) > maxMeeting:
			return 0, fmt.Errorf("ps: meeting: trainer %d begins with %.8x: want its length, at most %d", t, b, maxMeeting)
		default:
			n := int(binary.LittleEndian.Uint64(b))
			rounds = max(rounds, (n+lengthSize+message.MaxBlob-1)/message.MaxBlob)
		}
	}
	return rounds, nil
}

// whole takes the lengths off, and checks them.
func (c *Client) whole(out [][]byte) ([][]byte, error) {
	for t, b := range out {
		if b == nil {
			continue
		}
		if n := binary.LittleEndian.Uint64(b); n != uint64(len(b)-lengthSize) {
			return nil, fmt.Errorf("ps: trainer %d: meeting: trainer %d has said %d bytes and brought %d", c.cfg.Trainer, t, n, len(b)-lengthSize)
		}
		out[t] = b[lengthSize:]
	}
	return out, nil
}

// meet queues what is brought to a meeting.
func (k *link) meet(p *Pull, number uint64, blob []byte) error {
	it, err := k.newMessage(false, message.Front+len(blob))
	if err != nil {
		return err
	}
	it.t, it.head, it.change, it.pull, it.dst, it.places = message.TypeGather, message.Head{Step: number, Count: len(blob)}, false, p, nil, nil
	copy(it.frame[message.Front:], blob)
	return k.add(it)
}

// metAt reads how a meeting ended. It is kept as the message by which a server that is
// started again learns of it.
func (k *link) metAt(conn *message.Conn, it *outMessage, n int) error {
	frame := make([]byte, message.Front+n)
	if err := conn.Read(frame[message.Front:]); err != nil {
		return err
	}
	if err := message.PutFront(frame, message.TypeGathered, message.Head{Step: it.head.Step, Count: n}); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastGather, k.confirmed = frame, true
	return nil
}

// lastParts is what was brought to the last meeting.
func (k *link) lastParts() ([]message.Part, error) {
	k.mu.Lock()
	body := k.lastGather[message.Front:]
	k.mu.Unlock()
	parts, err := message.ParseParts(body, k.c.cfg.Trainers)
	if err != nil {
		return nil, k.fault("meeting", 0, err)
	}
	return parts, nil
}
