package simd

import (
	"fmt"
	"syscall"
)

// permitTiles requests the use of AMX's tiles for all threads of the process.
//
// Signal frames then grow by about 8 KiB. Linux returns ENOSPC if a thread has an alternate signal
// stack below AT_MINSIGSTKSZ, such as one of a C program that loads ringo. Go's have 32 KiB.
func permitTiles() error {
	const request, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
	switch _, _, err := syscall.Syscall(syscall.SYS_ARCH_PRCTL, request, tileData, 0); err {
	case 0:
		return nil
	case syscall.ENOSPC:
		return fmt.Errorf("the alternate signal stack of a thread is too small for its tiles: %w", err)
	default:
		return fmt.Errorf("arch_prctl: no permission for its tiles, which needs Linux 5.16 or later: %w", err)
	}
}
