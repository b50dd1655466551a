package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Purpose is the purpose of a connection.
type Purpose uint8

const (
	// Control connections join a rank to the coordinator.
	Control Purpose = 1
	// MeshLink connections join two ranks.
	MeshLink Purpose = 2
	// Memory connections hand shared memory to a rank of the same host.
	Memory Purpose = 3
	// Service connections join a trainer to a parameter server.
	Service Purpose = 4
	// Heter connections join a trainer to a heter-trainer.
	Heter Purpose = 5
)

// String returns the purpose's name.
func (p Purpose) String() string {
	switch p {
	case Control:
		return "control"
	case MeshLink:
		return "mesh"
	case Memory:
		return "memory"
	case Service:
		return "parameter server"
	case Heter:
		return "heter-trainer"
	}
	return fmt.Sprintf("purpose %d", uint8(p))
}

// Hello is the introduction of each end of a connection. The proof of the ticket covers it.
type Hello struct {
	Version   string // program's version; other versions are refused
	Purpose   Purpose
	Rank      int    // sender's rank, or -1
	WorldSize int    // number of ranks, or 0 if unknown
	Addr      string // sender's listen address, or ""
	// Streams is the number of connections that the sender has with each rank, and Stream is this
	// connection's index, from 0. Both are 0 for purposes other than MeshLink.
	Streams, Stream int
}

const (
	nonceBytes = 32
	maxAddr    = 256 // bytes of Hello.Addr
	helloFixed = nonceBytes + 1 + 4 + 4 + 1 + 1 + 2
)

var errHello = errors.New("malformed hello")

// appendHello appends h without the version, which precedes every handshake.
func appendHello(b []byte, h Hello, nonce []byte) ([]byte, error) {
	for _, v := range []int{h.Rank, h.WorldSize} {
		if v < -1 || v > math.MaxInt32 {
			return nil, fmt.Errorf("transport: hello of rank %d of %d is out of range", h.Rank, h.WorldSize)
		}
	}
	for _, v := range []int{h.Streams, h.Stream} {
		if v < 0 || v > math.MaxUint8 {
			return nil, fmt.Errorf("transport: hello of stream %d of %d is out of range", h.Stream, h.Streams)
		}
	}
	if len(h.Addr) > maxAddr {
		return nil, fmt.Errorf("transport: an address of %d bytes, the limit is %d", len(h.Addr), maxAddr)
	}
	le := binary.LittleEndian
	b = append(b, nonce...)
	b = append(b, byte(h.Purpose))
	b = le.AppendUint32(b, uint32(int32(h.Rank)))
	b = le.AppendUint32(b, uint32(int32(h.WorldSize)))
	b = append(b, byte(h.Streams), byte(h.Stream))
	b = le.AppendUint16(b, uint16(len(h.Addr)))
	return append(b, h.Addr...), nil
}

// parseHello parses appendHello's output, after the nonce.
func parseHello(b []byte) (Hello, error) {
	if len(b) < helloFixed {
		return Hello{}, fmt.Errorf("%w: %d bytes, at least %d expected", errHello, len(b), helloFixed)
	}
	le := binary.LittleEndian
	b = b[nonceBytes:]
	h := Hello{
		Purpose:   Purpose(b[0]),
		Rank:      int(int32(le.Uint32(b[1:]))),
		WorldSize: int(int32(le.Uint32(b[5:]))),
		Streams:   int(b[9]),
		Stream:    int(b[10]),
		Addr:      string(b[13:]),
	}
	if n := int(le.Uint16(b[11:])); n != len(h.Addr) || n > maxAddr {
		return Hello{}, fmt.Errorf("%w: an address of %d bytes in %d, the limit is %d", errHello, n, len(h.Addr), maxAddr)
	}
	if h.Rank < -1 || h.WorldSize < -1 {
		return Hello{}, fmt.Errorf("%w: rank %d of %d", errHello, h.Rank, h.WorldSize)
	}
	return h, nil
}
