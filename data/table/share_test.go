package table

import (
	"io"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// together studies tables in a goroutine each.
func together(t *testing.T, choice Options, tables ...string) (all []*Encoder, errs []error) {
	t.Helper()
	all, errs = make([]*Encoder, len(tables)), make([]error, len(tables))
	texts := make([][]byte, len(tables))
	var told, done sync.WaitGroup
	told.Add(len(tables))
	for i, text := range tables {
		done.Go(func() {
			in, err := OpenCSV("t.csv", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil })
			if err != nil {
				t.Error(err)
			}
			own := choice
			own.Gather = func(b []byte) ([][]byte, error) {
				texts[i] = b
				told.Done()
				told.Wait()
				return texts, nil
			}
			all[i], errs[i] = InferEncoder(in, own, func(row int64) bool { return row%4 == 3 }, func(err error) error { return err })
		})
	}
	done.Wait()
	return all, errs
}

// Tables that are studied together have the encoding of one table with the rows of all; the same
// table twice counts once.
func TestTogether(t *testing.T) {
	const head = "x,town,y\n"
	a, b := "1,Bern,low\n2.5,Zug,high\n,Bern,low\n4,Genf,low\n", "10,Chur,mid\n20,Bern,high\n30,,low\n40,Zug,mid\n"
	choice := Options{Schema: Schema{"town": Category}}
	all, errs := together(t, choice, head+a, head+b, head+a)
	one, oneErrs := together(t, choice, head+a+b)
	if oneErrs[0] != nil {
		t.Fatal(oneErrs[0])
	}
	for i, e := range all {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		for k, c := range e.Columns {
			want := one[0].Columns[k]
			if math.Abs(c.Mean-want.Mean) > 1e-12 || math.Abs(c.Deviation-want.Deviation) > 1e-12 || c.Kind != want.Kind || !reflect.DeepEqual(c.Words, want.Words) {
				t.Errorf("table %d: %+v, want %+v", i, c, want)
			}
		}
		if e.String() != all[0].String() {
			t.Errorf("table %d has another encoding", i)
		}
	}
	alone, _ := together(t, choice, head+a)
	if twice, _ := together(t, choice, head+a, head+a); !reflect.DeepEqual(twice[0].Columns, alone[0].Columns) {
		t.Errorf("the same table twice is %+v, alone %+v", twice[0].Columns, alone[0].Columns)
	}
	_, errs = together(t, choice, head+a, "x,town,z\n"+b)
	for _, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "want the same in the same order; the first table has x, town, y, another x, town, z") {
			t.Errorf("other columns: %v", err)
		}
	}
}
