package main

import (
	"os"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
)

// TestAlgorithmNamesAreThoseOfCollective: the names in C have the numbers of collective.Algorithms,
// from 1.
func TestAlgorithmNamesAreThoseOfCollective(t *testing.T) {
	text, err := os.ReadFile("border.c")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"` + strings.Join(append([]string{collective.Auto}, collective.Algorithms()...), `", "`) + `"}`
	if !strings.Contains(string(text), want) {
		t.Errorf("border.c does not have %s", want)
	}
}
