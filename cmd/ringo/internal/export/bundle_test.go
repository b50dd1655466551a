package export

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/server/export/exporttest"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
)

const bundleLayout = `
columns:
  - {name: clicked, kind: label}
  - {name: price, kind: number, transform: log}
  - {name: user, kind: category}
  - {name: tags, kind: bag, separator: "|"}
  - {name: item, kind: category, table: items}
  - {name: seen, kind: sequence, table: items}
  - {name: code, kind: category, values: hex}
  - {name: other, kind: bag, values: hex}
  - {name: given, kind: bag, values: key}
`

const bundleLines = "0\t3.5\tanna\ta|bb|ccccccccc\t12345678\t1|12345678|3\tff\t0|ffffffffffffffff|1234\t7|18446744073709551615\n" +
	"1\t\t\t\t\t\t\t\t\n" +
	"0\t-2\tünbekannt\ta\t\tx\tabcdef0123456789\t00000001\t0\n"

// reader reads a bundle as docs/formats/bundle.md describes it, and shares no code with the reader
// of training data.
type reader struct {
	d    description
	rows map[string]map[uint64][]float32
}

func readBundle(t *testing.T, dir string) *reader {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, descriptionFile))
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{rows: map[string]map[uint64][]float32{}}
	if err := json.Unmarshal(b, &r.d); err != nil {
		t.Fatal(err)
	}
	for _, tab := range r.d.Tables {
		f, err := os.Open(filepath.Join(dir, tab.File))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rows := map[uint64][]float32{}
		dim, n, err := exporttest.Read(f, r.d.Files[tab.File].Bytes, func(key uint64, weights []float32) error {
			rows[key] = slices.Clone(weights)
			return nil
		})
		if err != nil || dim != tab.Dim || n != tab.Rows {
			t.Fatalf("table %+v: %d rows of %d, %v", tab, n, dim, err)
		}
		r.rows[tab.Name] = rows
	}
	return r
}

const goldenRatio = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 { return rowinit.Mix(z + goldenRatio) }

// key is a value's.
func (c column) key(value string) uint64 {
	switch c.Values {
	case "key":
		v, _ := strconv.ParseUint(value, 10, 64)
		return v
	case "hex":
		v, _ := strconv.ParseUint(value, 16, 64)
		if v >= 1<<56 {
			v = mix(v) & (1<<56 - 1)
		}
		return c.Base<<56 | v
	}
	h := mix(c.Base ^ uint64(len(value)))
	for i := 0; i <= len(value); i += 8 {
		var word [8]byte
		copy(word[:], value[i:])
		h = mix(h ^ binary.LittleEndian.Uint64(word[:]))
	}
	return h
}

// row is the row of a value.
func (t table) row(c column, value string) uint64 {
	if t.Index == bySlotHash {
		v, _ := strconv.ParseUint(value, 16, 64)
		hi, _ := bits.Mul64(mix(v+c.Base*0xd1342543de82ef95), uint64(t.Buckets-1))
		return 1 + hi
	}
	key := c.key(value)
	if t.Index == byHash {
		key, _ = bits.Mul64(mix(key), uint64(t.Buckets))
	}
	return key
}

// begin is the first weights of a row that a file of rows does not have.
func (i initial) begin(key uint64, dim int) (out []float32) {
	stream := mix((i.Stream ^ mix(key)) - goldenRatio)
	for k := range uint64(dim) {
		u := float32(mix(stream+k*goldenRatio)>>40) / (1 << 23)
		out = append(out, (u-1)*float32(i.Value))
	}
	return out
}

// feed returns the inputs of a graph for a line.
func (r *reader) feed(line string) map[string][]float32 {
	out, fields := map[string][]float32{}, map[string]string{}
	for i, f := range strings.Split(line, r.d.Separator) {
		fields[r.d.Columns[i].Name] = f
	}
	for _, in := range r.d.Inputs {
		for _, c := range r.d.Columns {
			if in.Kind == "values" && c.Kind == layout.Number {
				v, _ := strconv.ParseFloat(fields[c.Name], 64)
				if c.Transform == "log" {
					v = math.Log1p(max(v, 0))
				}
				out[in.Name] = append(out[in.Name], float32(v))
			}
		}
		for _, slot := range in.Slots {
			c := r.d.Columns[slices.IndexFunc(r.d.Columns, func(c column) bool { return c.Name == slot })]
			t := r.d.Tables[slices.IndexFunc(r.d.Tables, func(t table) bool { return t.Name == in.Table })]
			var rows []uint64
			if in.Missing != nil && fields[slot] == "" {
				rows = append(rows, uint64(*in.Missing))
			}
			for _, value := range strings.FieldsFunc(fields[slot], func(r rune) bool { return string(r) == c.Separator }) {
				rows = append(rows, t.row(c, value))
			}
			if in.Kind == "rows" {
				out[in.Name] = append(out[in.Name], float32(rows[0]))
				continue
			}
			sum := make([]float32, t.Dim)
			for _, row := range rows {
				for i, v := range r.rows[t.Name][row] {
					sum[i] += v
				}
			}
			out[in.Name] = append(out[in.Name], sum...)
		}
	}
	return out
}

// keyedModel is a click model in memory for bundleLayout, as a checkpoint has it.
func keyedModel(t *testing.T, name string) *trained {
	t.Helper()
	l, err := layout.Read("test", strings.NewReader(bundleLayout))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := models.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	m := &trained{ctx: t.Context(), ps: nn.NewParams(3), step: 7, data: data.Description{Name: "criteo", Classes: 2, Layout: l, Shape: data.Shape{Values: []int{1}, Labels: 1}}}
	for _, c := range l.Of(layout.Column.Slotted) {
		spec.Slots = append(spec.Slots[:len(m.data.Shape.Slots):len(m.data.Shape.Slots)], model.Slot{Name: c.Name, Sequence: c.Kind == layout.Sequence})
		m.data.Shape.Slots = append(m.data.Shape.Slots, data.Slot{Name: c.Name, Sequence: c.Kind == layout.Sequence})
	}
	spec.IDs, spec.Input = 0, []int{1}
	m.spec, m.model = spec, spec.Build(m.ps, model.Options{Batch: 1, Rows: 50, Slots: spec.Slots, Input: spec.Input})
	return m
}

// TestBundleFeedsWhatTheModelSees compares the inputs that a bundle's description gives for lines
// with the sums of rows that the model makes of the same lines, which data.OpenInput has read.
func TestBundleFeedsWhatTheModelSees(t *testing.T) {
	for _, name := range []string{"ctr-dnn", "wide-deep", "deepfm", "dcn-v2", "dlrm"} {
		m, dir := keyedModel(t, name), filepath.Join(t.TempDir(), "bundle")
		if what, err := m.writeBundle(dir); err != nil {
			t.Fatalf("%s: %s, %v", name, what, err)
		}
		r := readBundle(t, dir)
		lines := filepath.Join(t.TempDir(), "lines.txt")
		if err := os.WriteFile(lines, []byte(bundleLines), 0o666); err != nil {
			t.Fatal(err)
		}
		in, err := data.OpenInput(m.data, data.InputConfig{Path: lines, Batch: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		rows, ok, err := in.Next()
		if err != nil || !ok || rows.N != 3 {
			t.Fatal(rows, ok, err)
		}
		bags := nn.Bags{Keys: rows.Bags.Keys, Offsets: rows.Bags.Offsets, N: 3}
		tape := nn.NewTape(nn.TapeConfig{})
		tape.ResetEval()
		for sample, line := range strings.Split(strings.TrimSuffix(bundleLines, "\n"), "\n") {
			got := r.feed(line)
			if want := rows.Values[sample : sample+1]; !slices.Equal(got["values"], want) {
				t.Errorf("%s: values %v, want %v", name, got["values"], want)
			}
			for _, input := range r.d.Inputs[1:] {
				table := m.ps.Tables()[slices.IndexFunc(m.ps.Tables(), func(x *nn.Table) bool { return x.Name == input.Table })]
				var want []float32
				for _, slot := range input.Slots {
					s := slices.IndexFunc(m.spec.Slots, func(s model.Slot) bool { return s.Name == slot })
					one := bags.Slots(s, s+1)
					if input.Kind == "rows" {
						row := float32(table.Rows)
						if lo, hi := one.Offsets[sample], one.Offsets[sample+1]; lo < hi {
							row = float32(nn.RowOf(one.Keys[lo], table.Rows))
						}
						want = append(want, row)
						continue
					}
					y := tape.EmbeddingBag(one, table, nn.SumPool, nil)
					want = append(want, y.Data[sample*table.Dim:][:table.Dim]...)
				}
				for i, v := range want {
					if math.Abs(float64(v)-float64(got[input.Name][i])) > 1e-6 {
						t.Fatalf("%s, line %d: %s is %v, want %v", name, sample, input.Name, got[input.Name], want)
					}
				}
			}
		}
		tape.Close()
		if _, err := m.writeBundle(dir); err == nil || !strings.Contains(err.Error(), "name a new or an empty one") {
			t.Errorf("%s: a second bundle in one folder: %v", name, err)
		}
	}
}

// TestBundleOfServersHasFirstWeights checks the weights of keys that no server had, and the row of
// a category of Criteo's.
func TestBundleOfServersHasFirstWeights(t *testing.T) {
	m := keyedModel(t, "ctr-dnn")
	m.served = true
	d, err := m.describe()
	if err != nil {
		t.Fatal(err)
	}
	for i, table := range m.ps.Tables() {
		if d.Tables[i].Index != byKey || d.Tables[i].Buckets != 0 {
			t.Errorf("%+v", d.Tables[i])
		}
		for row := range table.Rows {
			want := table.Data[row*table.Dim:][:table.Dim] // not trained
			if got := d.Tables[i].Initial.begin(uint64(row), table.Dim); !slices.Equal(got, want) {
				t.Fatalf("row %d of %s begins with %v, want %v", row, table.Name, got, want)
			}
		}
	}
	parser := clicks.NewCriteoParser(1000, false)
	line := "0" + strings.Repeat("\t", 13)
	for slot := range 26 {
		line += fmt.Sprintf("\t%x", slot*slot*slot)
	}
	var b clicks.Block
	if parser.Parse([]byte(line+"\n"), &b); len(b.Faults) > 0 {
		t.Fatal(b.Faults)
	}
	hashed := table{Index: bySlotHash, Buckets: 1000}
	for slot, id := range b.IDs {
		if got := hashed.row(column{Values: "hex", Base: uint64(slot + 1)}, fmt.Sprintf("%x", slot*slot*slot)); got != uint64(id) {
			t.Errorf("slot %d: row %d, want %d", slot, got, id)
		}
	}
}

// TestBundleRefusesOtherModels checks that only click models have a bundle, and that a graph of a
// model with keys refers to it.
func TestBundleRefusesOtherModels(t *testing.T) {
	n := newNet(t, "mlp")
	m := &trained{spec: n.spec, model: n.model, ps: n.ps}
	if _, err := m.writeBundle(t.TempDir()); err == nil || !strings.Contains(err.Error(), "mlp is none: --format onnx") {
		t.Errorf("got %v", err)
	}
	keyed := keyedModel(t, "deepfm")
	if _, err := keyed.writeGraph(filepath.Join(t.TempDir(), "x"), ""); err == nil || !strings.Contains(err.Error(), "--format bundle") {
		t.Errorf("got %v", err)
	}
	keyed.served = true
	if _, err := keyed.writeWeights(filepath.Join(t.TempDir(), "x"), npz); err == nil || !strings.Contains(err.Error(), "--format bundle") {
		t.Errorf("got %v", err)
	}
}
