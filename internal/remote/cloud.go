package remote

import (
	"context"
	"fmt"
	"net/url"

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// openCloud refuses buckets, whose clients would make the binary larger by half. Builds that reach them have remote/cloud/wiring/cloud.go
// in place of this file.
func openCloud(_ context.Context, u *url.URL) (store.Store, error) {
	return nil, fmt.Errorf("%s: this binary reaches no buckets; in ringo's repository, build one that does: %s", Shown(u.String()), buildCloud)
}

// buildCloud is how to build a binary that reaches buckets.
const buildCloud = "go build -C remote/cloud -overlay overlay.json -o ../../ringo ../../cmd/ringo"
