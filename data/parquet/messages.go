package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// messages is an ipc.MessageReader for arrow-go, which trusts declared lengths. Each message is
// checked first: its position in the file, and the length of each list.
type messages struct {
	r       io.ReaderAt
	at, end int64 // range of the remaining bytes
	mem     *bounded
	listed  int // record batches in the footer; -1: a stream without footer
	batches int // record batches read
	ended   bool
	kinds   dictionaries
	last    *ipc.Message
}

// Message returns the next message, valid until the next call, or io.EOF after the last one.
func (m *messages) Message() (*ipc.Message, error) {
	m.Release()
	if m.at == m.end && m.listed >= 0 { // a file can lack the end mark: the footer lists all batches
		m.ended = true
	}
	if m.ended {
		return nil, io.EOF
	}
	var head [8]byte
	if err := m.read(head[:]); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(head[:]) != endMark {
		return nil, fmt.Errorf("byte %d: no message of Arrow begins here, or one of before version 0.15", m.at-8)
	}
	n := int64(binary.LittleEndian.Uint32(head[4:]))
	if n == 0 {
		m.ended = true
		return nil, io.EOF
	}
	if n > m.end-m.at {
		return nil, fmt.Errorf("byte %d: a message of %d bytes, and %d are left", m.at, n, m.end-m.at)
	}
	meta := make([]byte, n)
	if err := m.read(meta); err != nil {
		return nil, err
	}
	about, err := m.kinds.check(meta)
	if err != nil {
		return nil, fmt.Errorf("byte %d: %w", m.at-n, err)
	}
	if about.body < 0 || about.body > m.end-m.at {
		return nil, fmt.Errorf("byte %d: values of %d bytes, and %d are left", m.at, about.body, m.end-m.at)
	}
	body := memory.NewResizableBuffer(m.mem)
	defer body.Release() // the message has its own reference
	body.Resize(int(about.body))
	if err := m.read(body.Bytes()); err != nil {
		return nil, err
	}
	if err := about.checkBuffers(body.Bytes()); err != nil {
		return nil, fmt.Errorf("byte %d: %w", m.at-about.body, err)
	}
	if about.kind == ipc.MessageRecordBatch {
		m.batches++
	}
	m.last = ipc.NewMessage(memory.NewBufferBytes(meta), body)
	return m.last, nil
}

// read fills b with the next bytes.
func (m *messages) read(b []byte) error {
	if int64(len(b)) > m.end-m.at {
		return fmt.Errorf("byte %d: truncated: it ends here", m.end)
	}
	n, err := m.r.ReadAt(b, m.at)
	if m.at += int64(n); n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) { // io.EOF would mean the end of the stream
		err = io.ErrUnexpectedEOF
	}
	return err
}

// footer reads the footer of a file and ends the messages there.
func (m *messages) footer() error {
	tail := make([]byte, arrowTail)
	if m.end < arrowHead+arrowTail {
		return errors.New("truncated: it has no footer")
	}
	if _, err := m.r.ReadAt(tail, m.end-arrowTail); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if string(tail[4:]) != arrowMagic || n > m.end-arrowTail-arrowHead {
		return errors.New("truncated: it has no footer")
	}
	m.end -= arrowTail + n
	text := make([]byte, n)
	if _, err := m.r.ReadAt(text, m.end); err != nil {
		return err
	}
	m.listed = listLen(root(text), batchSlot)
	return nil
}

// complete returns an error if record batches are missing at the end.
func (m *messages) complete() error {
	if m.listed >= 0 && m.batches != m.listed {
		return fmt.Errorf("%d record batches came, and the footer lists %d", m.batches, m.listed)
	}
	return nil
}

// Retain is a no-op: there is one reader.
func (m *messages) Retain() {}

// Release releases the last message.
func (m *messages) Release() {
	if m.last != nil {
		m.last.Release()
		m.last = nil
	}
}
