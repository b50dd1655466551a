package message

import (
	"encoding/binary"

	"github.com/ringo-ml/ringo/internal/wire"
)

const (
	// MaxBlob is the maximum size of a blob in a gather, in bytes.
	MaxBlob = 256 << 10

	partHead = 8
)

// Part is a trainer's blob in a gather. Its encoding:
//
//	offset bytes
//	0      4     Trainer
//	4      4     the length of Blob
//	8            Blob
type Part struct {
	Trainer int
	Blob    []byte
}

// AppendPart appends p to b.
func AppendPart(b []byte, p Part) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Trainer))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.Blob)))
	return append(b, p.Blob...)
}

// ParseParts decodes parts, of trainers in ascending order. Blobs alias b. Errors are ErrMalformed.
func ParseParts(b []byte, trainers int) (parts []Part, err error) {
	for last := -1; len(b) > 0; {
		if len(b) < partHead {
			return nil, malformed("%d bytes behind the parts of a meeting", len(b))
		}
		trainer, n := int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
		if b = b[partHead:]; trainer <= last || trainer >= trainers || n > MaxBlob || n > len(b) {
			return nil, malformed("a part of %d bytes, trainer %d of %d, after that of %d, with %d bytes left", n, trainer, trainers, last, len(b))
		}
		parts = append(parts, Part{trainer, b[:n:n]})
		last, b = trainer, b[n:]
	}
	return parts, nil
}

func (l *Limits) longestParts() int { return l.Trainers * (partHead + MaxBlob) }

func (l *Limits) meeting(t wire.Type, h Head) error {
	if err := only(t, h, Head{Number: h.Number, Step: h.Step, Count: h.Count}); err != nil {
		return err
	}
	most := MaxBlob
	if t == TypeGathered {
		most = l.longestParts()
	}
	if h.Step == 0 || h.Count > most {
		return malformed("%s number %d, of %d bytes: they are numbered from 1 on, the limit is %d bytes", Name(t), h.Step, h.Count, most)
	}
	return nil
}
