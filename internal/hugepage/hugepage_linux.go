package hugepage

import "golang.org/x/sys/unix"

// advise may fail, if the kernel has no large pages: then pages are small.
func advise(pages []byte) { _ = unix.Madvise(pages, unix.MADV_HUGEPAGE) }

// collapse may fail before Linux 6.1 and with fragmented memory: then pages are small.
func collapse(pages []byte) {
	const large = 2 << 20                       // the usual size; with other sizes pages stay small
	for at := 0; at < len(pages); at += large { // only touched pages collapse
		pages[at] = 0
	}
	advise(pages)
	_ = unix.Madvise(pages, unix.MADV_COLLAPSE)
}
