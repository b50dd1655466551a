package data

import (
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/data/table"
)

// openParquet refuses Parquet, whose reader would make the binary larger by three quarters. Builds that read it, and Arrow, have
// data/parquet/wiring/parquet.go in place of this file.
func openParquet(path string) (table.Reader, error) {
	return nil, fmt.Errorf("%s: this binary reads no Parquet; in ringo's repository, build one that does: %s", path, buildParquet)
}

// openArrow refuses Arrow files and streams likewise.
func openArrow(path string) (table.Reader, error) {
	return nil, fmt.Errorf("%s: this binary reads no Arrow; in ringo's repository, build one that does: %s", path, buildParquet)
}

// CreateTable begins a table of a format that has types, parquet or arrow. Most builds have no writer of them: an error that says how to
// build one that has.
func CreateTable(format string, _ io.Writer, _ []table.Field) (table.Writer, error) {
	return nil, fmt.Errorf("this binary writes no %s; in ringo's repository, build one that does: %s", map[string]string{"parquet": "Parquet", "arrow": "Arrow"}[format], buildParquet)
}

// buildParquet is how to build a binary that reads and writes Parquet and Arrow.
const buildParquet = "go build -C data/parquet -overlay overlay.json -o ../../ringo ../../cmd/ringo"
