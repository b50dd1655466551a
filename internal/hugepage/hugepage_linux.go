package hugepage

import "golang.org/x/sys/unix"

// advise may fail, where the kernel was built without: then pages are small.
func advise(pages []byte) { _ = unix.Madvise(pages, unix.MADV_HUGEPAGE) }

// collapse may fail likewise, before Linux 6.1 and where free memory is in small pieces.
func collapse(pages []byte) {
	const large = 2 << 20                       // of most systems; where it is another, pages stay as they are
	for at := 0; at < len(pages); at += large { // of what nobody has touched nothing is made
		pages[at] = 0
	}
	advise(pages)
	_ = unix.Madvise(pages, unix.MADV_COLLAPSE)
}
