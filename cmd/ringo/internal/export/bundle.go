package export

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/server/export"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/onnx"
)

// Names of a bundle's files. The description is written last, and completes the bundle.
const (
	descriptionFile = "bundle.json"
	graphFile       = "model.onnx"
	denseFile       = "dense.safetensors"
)

// writeBundle writes a click model into a folder, and returns a summary.
func (m *trained) writeBundle(dir string) (string, error) {
	if m.spec.Task != model.Click {
		return "", fmt.Errorf("a bundle is of a click model, and %s is none: --format onnx writes a whole model", m.spec.Name)
	}
	if err := newFolder(dir); err != nil {
		return "", err
	}
	d, err := m.describe()
	if err != nil {
		return "", err
	}
	about, err := m.about()
	if err != nil {
		return "", err
	}
	g, err := onnx.New(m.spec, m.model, m.ps, onnx.Config{Names: m.names, About: about, Single: d.single})
	if err != nil {
		return "", err
	}
	if d.inputs(g, m.ps.Tables()); len(m.spec.Input) > 0 {
		d.Inputs = slices.Insert(d.Inputs, 0, input{Name: "values", Kind: "values"})
	}
	rows, err := m.writeRows(dir, d)
	if err == nil {
		err = errors.Join(m.writeDense(filepath.Join(dir, denseFile)), g.WriteFile(filepath.Join(dir, graphFile)))
	}
	if err == nil {
		err = d.write(dir)
	}
	return fmt.Sprintf("%s, a graph of %s and dense weights", cli.Counted(int(rows), "row"), cli.Counted(len(d.Inputs), "input")), err
}

// newFolder creates a folder, or accepts an empty folder: bundles must not be mixed.
func newFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.Mkdir(dir, 0o777)
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("--out %s: the folder has %s: name a new or an empty one", dir, cli.Counted(len(entries), "file"))
	}
	return nil
}

// writeRows writes a file of rows per table, and returns the number of rows.
func (m *trained) writeRows(dir string, d *description) (all int64, err error) {
	for i, t := range m.ps.Tables() {
		rows := func(do func([]uint64, []float32) error) error { return m.job.Each(m.ctx, i, do) }
		if !m.served {
			rows = func(do func([]uint64, []float32) error) error {
				for row := range t.Rows {
					if err := do([]uint64{uint64(row)}, t.Data[row*t.Dim:][:t.Dim]); err != nil {
						return err
					}
				}
				return nil
			}
		}
		n, err := export.File(filepath.Join(dir, d.Tables[i].File), export.Binary, t.Dim, rows)
		if err != nil {
			return 0, err
		}
		d.Tables[i].Rows = n
		all += n
	}
	return all, nil
}

// description is bundle.json: docs/formats/bundle.md.
type description struct {
	Format    string          `json:"format"`
	Version   int             `json:"version"`
	Model     string          `json:"model"`
	Step      int64           `json:"step"`
	Output    output          `json:"output"`
	Separator string          `json:"separator"`
	Header    bool            `json:"header"`
	Columns   []column        `json:"columns"`
	Tables    []table         `json:"tables"`
	Inputs    []input         `json:"inputs"`
	Files     map[string]file `json:"files"`
}

type output struct {
	Name        string `json:"name"`
	Probability string `json:"probability"`
}

type column struct {
	Name      string      `json:"name,omitempty"`
	Kind      layout.Kind `json:"kind"`
	Transform string      `json:"transform,omitempty"`
	Separator string      `json:"separator,omitempty"`
	Values    string      `json:"values,omitempty"`
	Base      uint64      `json:"base,omitempty,string"`
}

type table struct {
	Name    string   `json:"name"`
	Dim     int      `json:"dim"`
	Rows    int64    `json:"rows"`
	File    string   `json:"file"`
	Index   string   `json:"index"`
	Buckets int      `json:"buckets,omitempty"`
	Initial *initial `json:"initial,omitempty"`
}

// initial is the initial weights of rows missing in the file of rows.
type initial struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Stream uint64  `json:"stream,string"`
}

type input struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Table   string   `json:"table,omitempty"`
	Slots   []string `json:"slots,omitempty"`
	Pooling string   `json:"pooling,omitempty"`
	Steps   int      `json:"steps,omitempty"`
	Missing *int     `json:"missing,omitempty"`
}

type file struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func (d *description) write(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	d.Files = map[string]file{}
	for _, e := range entries {
		f, err := pathname.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		h := sha256.New()
		n, err := io.Copy(h, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		d.Files[e.Name()] = file{n, hex.EncodeToString(h.Sum(nil))}
	}
	return dirlock.WriteFile(filepath.Join(dir, descriptionFile), func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		return e.Encode(d)
	})
}
