package parquet

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// A list of 100 Mi elements in a file of 24 bytes is an error that costs nothing.
func TestLongLists(t *testing.T) {
	footer := []byte{0x15, 0x02, 0x19, 0xfc, 0xff, 0xff, 0xff, 0x31, 0, 0, 0, 0} // version 1, and a list of 100 Mi - 1 structs
	content := append([]byte("PAR1"), footer...)
	content = append(binary.LittleEndian.AppendUint32(content, uint32(len(footer))), "PAR1"...)
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := pass(t, path)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 1<<20 {
		t.Errorf("%d bytes were allocated, %v", took, err)
	}
}
