package remote

import (
	"context"
	"fmt"
	"net/url"

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// openCloud rejects cloud stores, because their clients would enlarge the binary by half. Builds
// with cloud stores replace this file by modules/cloud/wiring/cloud.go.
func openCloud(_ context.Context, u *url.URL) (store.Store, error) {
	return nil, fmt.Errorf("%s: this binary reaches no buckets; in ringo's repository, build one that does: %s", Shown(u.String()), buildCloud)
}

// buildCloud is the command for a binary with cloud stores.
const buildCloud = "go build -C modules/cloud -overlay overlay.json -o ../../ringo ../../cmd/ringo"
