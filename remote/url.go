// Package remote keeps what a job saves elsewhere than on its host: in a bucket of a cloud, or below another folder, as a URL names it.
//
// A job works in a folder of its host, its spool, and knows nothing of this: a [Mirror] brings there what an earlier start has saved, and
// carries what appears there to a [store.Store], beside the job. Each object of a store is whole or absent, and what refers to others comes
// after them: so a store always holds checkpoints that a job can go on from, also where a host goes away in the middle.
//
// Here are stores of folders, file://. Those of clouds need clients that weigh as much as half of ringo, so they have a module of their
// own, remote/cloud, which plugs in as data/parquet does.
package remote

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo/remote/store"
)

// Schemes of the URLs of stores.
const (
	schemeFile  = "file"
	schemeS3    = "s3"
	schemeAzure = "azblob"
	schemeGS    = "gs"
)

// Schemes are those of the URLs that are stores, or would be.
func Schemes() []string { return []string{schemeFile, schemeS3, schemeAzure, schemeGS} }

// IsURL tells whether text is the URL of a store, and no path.
func IsURL(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	if !ok {
		return false
	}
	for _, s := range Schemes() {
		if scheme == s {
			return true
		}
	}
	return false
}

// Open opens the store that a URL names. It may connect to nothing yet.
//
//	file:///FOLDER
//	s3://BUCKET/PREFIX[?region=R&endpoint=https://HOST&use_path_style=true]
//	azblob://CONTAINER/PREFIX
//
// Clouds' clients find credentials as their users expect, in environment and files. Names of objects are those behind PREFIX/.
func Open(ctx context.Context, text string) (store.Store, error) {
	u, err := url.Parse(text)
	if err != nil || !IsURL(text) {
		return nil, fmt.Errorf("remote: %q: want file:///FOLDER, s3://BUCKET/PREFIX or azblob://CONTAINER/PREFIX", text)
	}
	switch {
	case u.Scheme == schemeGS:
		return nil, fmt.Errorf("remote: %s: Google's client would make ringo larger by three quarters, and is not there: mount the bucket (gcsfuse) and name the folder", Shown(text))
	case u.Scheme == schemeFile && (u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != ""):
		return nil, fmt.Errorf("remote: %s: want file:///FOLDER, with a whole path", Shown(text))
	case u.Scheme == schemeFile:
		return store.Folder(filepath.Clean(u.Path)), nil
	case u.Host == "":
		return nil, fmt.Errorf("remote: %s: it names no bucket", Shown(text))
	}
	return openCloud(ctx, u)
}

// Shown is a URL as lines show it: without what stands behind ?, which may be long.
func Shown(text string) string {
	before, _, _ := strings.Cut(text, "?")
	return before
}

// Split is the URL of the folder that holds what a URL names, and its name there; "": it names a whole bucket.
func Split(text string) (parent, name string) {
	before, query, has := strings.Cut(text, "?")
	scheme, at, _ := strings.Cut(before, "://")
	at = strings.TrimRight(at, "/")
	i := strings.LastIndexByte(at, '/')
	if i < 0 {
		return text, ""
	}
	if parent, name = scheme+"://"+at[:i], at[i+1:]; has {
		parent += "?" + query
	}
	return parent, name
}
