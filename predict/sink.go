package predict

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
)

// sink is where rank 0 writes all ranks' blocks, in order.
type sink interface {
	write(block []byte) error
	// flush lets readers of what is written see all so far, as far as the format allows.
	flush() error
	close() error
}

// plain writes lines as they are.
type plain struct{ to *bufio.Writer }

func (p plain) write(block []byte) error {
	_, err := p.to.Write(block)
	return err
}

func (p plain) flush() error { return p.to.Flush() }
func (p plain) close() error { return p.to.Flush() }

// typed writes records as rows of columns that have types. It begins with the first record, which says whether rows have files.
type typed struct {
	w      *writer
	to     *bufio.Writer
	table  table.Writer
	record []string
}

func (t *typed) write(block []byte) (err error) {
	for len(block) > 0 {
		if t.record, block, err = cutRecord(t.record[:0], block); err != nil {
			return err
		}
		if err = t.begin(len(t.record)); err == nil {
			err = t.table.Append(t.record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin makes the table for records of so many fields.
func (t *typed) begin(fields int) (err error) {
	if t.table != nil {
		return nil
	}
	all := t.w.fields(false)
	if fields == len(all)+1 {
		all = t.w.fields(true)
	}
	t.table, err = data.CreateTable(t.w.Format, t.to, all)
	return err
}

func (t *typed) flush() error { return nil } // groups of rows are written when they are full

func (t *typed) close() error {
	if err := t.begin(0); err != nil {
		return err
	}
	return errors.Join(t.table.Close(), t.to.Flush())
}

// newSink is where the writer's blocks go.
func (w *writer) newSink(to io.Writer) sink {
	buffered := bufio.NewWriterSize(to, 1<<16)
	if w.typed() {
		return &typed{w: w, to: buffered}
	}
	_, _ = buffered.Write(w.header()) // what follows tells its faults
	return plain{buffered}
}

// appendRecord appends texts, each behind its length, behind their number.
func appendRecord(dst []byte, record []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(record)))
	for _, text := range record {
		dst = append(binary.AppendUvarint(dst, uint64(len(text))), text...)
	}
	return dst
}

// errRecord: a rank sends what is no record.
var errRecord = errors.New("a block of predictions that is cut or damaged")

// cutRecord takes the first record of a block apart.
func cutRecord(record []string, block []byte) ([]string, []byte, error) {
	fields, n := binary.Uvarint(block)
	if n <= 0 {
		return nil, nil, errRecord
	}
	block = block[n:]
	for range fields {
		size, n := binary.Uvarint(block)
		if n <= 0 || size > uint64(len(block)-n) {
			return nil, nil, errRecord
		}
		record = append(record, string(block[n:n+int(size)]))
		block = block[n+int(size):]
	}
	return record, block, nil
}
