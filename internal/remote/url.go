// Package remote stores a job's checkpoints outside its host: in a bucket of a cloud, or below
// another folder, named by a URL.
//
// A job works in a local folder, the spool, unaware of the store: a [Mirror] downloads an earlier
// attempt's files, and uploads new files to a [store.Store]. Each object of a store is atomic, and
// is uploaded after the objects that it refers to: a store always has checkpoints to resume from,
// even after the loss of a host.
//
// This package has stores of folders, file://. Clients of clouds would enlarge ringo by half, and
// are in the separate module modules/cloud, which plugs in as data/parquet does.
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

// Schemes of store URLs.
const (
	schemeFile  = "file"
	schemeS3    = "s3"
	schemeAzure = "azblob"
	schemeGS    = "gs"
)

// schemes returns the schemes of stores, supported or not.
func schemes() []string { return []string{schemeFile, schemeS3, schemeAzure, schemeGS} }

// IsURL reports whether text is a URL rather than a path. Unknown schemes and URLs with a missing
// slash count, and [Open] rejects them: a folder of that name is unlikely.
func IsURL(text string) bool {
	scheme, rest, ok := strings.Cut(text, ":/")
	return ok && schemeForm.MatchString(scheme) && (strings.HasPrefix(rest, "/") || slices.Contains(schemes(), strings.ToLower(scheme)))
}

var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

func isStore(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && slices.Contains(schemes(), scheme)
}

// Open opens the store of a URL, perhaps without a connection.
//
//	file:///FOLDER
//	s3://BUCKET/PREFIX[?region=R&endpoint=https://HOST&use_path_style=true]
//	azblob://CONTAINER/PREFIX
//
// Clients of clouds find credentials in their standard environment variables and files. Names of
// objects follow PREFIX/.
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

// Shown returns a URL for display: without query, user name and password.
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

// Split returns the URL of the parent folder and the name in it; "" for a whole bucket.
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
		return text, "" // Open reports the error
	}
	if parent = scheme + "://" + cmp.Or(at[:i], "/"); has {
		parent += "?" + query
	}
	return parent, name
}
