// Package data is the part of package data that opens and creates Parquet and Arrow files. overlay.json has it stand in place of data/parquet.go,
// which refuses them: the main module must not import this one.
package data

import (
	"io"

	"github.com/ringo-ml/ringo/data/parquet"
	"github.com/ringo-ml/ringo/data/table"
)

// openParquet opens a Parquet file.
//
//lint:ignore U1000 package data calls it, with this file in place
func openParquet(path string) (table.Reader, error) { return parquet.Open(path) }

// openArrow opens an Arrow file or stream.
//
//lint:ignore U1000 package data calls it, with this file in place
func openArrow(path string) (table.Reader, error) { return parquet.OpenArrow(path) }

// CreateTable begins a table of a format that has types, parquet or arrow.
func CreateTable(format string, to io.Writer, fields []table.Field) (table.Writer, error) {
	create := parquet.NewWriter
	if format == "arrow" {
		create = parquet.NewArrowWriter
	}
	w, err := create(to, fields)
	if err != nil {
		return nil, err // not a nil *parquet.Writer, which would be no nil
	}
	return w, nil
}
