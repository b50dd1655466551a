package clicks

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// naiveLine is the parser's twin for one line without its end: split, convert.
func naiveLine(line string, rows int) (out Rows, ok bool) {
	fields := strings.Split(line, "\t")
	if len(fields) != CriteoFields || fields[0] != "0" && fields[0] != "1" {
		return out, false
	}
	out.Labels = []int32{int32(fields[0][0] - '0')}
	for _, f := range fields[1 : 1+CriteoNumbers] {
		x, err := strconv.ParseInt(f, 10, 64)
		if f != "" && (err != nil || f[0] == '+' || len(strings.TrimPrefix(f, "-")) > 18) {
			return out, false
		}
		out.Numbers = append(out.Numbers, float32(math.Log1p(math.Max(0, float64(x)))))
	}
	for slot, f := range fields[1+CriteoNumbers:] {
		x, err := strconv.ParseUint(f, 16, 64)
		switch {
		case f == "":
			out.IDs, out.Keys = append(out.IDs, 0), append(out.Keys, 0)
		case err != nil || len(f) > 16:
			return out, false
		default:
			out.IDs, out.Keys = append(out.IDs, SlotID(slot, x, rows)), append(out.Keys, Key(slot, x))
		}
	}
	return out, true
}

// naiveText is the twin for lines: the rows, and which lines are bad.
func naiveText(text []byte, rows int) (out Rows, bad []int) {
	for i, line := range strings.SplitAfter(string(text), "\n") {
		if line == "" {
			continue
		}
		bare, whole := strings.CutSuffix(line, "\n")
		if whole {
			bare = strings.TrimSuffix(bare, "\r")
		}
		row, ok := naiveLine(bare, rows)
		if !ok {
			bad = append(bad, i)
			continue
		}
		out.Numbers, out.IDs = append(out.Numbers, row.Numbers...), append(out.IDs, row.IDs...)
		out.Keys, out.Labels = append(out.Keys, row.Keys...), append(out.Labels, row.Labels...)
	}
	return out, bad
}

// bothParser gives ids of 1000 rows, and keys.
func bothParser() *CriteoParser {
	p := NewCriteoParser(1000, true)
	return p
}

func checkParse(t *testing.T, p *CriteoParser, text []byte) {
	t.Helper()
	var got Block
	p.Parse(text, &got)
	want, bad := naiveText(text, 1000)
	var faults []int
	for _, f := range got.Faults {
		faults = append(faults, f.Line)
	}
	if !equalRows(got.Rows, want) || !slices.Equal(got.Keys, want.Keys) || !slices.Equal(faults, bad) {
		t.Fatalf("%q: %d rows and bad lines %v, want %d and %v", text, len(got.Labels), faults, len(want.Labels), bad)
	}
}

// Good lines with one to three bytes changed, put in or taken out.
func TestClickParserDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	lines, p := datatest.ClickLines(0, 40), bothParser()
	const letters = "0123456789abcdefABCDEFgG-+ _x.\t\t\t\n\r\x00\x19\x89\xff"
	for range 20_000 {
		text := slices.Concat(lines[r.IntN(40)], lines[r.IntN(40)])
		for range 1 + r.IntN(3) {
			at, c := r.IntN(len(text)), letters[r.IntN(len(letters))]
			switch r.IntN(3) {
			case 0:
				text[at] = c
			case 1:
				text = slices.Insert(text, at, c)
			default:
				text = slices.Delete(text, at, at+1)
			}
		}
		checkParse(t, p, text[:len(text)-r.IntN(2)])
	}
}

func FuzzClickParser(f *testing.F) {
	for _, line := range datatest.ClickLines(0, 3) {
		f.Add(line)
	}
	f.Add([]byte("1" + strings.Repeat("\t", 39) + "\r\n0" + strings.Repeat("\t", 39)))
	f.Add([]byte("1\t-5\t1234567\t12345678" + strings.Repeat("\t", 36) + "ABCDEF01"))
	p := bothParser()
	f.Fuzz(func(t *testing.T, text []byte) { checkParse(t, p, text) })
}

// Counts of every length and form, in texts that end anywhere, are read as one
// after the other is.
func TestCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := NewCriteoParser(2, false)
	for range 100_000 {
		var text []byte
		for range CriteoNumbers + r.IntN(3) - 1 {
			switch n := r.IntN(12); n {
			case 0:
				text = append(text, "-17\n-\x00a9--"[r.IntN(8):][:r.IntN(3)]...)
			case 1:
				text = strconv.AppendInt(text, r.Int64()-r.Int64(), 10)
			case 2:
				text = append(text, bytes.Repeat([]byte("9"), r.IntN(21))...)
			default:
				text = append(text, "123456789"[:n-3]...)
			}
			text = append(text, '\t')
		}
		text = append(text, bytes.Repeat([]byte("1\t"), r.IntN(50))...)
		text = text[:len(text)-r.IntN(3)*r.IntN(min(3, len(text)))]
		var got [CriteoNumbers]float32
		end, column := p.counts(text, 0, &got)
		at := 0
		for i := range CriteoNumbers {
			field, _, found := bytes.Cut(text[at:], []byte{'\t'})
			x, n := integer(field)
			if !found || n != len(field) {
				if column != i || end != at+n {
					t.Fatalf("%q: fault of count %d at %d, want %d at %d", text, column, end, i, at+n)
				}
				break
			}
			if at += n + 1; i < column && got[i] != p.Number(x) {
				t.Fatalf("%q: count %d is %v, want %v", text, i, got[i], p.Number(x))
			}
			if i == CriteoNumbers-1 && (column != CriteoNumbers || end != at) {
				t.Fatalf("%q: %d counts to %d, want all to %d", text, column, end, at)
			}
		}
	}
}

func TestHex8(t *testing.T) {
	p := NewCriteoParser(2, false)
	check := func(word []byte) {
		want, err := strconv.ParseUint(string(word), 16, 64)
		if got, bad := p.hex8(binary.LittleEndian.Uint64(word)); (err == nil) != (bad == 0) || err == nil && got != want {
			t.Fatalf("%q: %x, bad %x, want %x, %v", word, got, bad, want, err)
		}
	}
	for at := range 8 { // every byte at every place
		for c := range 256 {
			word := []byte("0aF9c1E7")
			word[at] = byte(c)
			check(word)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	const letters = "0123456789abcdefABCDEF"
	for range 100_000 {
		word := make([]byte, 8)
		for i := range word {
			if word[i] = letters[r.IntN(len(letters))]; r.IntN(30) == 0 {
				word[i] = byte(r.IntN(256))
			}
		}
		check(word)
	}
}

func TestClickKey(t *testing.T) {
	for _, c := range []struct {
		slot       int
		value, key uint64
	}{
		{0, 0, 1 << 56}, {0, 0x68fd1e64, 1<<56 | 0x68fd1e64}, {25, 1<<56 - 1, 26<<56 | (1<<56 - 1)},
		// A run must have the same keys on every host and in every version.
		{3, 1 << 56, 4<<56 | 0xed992411bbb661},
	} {
		got := Key(c.slot, c.value)
		if got != c.key {
			t.Errorf("slot %d, value %x: %x", c.slot, c.value, got)
		}
	}
	seen := map[uint64]bool{}
	for i := range uint64(10_000) {
		seen[Key(1, 1<<56+i)] = true
	}
	if len(seen) != 10_000 {
		t.Errorf("%d keys of 10,000 long values", len(seen))
	}
}

// TestClickParserReusesMemory parses again into the same memory without an allocation.
func TestClickParserReusesMemory(t *testing.T) {
	text := bytes.Join(datatest.ClickLines(0, 500), nil)
	want, _ := naiveText(text, 1000)
	for _, keys := range []bool{false, true} {
		for _, rows := range []int{0, 1000} {
			p, b := NewCriteoParser(rows, keys), new(Block)
			for _, part := range [][]byte{text, text[:len(text)/3], text} {
				p.Parse(part, b)
			}
			if len(b.Faults) != 0 || !slices.Equal(b.Numbers, want.Numbers) || !slices.Equal(b.Labels, want.Labels) ||
				rows > 0 && !slices.Equal(b.IDs, want.IDs) || rows == 0 && len(b.IDs) != 0 || keys && !slices.Equal(b.Keys, want.Keys) || !keys && len(b.Keys) != 0 {
				t.Errorf("%d rows, keys %v: rows differ, bad: %v", rows, keys, b.Faults)
			}
			if n := testing.AllocsPerRun(5, func() { p.Parse(text, b) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
			p.Parse(slices.Concat(text, []byte("x\ny\n"), text), b)
			if len(b.Faults) != 2 || len(b.Labels) != 1000 || b.Faults[0].Line != 500 || !strings.HasPrefix(b.Faults[0].Text, `label "x"`) {
				t.Errorf("%d rows, bad: %v", len(b.Labels), b.Faults)
			}
		}
	}
}

func BenchmarkClickParser(b *testing.B) { // one goroutine, 50,000 rows in memory
	text := datatest.ClickText(50_000)
	for _, keys := range []bool{false, true} {
		name, rows := "ids", TableRows
		if keys {
			name, rows = "keys", 0
		}
		b.Run(name, func(b *testing.B) {
			p, out := NewCriteoParser(rows, keys), new(Block)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				p.Parse(text, out)
			}
			b.ReportMetric(50_000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// equalRows reports whether rows have equal numbers, ids and labels.
func equalRows(a, b Rows) bool {
	return slices.Equal(a.Numbers, b.Numbers) && slices.Equal(a.IDs, b.IDs) && slices.Equal(a.Labels, b.Labels)
}
