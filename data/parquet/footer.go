package parquet

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"

	"github.com/apache/thrift/lib/go/thrift"
)

const (
	tailBytes  = 8         // bytes after a footer: length and PAR1
	footerDeep = 64        // maximum nesting of structs
	footerMost = 100 << 20 // thrift's limit
)

// checkFooter checks the footer before arrow-go decodes it: arrow-go allocates the declared length
// of each list, up to 100 Mi elements in a file of 24 bytes. Here a list cannot have more elements
// than the footer has bytes. A missing footer is reported by arrow-go.
func checkFooter(f io.ReaderAt, size int64) error {
	var tail [tailBytes]byte
	if _, err := f.ReadAt(tail[:], max(0, size-tailBytes)); err != nil {
		return nil
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if string(tail[4:]) != "PAR1" || n > size-tailBytes {
		return nil
	}
	footer := make([]byte, n)
	if _, err := f.ReadAt(footer, size-tailBytes-n); err != nil {
		return err
	}
	limits := &thrift.TConfiguration{MaxMessageSize: int32(min(max(n, 1), footerMost))}
	in := thrift.NewTCompactProtocolConf(&thrift.TMemoryBuffer{Buffer: bytes.NewBuffer(footer)}, limits)
	return thrift.Skip(context.Background(), in, thrift.STRUCT, footerDeep)
}
