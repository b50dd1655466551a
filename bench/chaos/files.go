package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// damageCase is one file that was written before, damaged, and what then reads it.
type damageCase struct {
	Kind  string // a name of savings
	Harm  harm
	At    uint64  // where it strikes, by harm.apply
	Which float64 // which of the files, from 0 to 1 in the order of their paths
}

// saving is something that ringo writes and reads again.
type saving struct {
	name   string
	make   func(s *setup, dir string) error // writes it below dir
	read   func(dir string) []string        // the command that reads it from dir
	result func(s *setup, dir string) (string, error)
	// result is what must be as if nothing were damaged when read ends well; nil: the parameters' hash
	damaged func(path string) bool // which of the files may be damaged; nil: all
}

var (
	tiny = []string{"train", "mnist", "--data", "synthetic", "--train-limit", "128", "--eval-limit", "32", "--batch", "8", "--np", "2", "--threads", "1", "--epochs", "1"}
	// of enough steps to be measured
	measured = []string{"train", "mnist", "--data", "synthetic", "--train-limit", "1024", "--eval-limit", "32", "--batch", "8", "--np", "2", "--threads", "1",
		"--epochs", "1", "--strategy", "dlgs"}
	tables = []string{"train", "ctr-dnn", "--data", "synthetic", "--train-limit", "256", "--eval-limit", "64", "--batch", "16", "--set", "data.table-rows=1000",
		"--np", "2", "--threads", "1", "--epochs", "1", "--servers", "2", "--sync", "bsp"}
)

// with returns a command line with more at its end.
func with(args []string, more ...string) []string { return slices.Concat(args, more) }

var savings = []saving{
	{
		name: "checkpoint of ranks",
		make: func(s *setup, dir string) error {
			return s.saved(dir, with(tiny, "--checkpoint", dir+"/saved", "--checkpoint-every", "2"))
		},
		read: func(dir string) []string {
			return with(tiny, "--checkpoint", dir+"/saved", "--checkpoint-every", "2", "--resume")
		},
	},
	{
		name: "checkpoint of ranks and servers",
		make: func(s *setup, dir string) error {
			return s.saved(dir, with(tables, "--checkpoint", dir+"/saved", "--checkpoint-every", "2"))
		},
		read: func(dir string) []string {
			return with(tables, "--checkpoint", dir+"/saved", "--checkpoint-every", "2", "--resume")
		},
	},
	{
		name: "checkpoints of servers, for another job",
		make: func(s *setup, dir string) error {
			return s.saved(dir, with(tables, "--ps-durability", "wal", "--ps-dir", dir+"/saved"))
		},
		read: func(dir string) []string { return with(tables, "--set", "ps.init-from="+dir+"/saved") },
	},
	{
		name: "checkpoints of servers, to export",
		make: func(s *setup, dir string) error {
			return s.saved(dir, with(tables, "--ps-durability", "wal", "--ps-dir", dir+"/saved"))
		},
		read:   func(dir string) []string { return []string{"ps", "export", dir + "/saved", "--out", dir + "/rows"} },
		result: rowsOf,
	},
	{
		name: "logs of servers",
		make: func(s *setup, dir string) error {
			if err := s.saved(dir, with(tables, "--ps-durability", "wal", "--ps-dir", dir+"/saved")); err != nil {
				return err
			}
			return removeNewest(dir + "/saved/server-*/checkpoints/checkpoint-*")
		},
		read:    func(dir string) []string { return []string{"ps", "recover", dir + "/saved"} },
		result:  exported,
		damaged: func(path string) bool { return strings.Contains(path, "/log/") },
	},
	{
		name: "profile",
		make: func(s *setup, dir string) error {
			if err := os.Mkdir(dir+"/saved", 0o755); err != nil {
				return err
			}
			return s.saved(dir, with(measured, "--tune", "--plan", "exact", "--cost-profile", dir+"/saved/profile"))
		},
		read: func(dir string) []string {
			return with(measured, "--plan", "saved", "--cost-profile", dir+"/saved/profile")
		},
	},
}

// drawDamage draws a damaged file: kinds and harms in turn, so that few cases have all.
func drawDamage(rng *rand.Rand, number int) damageCase {
	return damageCase{
		Kind: savings[number%len(savings)].name, Harm: harms[number/len(savings)%len(harms)], At: rng.Uint64(), Which: rng.Float64(),
	}
}

func (c damageCase) String() string {
	return fmt.Sprintf("%s (%x) in the file at %.3f of: %s", c.Harm, c.At, c.Which, c.Kind)
}

// saved runs what writes files.
func (s *setup) saved(dir string, args []string) error {
	_, err := s.trained(dir, args)
	if err == nil && slices.Contains(args, "--checkpoint") {
		err = removeNewest(dir + "/saved/step-*.ringo") // the one at the end leaves nothing to do
	}
	return err
}

// removeNewest removes, in each folder that a pattern reaches, the file or folder whose name is last.
func removeNewest(pattern string) error {
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("nothing is at %s: %w", pattern, err)
	}
	newest := map[string]string{}
	for _, p := range paths {
		newest[filepath.Dir(p)] = max(newest[filepath.Dir(p)], p)
	}
	for _, p := range newest {
		if err := os.RemoveAll(p); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf is the hash of the rows that were exported, in the order of their keys.
func rowsOf(_ *setup, dir string) (string, error) {
	b, err := pathname.Read(dir+"/rows", 1<<30)
	if err != nil {
		return "", err
	}
	rows := strings.Split(string(b), "\n")
	slices.Sort(rows)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(rows, "\n")))), nil
}

// exported exports rows and hashes them.
func exported(s *setup, dir string) (string, error) {
	e, err := s.run(dir, []string{"ps", "export", dir + "/saved", "--out", dir + "/rows"}, damageLimit)
	if err != nil {
		return "", err
	}
	if e.Status != 0 {
		return "", fmt.Errorf("export after recover: %s", lastLine(e.Errs))
	}
	return rowsOf(s, dir)
}

// damageLimit is by when a command that reads a damaged file must have ended.
const damageLimit = 60 * time.Second

func (c damageCase) run(s *setup, dir string) verdict {
	kind := savings[slices.IndexFunc(savings, func(k saving) bool { return k.name == c.Kind })]
	whole := s.fixture("saved: "+kind.name, func(dir string) (string, error) { return "", kind.make(s, dir) })
	if whole.err != nil {
		return broken(whole.err)
	}
	want := s.fixture("read: "+kind.name, func(dir string) (string, error) {
		if err := copyTree(whole.dir+"/saved", dir+"/saved"); err != nil {
			return "", err
		}
		e, got, err := kind.readBack(s, dir)
		if err == nil && e.Status != 0 {
			err = fmt.Errorf("%s, undamaged: %s", kind.name, lastLine(e.Errs))
		}
		return got, err
	})
	if want.err != nil {
		return broken(want.err)
	}
	if err := copyTree(whole.dir+"/saved", dir+"/saved"); err != nil {
		return broken(err)
	}
	path, err := c.damage(dir+"/saved", kind.damaged)
	if err != nil {
		return broken(err)
	}
	e, got, err := kind.readBack(s, dir)
	if err != nil {
		return broken(err)
	}
	return judgeDamaged(path, want.sha, got, e)
}

// readBack reads what was saved, and returns what came of it.
func (k saving) readBack(s *setup, dir string) (ending, string, error) {
	e, err := s.run(dir, k.read(dir), damageLimit)
	if err != nil || e.Status != 0 {
		return e, "", err
	}
	if k.result == nil {
		return e, sha(e.Out), nil
	}
	got, err := k.result(s, dir)
	return e, got, err
}

// damage damages one of the files below a folder and returns its path. Locks are empty and say nothing.
func (c damageCase) damage(dir string, may func(path string) bool) (string, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "LOCK" && (may == nil || may(path)) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		return "", fmt.Errorf("no files in %s: %w", dir, err)
	}
	path := paths[int(c.Which*float64(len(paths)))]
	content, err := pathname.Read(path, 1<<30)
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, c.Harm.apply(content, c.At), 0o644)
}

// lossTold is how a loss is told that does not end the program.
var lossTold = regexp.MustCompile(`(?i)torn|cut off|is lost|are lost|left out|not whole|ends at|damaged`)

// judgeDamaged judges what was made of a damaged file: the same as without the damage,
// an error that names the file, or a loss that is told.
func judgeDamaged(path, want, got string, e ending) verdict {
	v := verdict{Said: lastLine(e.Errs)}
	judgeClean(&v, e)
	if e.Overran {
		return v
	}
	named, told := false, false
	for _, text := range strings.Split(e.Out+"\n"+e.Errs, "\n") {
		if strings.Contains(text, path) || strings.Contains(text, shortPath(path)) {
			named, told = true, told || lossTold.MatchString(text)
		}
	}
	switch {
	case e.Status != 0 && !named:
		v.wrong("the error does not name %s: %s", path, lastLine(e.Errs))
	case e.Status == 0 && got != want && !told:
		v.wrong("%s was taken without a word, with another result", path)
	}
	return v
}

// shortPath is a path's last two parts, as where a folder is named once for several files.
func shortPath(path string) string {
	return filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
}
