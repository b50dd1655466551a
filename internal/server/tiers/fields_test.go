package tiers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/ps/schema"
)

// serverFields collects the fields of all structs that a server's state is made of, as "package.type.field",
// by their types. as names a struct without a name. A type that is decided as a whole is not entered.
func serverFields(t reflect.Type, as string, decided func(field string) bool, fields map[string]bool, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
		serverFields(t.Elem(), as, decided, fields, seen)
	case reflect.Map:
		serverFields(t.Key(), as, decided, fields, seen)
		serverFields(t.Elem(), as, decided, fields, seen)
	case reflect.Struct:
		if t.Name() != "" {
			as, _, _ = strings.Cut(t.String(), "[")
		}
		own := t.Name() == "" || strings.Contains(t.PkgPath(), "/internal/server/") || strings.HasSuffix(t.PkgPath(), "/ps/schema") || strings.HasSuffix(t.PkgPath(), "/optim")
		if seen[t] || !own && t.PkgPath() != "sync/atomic" {
			return
		}
		seen[t] = true
		if whole := as + ".*"; decided(whole) {
			fields[whole] = true
			return
		}
		for f := range t.Fields() {
			if f.Name != "_" && own {
				fields[as+"."+f.Name] = true
			}
			serverFields(f.Type, as+"."+f.Name, decided, fields, seen)
		}
	}
}

// savedKeys returns the JSON keys of a checkpoint's files, as "manifest.key", "header.key" of tables and "array.key" of arrays.
func savedKeys(t *testing.T, dir string, keys map[string]bool) {
	t.Helper()
	var add func(under string, v any)
	add = func(under string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				keys[under+"."+key] = true
				add(under, value)
			}
		case []any:
			for _, value := range v {
				add(under, value)
			}
		}
	}
	for under, pattern := range map[string]string{"manifest": "MANIFEST", "header": "table-*/*", "array": "dense-*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if must(t, err); len(files) == 0 {
			t.Fatalf("no %s in %s", pattern, dir)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			must(t, err)
			var v any
			must(t, json.NewDecoder(bytes.NewReader(b[bytes.IndexByte(b, '{'):])).Decode(&v))
			add(under, v)
		}
	}
}

// TestFieldsOfServersAreDecided: each field of a server's state has a line in testdata/fields.txt, which states where a server that is
// started again has its value from; a key of a checkpoint that a line names is in one.
func TestFieldsOfServersAreDecided(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "fields.txt"))
	must(t, err)
	decisions := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		field, decision, ok := strings.Cut(line, "\t")
		if _, twice := decisions[field]; !ok || twice {
			t.Errorf("%q: want FIELD, a tab and a decision, once", line)
		}
		decisions[field] = decision
	}
	fields, seen := map[string]bool{}, map[reflect.Type]bool{}
	decided := func(field string) bool { return decisions[field] != "" }
	roots := []reflect.Type{reflect.TypeFor[engine.Engine](), reflect.TypeFor[shard.Table](), reflect.TypeFor[Tiers]()}
	for _, name := range admittedRules {
		rule, err := schema.Rule{Name: name, LR: 0.1}.Rows()
		must(t, err)
		roots = append(roots, reflect.TypeOf(rule))
	}
	for _, root := range roots {
		serverFields(root, "", decided, fields, seen)
	}
	keys := savedJob(t)
	kinds := []string{"configuration", "scratch", "statistics", "rebuilt", "log", "rows", "marks", "lines", "keys", "dense"}
	for field, decision := range decisions {
		if !fields[field] {
			t.Errorf("testdata/fields.txt: %s is no field of a server: remove the line", field)
		}
		for from := range strings.SplitSeq(strings.Split(decision, ":")[0], ", ") {
			if !slices.Contains(kinds, from) && !keys[from] {
				t.Errorf("testdata/fields.txt: %s is from %q: want one of %q or a key of a checkpoint", field, from, kinds)
			}
		}
		delete(fields, field)
	}
	for field := range fields {
		t.Errorf("%s has no line in testdata/fields.txt: decide where a server that is started again has its value from, save it or state why not", field)
	}
}

// savedJob runs a server that counts keys, lets a day pass and a trainer be lost, and returns the keys of its checkpoints.
func savedJob(t *testing.T) map[string]bool {
	t.Helper()
	c := drawAdmitted(0)
	c.layout.Dense = []schema.Dense{{Name: "bias", Len: 2, Rule: schema.Rule{Name: "adam", LR: 0.1}}}
	dir := memoryDir(t)
	s := start(t, engine.Config{Job: "fields", Trainers: 2, Mode: engine.BSP, Durability: engine.WAL, Lost: engine.ContinueJob, Dir: dir, MaxRows: 1 << 16}, c.tiers, c.layout)
	defer s.stop(t)
	_, err := s.SetDense(0, 1, 0, 0, []float32{1, 2})
	must(t, err)
	must(t, s.PullRows(rows.PullID{Session: 0, Process: 1, Number: 1, Oldest: 1}, 0, []uint64{1, 2}, make([]float32, 2*c.layout.Sparse[0].Dim)))
	_, err = s.Shrink(context.Background(), 1)
	must(t, err)
	_, err = s.Leave(0, 2)
	must(t, err)
	must(t, s.Lost(1, errors.New("lost")))
	_, err = s.SaveStep(context.Background(), 1, 1)
	must(t, err)
	checkpoints, err := filepath.Glob(filepath.Join(engine.CheckpointDir(dir), "*"))
	must(t, err)
	keys := map[string]bool{}
	for _, checkpoint := range checkpoints {
		savedKeys(t, checkpoint, keys)
	}
	return keys
}
