package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// claimsFile lists what README.md and docs promise: page, words of the sentence, evidence,
// separated by tabs.
const claimsFile = "../../docs/claims.tsv"

// evidence is where a claim is held: a test in Go or Python, a program that measures, a page of
// results, or a reason why none is.
var evidence = regexp.MustCompile(`^(?:([\w./-]+_test\.go):((?:Test|Fuzz|Example|Benchmark)\w*)|([\w./-]+\.py):(\w+)|([\w./-]+)(?: --?\w.*)?|not verified: \S.*)$`)

// TestClaimsHaveEvidence: the words of each claim are in its page once, and its test, program or
// page of results exists.
func TestClaimsHaveEvidence(t *testing.T) {
	text, err := os.ReadFile(claimsFile)
	if err != nil {
		t.Fatal(err)
	}
	pages, n := map[string]string{}, 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		n++
		fields := strings.Split(line, "\t")
		if len(fields) != 3 {
			t.Errorf("claim %d: %d fields, want page, words and evidence: %.80q", n, len(fields), line)
			continue
		}
		page, known := pages[fields[0]]
		if !known {
			b, err := os.ReadFile(filepath.Join("..", "..", fields[0]))
			if err != nil {
				t.Errorf("claim %d: %v", n, err)
			}
			page = strings.Join(strings.Fields(string(b)), " ")
			pages[fields[0]] = page
		}
		if c := strings.Count(page, strings.Join(strings.Fields(fields[1]), " ")); c != 1 {
			t.Errorf("%s: %q is there %d times, want once", fields[0], fields[1], c)
		}
		for _, e := range strings.Split(fields[2], "; ") {
			if fault := missingEvidence(e); fault != "" {
				t.Errorf("%s: %q: %s", fields[0], fields[1], fault)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d claims: is the list whole?", n)
	}
}

// missingEvidence returns what is wrong with a piece of evidence, or "".
func missingEvidence(e string) string {
	m := evidence.FindStringSubmatch(e)
	switch {
	case m == nil:
		return "no evidence is of the form " + e
	case m[1] != "":
		return missingText(m[1], "func "+m[2]+"(")
	case m[3] != "":
		return missingText(m[3], "def "+m[4]+"(")
	case m[5] != "":
		if _, err := os.Stat(filepath.Join("..", "..", m[5])); err != nil {
			return err.Error()
		}
	}
	return ""
}

func missingText(file, want string) string {
	b, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(string(b), want) {
		return file + " has no " + want + ")"
	}
	return ""
}

// TestMissingEvidence: evidence that does not exist is reported.
func TestMissingEvidence(t *testing.T) {
	for e, right := range map[string]bool{
		"internal/archtest/claims_test.go:TestMissingEvidence": true, "internal/archtest/claims_test.go:TestNone": false, "nowhere_test.go:TestX": false,
		"bench/README.md": true, "bench/none.md": false, "bench/compare.py --memory": true, "not verified: needs a cluster": true, "not verified: ": false, "somewhere": false,
		"bench/test_compare.py:test_none": false,
	} {
		if fault := missingEvidence(e); (fault == "") != right {
			t.Errorf("%q: %q", e, fault)
		}
	}
}
