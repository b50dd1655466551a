// Package remote is the part of package remote that opens buckets. overlay.json has it stand in
// place of internal/remote/cloud.go, which refuses them: the main module must not import this one.
package remote

import (
	"context"
	"net/url"

	"github.com/ringo-ml/ringo/internal/remote/store"
	"github.com/ringo-ml/ringo/modules/cloud"
)

// openCloud opens the bucket that a URL names.
//
//lint:ignore U1000 package remote calls it, with this file in place
func openCloud(ctx context.Context, u *url.URL) (store.Store, error) { return cloud.Open(ctx, u) }
