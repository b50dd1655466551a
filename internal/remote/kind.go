package remote

import (
	"cmp"
	"path"
	"regexp"
	"slices"

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// Kind is the kind of a file in a folder of checkpoints, in the order of upload.
type Kind int

const (
	// KindNone is a file outside checkpoints, such as a lock, a log or evicted rows.
	KindNone Kind = iota - 1
	// KindPart is a file of a server's checkpoint, or its JOB file.
	KindPart
	// KindManifest is the manifest of a server's checkpoint.
	KindManifest
	// KindCheckpoint is rank 0's file, which names the parts of servers.
	KindCheckpoint
)

var (
	checkpointName = regexp.MustCompile(`^step-(\d{9,})\.ringo$`)
	serversName    = regexp.MustCompile(`^((start-\d+/)?server-\d+/)(JOB|checkpoints/checkpoint-\d{12}/(.+))$`)
)

// KindOf returns the kind of a file by its slash-separated name below the folder.
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

// manifestOf returns the manifest that a part of a server's checkpoint needs; "" for other files.
func manifestOf(name string) string {
	m := serversName.FindStringSubmatch(name)
	if m == nil || m[4] == "" {
		return ""
	}
	return name[:len(name)-len(m[4])] + "MANIFEST"
}

// atOnce returns the number of concurrent transfers of a kind: 1 if files may refer to each other.
func (k Kind) atOnce() int {
	if k == KindPart {
		return atOnce
	}
	return 1
}

// inOrder orders names of a kind: a file refers only to files with earlier names.
func inOrder(a, b string) int {
	x, y := path.Base(a), path.Base(b)
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(a, b)) // more digits are a later step
}

// Checkpoints returns rank 0's files among objects, the latest step first.
func Checkpoints(all []store.Object) (out []store.Object) {
	for _, o := range all {
		if KindOf(o.Name) == KindCheckpoint {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b store.Object) int { return inOrder(b.Name, a.Name) })
	return out
}
