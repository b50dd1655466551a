package data

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// unbalanced is the ratio of the largest class to the smallest from which a note reports it.
const unbalanced = 10

// balance returns notes on the classes of training samples: a single class, classes without
// samples, and classes of very different size. words holds the classes' names, or is nil. A rank
// with separate files can have a single class.
func balance(labels []int32, classes int, words []string) (notes []string) {
	name := func(class int) string {
		if class < len(words) {
			return fmt.Sprintf("%q", words[class])
		}
		return fmt.Sprint(class)
	}
	counts := make([]int, classes)
	for _, l := range labels {
		counts[l]++
	}
	least, most, used := -1, 0, 0
	var empty []string
	for class, n := range counts {
		switch {
		case n == 0:
			empty = append(empty, name(class))
			continue
		case n > counts[most]:
			most = class
		}
		used++
		if least < 0 || n < counts[least] {
			least = class
		}
	}
	if used < 2 {
		return []string{fmt.Sprintf("all %s are of class %s: a model learns from two classes at least", quantity.Count(len(labels), "training sample"), name(most))}
	}
	if len(empty) > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d classes have no training sample: %s", len(empty), classes, strings.Join(empty[:min(len(empty), 5)], ", ")+more(len(empty)-5)))
	}
	if counts[most] >= unbalanced*counts[least] {
		notes = append(notes, fmt.Sprintf("classes differ in size: %s of class %s, %d of class %s", quantity.Count(counts[least], "training sample"), name(least), counts[most], name(most)))
	}
	return notes
}

// more describes the rest of a truncated list.
func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
