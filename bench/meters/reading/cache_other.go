//go:build !linux

package reading

import "os"

// canDropCache says whether dropCache does anything.
const canDropCache = false

func dropCache(*os.File) error { return nil }
