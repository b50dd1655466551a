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
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// Schemes of the URLs of stores.
const (
	schemeFile  = "file"
	schemeS3    = "s3"
	schemeAzure = "azblob"
	schemeGS    = "gs"
)

// schemes are those of the URLs that are stores, or would be.
func schemes() []string { return []string{schemeFile, schemeS3, schemeAzure, schemeGS} }

// IsURL tells whether text is a URL, such as that of a store, and no path. One of another scheme, or with one slash too few, is one, too, though
// [Open] refuses it: nobody means a folder of that name.
func IsURL(text string) bool {
	scheme, rest, ok := strings.Cut(text, ":/")
	return ok && schemeForm.MatchString(scheme) && (strings.HasPrefix(rest, "/") || slices.Contains(schemes(), strings.ToLower(scheme)))
}

var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// isStore tells whether text is the URL of a store.
func isStore(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && slices.Contains(schemes(), scheme)
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
	if err != nil || !isStore(text) {
		return nil, fmt.Errorf("%s: want file:///FOLDER, s3://BUCKET/PREFIX or azblob://CONTAINER/PREFIX, with %%23, %%25 and %%3F for #, %% and ?", Shown(text))
	}
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("%s: a URL is shown and saved with the run, so it must have no credentials: give them as the store's client finds them, in the environment or its files", Shown(text))
	case u.Fragment != "":
		return nil, fmt.Errorf("%s: write %%23 for #", Shown(text))
	case u.Scheme == schemeGS:
		return nil, fmt.Errorf("%s: Google's client would make ringo larger by three quarters, and is not there: mount the bucket (gcsfuse) and name the folder", Shown(text))
	case u.Scheme == schemeFile && (u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != ""):
		return nil, fmt.Errorf("%s: want file:///FOLDER, with a whole path", Shown(text))
	case u.Scheme == schemeFile:
		return store.Folder(filepath.Clean(u.Path)), nil
	case u.Host == "":
		return nil, fmt.Errorf("%s: it names no bucket", Shown(text))
	case !fs.ValidPath(u.Host + strings.TrimRight(u.Path, "/")):
		return nil, fmt.Errorf("%s: want names between single slashes, no name . or .. among them", Shown(text))
	}
	return openCloud(ctx, u)
}

// Shown is a URL as lines show it: without what stands behind ?, which may be long, and without a user's name and password.
func Shown(text string) string {
	before, _, _ := strings.Cut(text, "?")
	scheme, rest, ok := strings.Cut(before, "://")
	if !ok {
		return before
	}
	host, path, has := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = "..." + host[i:]
	}
	if has {
		path = "/" + path
	}
	return scheme + "://" + host + path
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
	name, err := url.PathUnescape(at[i+1:])
	if err != nil {
		return text, "" // Open says what is wrong
	}
	if parent = scheme + "://" + cmp.Or(at[:i], "/"); has {
		parent += "?" + query
	}
	return parent, name
}
