package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/data/table"
)

// openParquet refuses Parquet, whose reader would make the binary larger by three quarters. Builds that read it have
// data/parquet/wiring/parquet.go in place of this file.
func openParquet(path string) (table.Reader, error) {
	return nil, fmt.Errorf("%s: this binary reads no Parquet; in ringo's repository, build one that does: %s", path, buildParquet)
}

// buildParquet is how to build a binary that reads Parquet.
const buildParquet = "go build -C data/parquet -overlay overlay.json -o ../../ringo ../../cmd/ringo"
