//go:build !unix

package rendezvous

import "io/fs"

// exposed is "": this system does not say by modes who may read a file.
func exposed(fs.FileInfo, bool) string { return "" }
