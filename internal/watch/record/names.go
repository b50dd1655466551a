package record

import (
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
)

// names are a Recorder's texts, stored sequentially, each after its length in 16 bits. Texts are
// never removed, so the number of a text stays valid.
type names struct {
	mu    sync.Mutex
	known map[string]Name
	list  []string // index is the number - 1
	used  int      // size in bytes
}

// maxName is the maximum length of a text in bytes. Longer texts are cut.
const maxName = 1 << 10

// Name returns the number of a text, and stores a new text. Without space Name returns 0, the
// number of "". Name takes a lock, and allocates for a new text, so is too slow for every event.
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

// Text returns the text of a number, or "" for an unknown number.
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
