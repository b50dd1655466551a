package weights

import (
	"archive/zip"
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteNPZ writes tensors as NumPy's .npz: a zip file of a .npy for each, not compressed, under its name.
func WriteNPZ(w io.Writer, tensors []Tensor) error {
	z := zip.NewWriter(w)
	for _, t := range tensors {
		f, err := z.CreateHeader(&zip.FileHeader{Name: t.Name + ".npy", Method: zip.Store})
		if err != nil {
			return fmt.Errorf("weights: %w", err)
		}
		out := bufio.NewWriterSize(f, 1<<18)
		_, _ = out.WriteString(npyHeader(t)) // Flush has the fault
		writeValues(out, t)
		if err := out.Flush(); err != nil {
			return fmt.Errorf("weights: writing %s: %w", t.Name, err)
		}
	}
	return z.Close()
}

// npyHeader is what precedes the values in a .npy of version 1.0: they begin at a multiple of 64.
func npyHeader(t Tensor) string {
	kind := "<f4"
	if t.Data == nil {
		kind = "<i8"
	}
	shape := ""
	for _, d := range t.Shape {
		shape += strconv.Itoa(d) + ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", kind, shape)
	text += strings.Repeat(" ", -(10+len(text)+1)&63) + "\n"
	return "\x93NUMPY\x01\x00" + string([]byte{byte(len(text)), byte(len(text) >> 8)}) + text
}
