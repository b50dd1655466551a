package hugepage

import "golang.org/x/sys/unix"

// advise may fail, where the kernel was built without: then pages are small.
func advise(pages []byte) { _ = unix.Madvise(pages, unix.MADV_HUGEPAGE) }
