package client

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/message"
)

// gatherState counts the calls of AllGather of a client.
type gatherState struct {
	sync.Mutex
	number uint64 // number of the last gather
}

const (
	lengthSize = 8       // length prefix of a blob in bytes
	maxMeeting = 1 << 30 // maximum bytes of a blob
)

// AllGather sends a blob to all trainers, through server 0, and returns all blobs, by trainer: nil
// for trainers that have left or are lost, and an empty non-nil slice for empty blobs. All trainers
// get the same result. AllGather blocks until all active trainers have called it, for at most
// Config.Timeout, even if the server restarts.
//
// The server retains the last result in memory, and sends it to each trainer in rounds of
// message.MaxBlob bytes: AllGather is for metrics, not for data. A blob has at most 1 GiB.
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
				out[t] = nil // blobs of earlier rounds are discarded
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

// gatherRound sends up to message.MaxBlob bytes of each trainer's blob through server 0.
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

// roundsOf returns the number of rounds that the longest blob needs, from the lengths in the
// results of the first round.
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

// whole checks each blob's length prefix and removes it.
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

func (k *link) meet(p *Pull, number uint64, blob []byte) error {
	it, err := k.newRequest(message.TypeGather, p, message.Head{Step: number, Count: len(blob)}, len(blob))
	if err != nil {
		return err
	}
	copy(it.frame[message.Front:], blob)
	return k.add(it)
}

// metAt reads the result of a gather, and keeps this trainer's message for a restarted server.
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
