package tcp

import (
	"encoding/binary"
	"errors"

	"github.com/ringo-ml/ringo/transport"
)

// The payload of an abort frame, integers in little endian:
//
//	offset size
//	     0    4  the rank that called Abort
//	     4    4  the lost rank, or 0xffffffff
//	     8    1  1: an operation had timed out; 2: the lost rank was found by a timeout
//	     9    2  length of the reason why the rank is lost
//	    11       the reason why the rank is lost
//	             the reason of the abort, to the end
const (
	abortFixed = 11
	abortWhy   = 9       // offset of the length
	maxWhy     = 2 << 10 // maximum bytes of each of the two texts
	maxAbort   = abortFixed + 2*maxWhy
	noRank     = ^uint32(0)

	timedOut, lostTimedOut = 1, 2
)

var errAbort = errors.New("tcp: malformed abort frame")

func encodeAbort(e *transport.AbortError) []byte {
	rank, why := noRank, ""
	if e.Lost != nil {
		rank, why = uint32(e.Lost.Rank), e.Lost.Reason
	}
	flags := byte(0)
	if e.Timeout {
		flags |= timedOut
	}
	if e.Lost != nil && e.Lost.Timeout {
		flags |= lostTimedOut
	}
	why = why[:min(len(why), maxWhy)]
	b := binary.LittleEndian.AppendUint32(nil, uint32(e.Rank))
	b = binary.LittleEndian.AppendUint32(b, rank)
	b = binary.LittleEndian.AppendUint16(append(b, flags), uint16(len(why)))
	b = append(b, why...)
	return append(b, e.Reason[:min(len(e.Reason), maxWhy)]...)
}

// decodeAbort parses an abort frame of a mesh of size ranks. The aborting rank must be one of them.
// An invalid number of a lost rank is dropped, so that no wrong rank is blamed; the text stays.
func decodeAbort(b []byte, size int) (*transport.AbortError, error) {
	if len(b) < abortFixed || len(b) > maxAbort {
		return nil, errAbort
	}
	from := binary.LittleEndian.Uint32(b)
	rank, flags, n := binary.LittleEndian.Uint32(b[4:]), b[8], int(binary.LittleEndian.Uint16(b[abortWhy:]))
	if b = b[abortFixed:]; n > len(b) || int64(from) >= int64(size) || flags&^(timedOut|lostTimedOut) != 0 {
		return nil, errAbort
	}
	e := &transport.AbortError{Rank: int(from), Reason: string(b[n:]), Timeout: flags&timedOut != 0}
	if int64(rank) < int64(size) {
		e.Lost = &transport.LostError{Rank: int(rank), Reason: string(b[:n]), Timeout: flags&lostTimedOut != 0}
	}
	return e, nil
}
