package remote

import (
	"cmp"
	"path"
	"regexp"
	"slices"

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// Kind says what a file in a folder of checkpoints is, in the order in which they must appear elsewhere.
type Kind int

const (
	// KindNone is no part of a checkpoint, such as a lock, a log or rows that memory had no room for.
	KindNone Kind = iota - 1
	// KindPart is a file of a server's checkpoint, or says which job's it is.
	KindPart
	// KindManifest says which files a server's checkpoint has.
	KindManifest
	// KindCheckpoint is rank 0's file, which names the parts of servers.
	KindCheckpoint
)

var (
	checkpointName = regexp.MustCompile(`^step-(\d{9,})\.ringo$`)
	serversName    = regexp.MustCompile(`^((start-\d+/)?server-\d+/)(JOB|checkpoints/checkpoint-\d{12}/(.+))$`)
)

// KindOf is the kind of a file by its name below the folder, with slashes.
func KindOf(name string) Kind {
	if checkpointName.MatchString(name) {
		return KindCheckpoint
	}
	m := serversName.FindStringSubmatch(name)
	switch {
	case m == nil:
		return KindNone
	case m[4] == "MANIFEST":
		return KindManifest
	}
	return KindPart
}

// manifestOf is the manifest without which a part of a server's checkpoint is of none; "": it is no such part.
func manifestOf(name string) string {
	m := serversName.FindStringSubmatch(name)
	if m == nil || m[4] == "" {
		return ""
	}
	return name[:len(name)-len(m[4])] + "MANIFEST"
}

// atOnce is how many of a kind may travel at the same time: of those that may refer to each other one.
func (k Kind) atOnce() int {
	if k == KindPart {
		return atOnce
	}
	return 1
}

// inOrder compares names of one kind so that what refers to another one of the same folder comes after it: a later step, a higher number.
func inOrder(a, b string) int {
	x, y := path.Base(a), path.Base(b)
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(a, b)) // more digits are a later step
}

// Checkpoints are rank 0's files among objects, the latest step first.
func Checkpoints(all []store.Object) (out []store.Object) {
	for _, o := range all {
		if KindOf(o.Name) == KindCheckpoint {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b store.Object) int { return inOrder(b.Name, a.Name) })
	return out
}
