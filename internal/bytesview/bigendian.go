//go:build armbe || arm64be || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || sparc || sparc64

package bytesview

// Payloads, checkpoints, logs and shared memory hold values in the byte order of memory, which is
// little-endian. Big-endian platforms are rejected at compile time.

var _ = ringoNeedsALittleEndianPlatform
