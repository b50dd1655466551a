package data

import (
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/data/table"
)

// openParquet refuses Parquet, whose reader would make the binary larger by three quarters. Builds that read it have
// data/parquet/wiring/parquet.go in place of this file.
func openParquet(path string) (table.Reader, error) {
	return nil, fmt.Errorf("%s: this binary reads no Parquet; in ringo's repository, build one that does: %s", path, buildParquet)
}

// CreateParquet begins a table in Parquet. Most builds have no writer of it: an error that says how to build one that has.
func CreateParquet(io.Writer, []table.Field) (table.Writer, error) {
	return nil, fmt.Errorf("this binary writes no Parquet; in ringo's repository, build one that does: %s", buildParquet)
}

// buildParquet is how to build a binary that reads and writes Parquet.
const buildParquet = "go build -C data/parquet -overlay overlay.json -o ../../ringo ../../cmd/ringo"
