package record

import (
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
)

// names are the texts of a Recorder. They are written one behind the other, each behind its length in 16 bits, and
// never taken away: an event's number of a text stays right.
type names struct {
	mu    sync.Mutex
	known map[string]Name
	list  []string // by number less 1
	used  int      // bytes
}

// maxName is the longest text in bytes. What is longer is cut.
const maxName = 1 << 10

// Name returns the number of a text, which it keeps the first time: 0, as for "", when there is no more room. It is
// not meant for every event: it takes a lock and, the first time, memory.
func (r *Recorder) Name(text string) Name {
	if r == nil {
		return 0
	}
	if len(text) > maxName {
		text = strings.ToValidUTF8(text[:maxName], "")
	}
	n := &r.names
	n.mu.Lock()
	defer n.mu.Unlock()
	if id, ok := n.known[text]; ok {
		return id
	}
	if n.used+2+len(text) > len(r.text) || len(n.list) >= 1<<16-1 {
		return 0
	}
	binary.LittleEndian.PutUint16(r.text[n.used:], uint16(len(text)))
	copy(r.text[n.used+2:], text)
	n.used += 2 + len(text)
	atomic.StoreUint64(&r.head[headNamesAt], uint64(n.used))
	n.list = append(n.list, text)
	id := Name(len(n.list))
	n.known[text] = id
	return id
}

// Text is the text of a number; "" of one that is unknown.
func (r *Recorder) Text(id Name) string {
	if r == nil || id == 0 {
		return ""
	}
	n := &r.names
	n.mu.Lock()
	defer n.mu.Unlock()
	if int(id) > len(n.list) {
		return ""
	}
	return n.list[id-1]
}
