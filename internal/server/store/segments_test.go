package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

func mustSegments(t testing.TB, limit int64) *Segments {
	t.Helper()
	s, err := OpenSegments(t.TempDir(), limit)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

func TestSegmentsDirectory(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, segmentsFile), make([]byte, 1<<20), 0o666)) // of a killed process
	s, err := OpenSegments(dir, 0)
	must(t, err)
	if _, err := OpenSegments(dir, 0); !errors.Is(err, dirlock.ErrHeld) {
		t.Errorf("opened twice: %v", err)
	}
	if z := s.all(); s.disk() != 0 || z.Rows != 0 || s.limit != 0 {
		t.Errorf("a new store: %+v in %d bytes", z, s.disk())
	}
	must(t, s.Close())
	if _, err := os.Stat(filepath.Join(dir, segmentsFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := OpenSegments(dir, 5); err == nil || !strings.Contains(err.Error(), "limit of 5") {
		t.Errorf("a limit of 5 bytes: %v", err)
	}
	if _, err := OpenSegments(filepath.Join(os.Args[0], "x"), 0); err == nil {
		t.Error("a folder in a file")
	}
}

// Rows that are written over and over stay what they are within a limit of less than twice
// their bytes, and each is written less than three times for each Put.
func TestSegmentsClean(t *testing.T) {
	const keys, width = 20_000, 400
	s := mustSegments(t, MinLimitBytes)
	r, rows, put := rand.New(rand.NewPCG(1, 2)), Rows{}, 0
	versions := make([]uint32, keys)
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	for round := range rounds {
		rows.Reset()
		for k := range uint64(keys) {
			if round > 0 && r.IntN(16) != 0 {
				continue
			}
			versions[k]++
			row := make([]byte, width)
			binary.LittleEndian.PutUint32(row, versions[k])
			rows.Add(k, row)
			if round > 0 && round%2 == 0 {
				rows.Old = append(rows.Old, width)
			}
		}
		must(t, s.Put(9, &rows))
		put += len(rows.Data)
		if z := s.all(); s.disk() > MinLimitBytes || z.Rows != keys || z.Bytes != keys*(width+KeyBytes) {
			t.Fatalf("round %d: %+v", round, z)
		}
	}
	var found Rows
	all := make([]uint64, keys)
	for k := range all {
		all[k] = uint64(k)
	}
	must(t, s.Get(9, all, &found))
	for i, k := range found.Keys {
		if got := binary.LittleEndian.Uint32(found.Row(i)); got != versions[k] {
			t.Fatalf("key %d: version %d, want %d", k, got, versions[k])
		}
	}
	if b := s.table(9).index.bytes(); found.Len() != keys || s.cleaned == 0 || b < 8*keys {
		t.Errorf("%d rows, %d segments cleaned, an index of %d bytes", found.Len(), s.cleaned, b)
	}
	if amplified := float64(s.written) / float64(put); amplified > 3 {
		t.Errorf("each row was written %.1f times", amplified)
	}
	checkSegments(t, s)
	must(t, s.Delete(9, all, nil))
	if z := s.all(); z.Rows != 0 || z.Bytes != 0 || s.live != 0 {
		t.Errorf("all rows deleted: %+v, %d bytes count", z, s.live)
	}
	must(t, s.Compact(context.Background()))
	if info, err := os.Stat(s.path); err != nil || info.Size() != 0 || s.disk() != 0 {
		t.Errorf("all rows deleted: the file has %v bytes, %v", info.Size(), err)
	}
}

// checkSegments compares all that a store knows of its file.
func checkSegments(t *testing.T, s *Segments) {
	t.Helper()
	live := int64(0)
	for i, g := range s.slots {
		if g == nil {
			continue
		}
		sum := int64(0)
		scan := scanner{s: s, g: g, slot: int64(g.slot), fill: g.fill}
		must(t, eachBit(g.bits, func(at int64) error {
			key, row, err := scan.record(at)
			sum += recordBytes(len(row))
			if places := g.table.index.find(mix(key), nil); !slices.Contains(places, s.placeAt(int64(i), at*unit)) {
				t.Errorf("segment %d: key %d is at %v, not at unit %d", i, key, places, at)
			}
			return err
		}))
		if sum != g.live || g.slot != i || g.fill > s.size || g.pins != 0 || g.empty {
			t.Errorf("segment %d: %d bytes count, it says %d: %+v", i, sum, g.live, g)
		}
		live += sum
	}
	info, err := os.Stat(s.path)
	if must(t, err); live != s.live || info.Size() > s.peak || s.disk() > s.peak {
		t.Errorf("%d bytes count, it says %d; the file has %d, %d at most", live, s.live, info.Size(), s.peak)
	}
}

// Keys that look the same in the index are told apart by their records.
func TestSegmentsAlike(t *testing.T) {
	s := mustSegments(t, 0)
	alike := make([]uint64, 5)
	for i := range alike {
		alike[i] = unmix(0xABCD<<48 | uint64(i))
	}
	slices.Sort(alike)
	row := func(i, version int) []byte { return bytes.Repeat([]byte{byte(i), byte(version)}, 10+i) }
	want := map[uint64]string{}
	check := func() {
		t.Helper()
		var found Rows
		must(t, s.Get(2, alike, &found))
		if found.Len() != len(want) || s.Table(2).Rows != int64(len(want)) {
			t.Fatalf("%d rows found, %d counted, want %d", found.Len(), s.Table(2).Rows, len(want))
		}
		for i, k := range found.Keys {
			if string(found.Row(i)) != want[k] {
				t.Fatalf("key %d is %q, want %q", k, found.Row(i), want[k])
			}
		}
	}
	for version, places := range [][]int{{0, 2}, {0, 1, 2, 3}, {1, 4}, {0, 1, 2, 3, 4}} {
		var rows Rows
		for _, i := range places {
			rows.Add(alike[i], row(i, version))
			if version%2 == 1 {
				rows.Old = append(rows.Old, int32(len(want[alike[i]])))
				if want[alike[i]] == "" {
					rows.Old[len(rows.Old)-1] = -1
				}
			}
			want[alike[i]] = string(row(i, version))
		}
		must(t, s.Put(2, &rows))
		check()
	}
	must(t, s.Delete(2, alike[1:3], []int32{int32(len(row(1, 0))), int32(len(row(2, 0)))}))
	delete(want, alike[1])
	delete(want, alike[2])
	check()
	must(t, s.Delete(2, alike[:2], nil))
	delete(want, alike[0])
	check()
	checkSegments(t, s)
}

// Who reads while rows are written, cleaned away and their places are used again sees each row
// whole, and none older than before it asked.
func TestSegmentsAtOnce(t *testing.T) {
	const keys, width = 3000, 1500
	s := mustSegments(t, MinLimitBytes)
	write := func(rows *Rows, version uint32, keep func(k uint64) bool) error {
		rows.Reset()
		for k := range uint64(keys) {
			if !keep(k) {
				continue
			}
			row := bytes.Repeat(binary.LittleEndian.AppendUint32(nil, version^uint32(k)), width/4)
			rows.Add(k, row)
			if version > 1 {
				rows.Old = append(rows.Old, width)
			}
		}
		var full *LimitError
		for range 60_000 { // an iteration that does not get its turn holds on to segments
			if err := s.Put(1, rows); !errors.As(err, &full) {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return full
	}
	must(t, write(&Rows{}, 1, func(uint64) bool { return true }))
	var version atomic.Uint32 // all rows are of it, or later
	version.Store(1)
	var done atomic.Bool
	var readers sync.WaitGroup
	for i := range 3 {
		readers.Go(func() {
			r, found := rand.New(rand.NewPCG(5, uint64(i))), Rows{}
			for !done.Load() {
				first := version.Load()
				from := r.Uint64N(keys - 50)
				wanted := make([]uint64, 50)
				for i := range wanted {
					wanted[i] = from + uint64(i)
				}
				if err := s.Get(1, wanted, &found); err != nil || found.Len() != len(wanted) {
					t.Errorf("%d of %d rows: %v", found.Len(), len(wanted), err)
					return
				}
				for i, k := range found.Keys {
					row := found.Row(i)
					v := binary.LittleEndian.Uint32(row) ^ uint32(k)
					if v < first || !bytes.Equal(row, bytes.Repeat(row[:4], width/4)) {
						t.Errorf("key %d: version %d after %d", k, v, first)
						return
					}
				}
			}
		})
	}
	readers.Go(func() {
		for !done.Load() {
			seen := 0
			if err := s.Iterate(1, func(uint64, []byte) error { seen++; return nil }); err != nil || seen != keys {
				t.Errorf("%d rows of %d: %v", seen, keys, err)
				return
			}
		}
	})
	r, rows := rand.New(rand.NewPCG(7, 8)), Rows{}
	rounds := 80
	if testing.Short() {
		rounds = 40
	}
	for v := uint32(2); v < uint32(rounds); v++ {
		for part := range uint64(3) { // out of order, so that segments have rows of many rounds
			if err := write(&rows, v, func(k uint64) bool { return k%3 == part && (r.IntN(3) > 0 || v%4 == 0) }); err != nil {
				t.Error(err)
			}
		}
		if v%4 == 0 {
			version.Store(v)
		}
	}
	done.Store(true)
	readers.Wait()
	if s.cleaned == 0 {
		t.Error("nothing was cleaned")
	}
	checkSegments(t, s)
}

// What an iteration has not come past stays, however much is written meanwhile; then it is used
// again.
func TestSegmentsIterateHolds(t *testing.T) {
	s := mustSegments(t, MinLimitBytes)
	var rows Rows
	fill := func(version byte) error {
		rows.Reset()
		for k := range uint64(7000) {
			rows.Add(k, bytes.Repeat([]byte{version}, 1000))
		}
		return s.Put(1, &rows)
	}
	must(t, fill(1))
	seen, full := 0, error(nil)
	must(t, s.Iterate(1, func(k uint64, row []byte) error {
		if seen++; seen == 1 {
			must(t, fill(2))
			full = fill(3)
		}
		if !bytes.Equal(row, bytes.Repeat([]byte{1}, 1000)) {
			return fmt.Errorf("key %d is of version %d", k, row[0])
		}
		return nil
	}))
	var l *LimitError
	if seen != 7000 || !errors.As(full, &l) {
		t.Errorf("%d rows seen; a third version of all: %v", seen, full)
	}
	must(t, fill(5))
	stop := errors.New("stop")
	if err := s.Iterate(1, func(uint64, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	must(t, fill(6))
	checkSegments(t, s)
}

func TestSegmentsDamage(t *testing.T) {
	s := mustSegments(t, MinLimitBytes)
	var rows, found Rows
	for k := range uint64(1000) {
		rows.Add(k, bytes.Repeat([]byte{byte(k)}, 1000))
	}
	must(t, s.Put(1, &rows))
	at := int64(s.table(1).index.find(mix(123), nil)[0]) * unit
	_, err := s.file.WriteAt([]byte{255}, at+500)
	must(t, err)
	var damage *DamageError
	want := fmt.Sprintf("at byte %d", at)
	wants := func(what string, err error) {
		t.Helper()
		if !errors.As(err, &damage) || damage.Path != s.path || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "table 1") {
			t.Errorf("%s: %v", what, err)
		}
	}
	wants("get", s.Get(1, []uint64{122, 123}, &found))
	wants("iterate", s.Iterate(1, func(uint64, []byte) error { return nil }))
	wants("put", s.Put(1, &Rows{Keys: []uint64{123}, Ends: []int{0}}))
	wants("delete", s.Delete(1, []uint64{123}, nil))
	must(t, s.Get(1, []uint64{122, 124}, &found)) // others can be read
	must(t, s.Put(1, &found))
	must(t, s.Delete(1, rows.Keys[:100], nil))
	if err := s.Compact(context.Background()); !errors.As(err, &damage) {
		t.Errorf("cleaning a damaged segment: %v", err)
	}
	if err := s.Put(1, &found); !errors.As(err, &damage) {
		t.Errorf("a put after damage: %v", err)
	}
	must(t, s.Get(1, []uint64{124}, &found))

	s = mustSegments(t, 0)
	must(t, s.Put(1, &rows))
	must(t, os.Truncate(s.path, 5000))
	if err := s.Get(1, rows.Keys, &found); !errors.As(err, &damage) || found.Len() != 0 {
		t.Errorf("a file cut short: %v", err)
	}
	if err := s.Iterate(1, func(uint64, []byte) error { return nil }); !errors.As(err, &damage) {
		t.Errorf("a file cut short: %v", err)
	}
}

func TestSegmentsLongRows(t *testing.T) {
	s := mustSegments(t, MinLimitBytes)
	var rows, found Rows
	for k := range uint64(20) {
		rows.Add(k, bytes.Repeat([]byte{byte(k)}, maxRow-int(k)))
	}
	must(t, s.Put(1, &rows))
	must(t, s.Put(1, &Rows{Keys: []uint64{100}, Ends: []int{1}, Data: []byte{7}})) // reads begin with few bytes
	must(t, s.Get(1, rows.Keys, &found))
	if !bytes.Equal(found.Data, rows.Data) {
		t.Error("long rows are not what was put")
	}
	rows.Reset()
	rows.Add(5, make([]byte, maxRow+1))
	if err := s.Put(1, &rows); err == nil || !strings.Contains(err.Error(), "131073 bytes in a row: at most 131072") {
		t.Errorf("a row that is too long: %v", err)
	}
	checkSegments(t, s)
}

// Reading and writing allocate nothing once they have what they need.
func TestSegmentsAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	s := mustSegments(t, 0)
	var rows, found Rows
	for k := range uint64(2000) {
		rows.Add(k, make([]byte, 100))
	}
	for name, do := range map[string]func() error{
		"put": func() error { return s.Put(1, &rows) },
		"get": func() error { return s.Get(1, rows.Keys, &found) },
	} {
		for range 3 {
			must(t, do())
		}
		if n := testing.AllocsPerRun(20, func() { must(t, do()) }); n > 2 { // a segment now and then
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(appendRecord(nil, seedOf(1), 5, []byte("row")), uint32(1))
	f.Add([]byte{}, uint32(0))
	f.Add(bytes.Repeat([]byte{255}, 40), uint32(7))
	f.Fuzz(func(t *testing.T, b []byte, table uint32) {
		key, row, needs, err := parseRecord(b, seedOf(table))
		switch {
		case err != nil || needs > 0:
			if needs > 0 && needs <= int64(len(b)) || len(row) > 0 {
				t.Fatalf("%d bytes, and it needs %d", len(b), needs)
			}
		default:
			again := appendRecord(nil, seedOf(table), key, row)
			if n := recordHead + len(row); !bytes.Equal(again[:n], b[:n]) || int64(len(again)) != recordBytes(len(row)) {
				t.Fatalf("%x is read as key %d, %x", b, key, row)
			}
		}
		mine := appendRecord(nil, seedOf(table), uint64(len(b)), b[:min(len(b), maxRow)])
		if k, r, needs, err := parseRecord(mine, seedOf(table)); k != uint64(len(b)) || !bytes.Equal(r, b[:min(len(b), maxRow)]) || needs != 0 || err != nil {
			t.Fatalf("key %d, %d bytes, %v", k, len(r), err)
		}
		if _, _, _, err := parseRecord(mine, seedOf(table+1)); err == nil {
			t.Fatal("a record of another table")
		}
	})
}

// Cleaning copies a part of a segment at a time: what it needs in memory does not grow with
// segments.
func TestSegmentsCleanInParts(t *testing.T) {
	const keys, width, batch = 30_000, 700, 500
	s := mustSegments(t, 0)
	rows := &Rows{}
	put := func(version int, step uint64) {
		for lo := uint64(0); lo < keys; lo += batch {
			rows.Reset()
			for k := lo; k < lo+batch; k += step {
				rows.Add(k, bytes.Repeat([]byte{byte(version), byte(k)}, width/2))
			}
			must(t, s.Put(1, rows))
		}
	}
	put(1, 1)
	put(2, 3)
	must(t, s.Compact(context.Background()))
	if s.cleaned < 2 {
		t.Fatalf("%d segments were cleaned", s.cleaned)
	}
	if most := 3 * s.movedBytes(); cap(s.moved.Data) > most || cap(s.buf) > most {
		t.Errorf("%d and %d bytes for what moves, of segments of %d", cap(s.moved.Data), cap(s.buf), s.size)
	}
	var found Rows
	for k := range uint64(keys) {
		must(t, s.Get(1, []uint64{k}, &found))
		version := byte(1)
		if k%batch%3 == 0 {
			version = 2
		}
		if found.Len() != 1 || !bytes.Equal(found.Row(0), bytes.Repeat([]byte{version, byte(k)}, width/2)) {
			t.Fatalf("key %d: %d rows", k, found.Len())
		}
	}
}

// Rows are read while others of the table are written in other lengths than reads expect.
func TestSegmentsLengthsAtOnce(t *testing.T) {
	s := mustSegments(t, 0)
	s.waits.Store(true) // all rows are waited for, in place of blanks of the expected length
	var rows Rows
	for k := range uint64(50) {
		rows.Add(k, bytes.Repeat([]byte{byte(k)}, 100))
	}
	must(t, s.Put(1, &rows))
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for found := (Rows{}); !done.Load(); {
				if err := s.Get(1, rows.Keys, &found); err != nil || !bytes.Equal(found.Data, rows.Data) {
					t.Errorf("%d rows: %v", found.Len(), err)
					return
				}
			}
		})
	}
	for n := range 2000 {
		must(t, s.Put(1, &Rows{Keys: []uint64{1000}, Ends: []int{n}, Data: make([]byte, n)}))
	}
	done.Store(true)
	readers.Wait()
}
