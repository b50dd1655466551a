package train

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/nn"
)

// Hash is the SHA-256 of the parameters: name and little-endian values of each,
// sorted by name, so that it does not depend on how memory is laid out.
func (r *Replica) Hash() [sha256.Size]byte {
	slots := slices.Clone(r.Params.Slots())
	slices.SortFunc(slots, func(a, b nn.Slot) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	values := r.Params.Values()
	var buf []byte
	for _, s := range slots {
		buf = append(buf[:0], s.Name...)
		buf = append(buf, 0)
		for _, v := range values[s.Offset : s.Offset+s.Len] {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
		h.Write(buf)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
