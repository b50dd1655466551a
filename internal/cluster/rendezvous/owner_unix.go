//go:build unix

package rendezvous

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// exposed describes the access of other users to a file, or returns "". With roots, the file may
// belong to root and to a group of this process.
func exposed(info fs.FileInfo, roots bool) string {
	mode := info.Mode()
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	ofRoot := roots && owner == 0
	switch {
	case owner != os.Geteuid() && !ofRoot:
		return fmt.Sprintf("it belongs to user %d, not to %d, as whom this process runs", owner, os.Geteuid())
	case mode&0o022 != 0:
		return fmt.Sprintf("others may write it (mode %v)", mode)
	case mode&0o004 != 0, mode&0o040 != 0 && !ofRoot:
		return fmt.Sprintf("others may read it (mode %v)", mode)
	}
	return ""
}
