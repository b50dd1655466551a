package data

import (
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/data/table"
)

// openParquet returns an error, because a reader of Parquet would enlarge the binary by three
// quarters. In builds with Parquet and Arrow, data/parquet/wiring/parquet.go replaces this file.
func openParquet(path string) (table.Reader, error) {
	return nil, fmt.Errorf("%s: this binary reads no Parquet; in ringo's repository, build one that does: %s", path, buildParquet)
}

// openArrow rejects Arrow files and streams.
func openArrow(path string) (table.Reader, error) {
	return nil, fmt.Errorf("%s: this binary reads no Arrow; in ringo's repository, build one that does: %s", path, buildParquet)
}

// CreateTable begins a table of a typed format, parquet or arrow. Builds without a writer return an
// error with the command to build one.
func CreateTable(format string, _ io.Writer, _ []table.Field) (table.Writer, error) {
	return nil, fmt.Errorf("this binary writes no %s; in ringo's repository, build one that does: %s", map[string]string{"parquet": "Parquet", "arrow": "Arrow"}[format], buildParquet)
}

// buildParquet is the command to build ringo with Parquet and Arrow.
const buildParquet = "go build -C data/parquet -overlay overlay.json -o ../../ringo ../../cmd/ringo"
