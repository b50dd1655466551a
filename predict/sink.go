package predict

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"io"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
)

// sink writes the blocks of all ranks on rank 0, in order.
type sink interface {
	write(block []byte) error
	// flush makes all rows written before visible to readers, if the format allows it.
	flush() error
	close() error
}

// plain writes lines unchanged, after the header of CSV. The first line shows whether rows have
// files.
type plain struct {
	w     *writer
	to    *bufio.Writer
	begun bool
}

func (p *plain) write(block []byte) error {
	if len(block) == 0 {
		return nil
	}
	p.begin(block)
	_, err := p.to.Write(block)
	return err
}

// begin writes the header of CSV, for lines with as many fields as the first one of block.
func (p *plain) begin(block []byte) {
	if p.begun || p.w.Format != CSV {
		return
	}
	p.begun = true
	first, _ := csv.NewReader(bytes.NewReader(block)).Read() // none without rows
	var names []string
	for _, f := range p.w.fields(len(first) > len(p.w.fields(false))) {
		names = append(names, f.Name)
	}
	_, _ = p.to.Write(line(nil, names)) // later writes return the error
}

func (p *plain) flush() error { return p.to.Flush() }

func (p *plain) close() error {
	p.begin(nil)
	return p.to.Flush()
}

// typed writes records to a table with typed columns. The first record creates the table: its
// length shows whether rows have files.
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

// begin creates the table, for records that have this number of fields.
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

func (t *typed) flush() error { return nil } // full row groups are written without flush

func (t *typed) close() error {
	if err := t.begin(0); err != nil {
		return err
	}
	return errors.Join(t.table.Close(), t.to.Flush())
}

// newSink returns the sink of the format.
func (w *writer) newSink(to io.Writer) sink {
	buffered := bufio.NewWriterSize(to, 1<<16)
	if w.typed() {
		return &typed{w: w, to: buffered}
	}
	return &plain{w: w, to: buffered}
}

// appendRecord appends the number of texts, and each text after its length.
func appendRecord(dst []byte, record []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(record)))
	for _, text := range record {
		dst = append(binary.AppendUvarint(dst, uint64(len(text))), text...)
	}
	return dst
}

// errRecord reports an invalid record from a rank.
var errRecord = errors.New("a block of predictions that is cut or damaged")

// cutRecord splits the first record from a block.
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
