//go:build cgo && linux

package main

// What rows on SSD have in memory, blocks of files and buffers, is C's where there is cgo.
// glibc then keeps for each of up to eight arenas per core what was given back, as much as
// twice the largest piece ever, which is a buffer of some MiB. One arena does: a piece is a
// block that was read from the SSD. It has to be said before there are threads, which begin
// with arenas.

// #include <malloc.h>
//
// static void __attribute__((constructor)) settle(void) {
// #ifdef __GLIBC__
// 	mallopt(M_ARENA_MAX, 1);
// 	mallopt(M_MMAP_THRESHOLD, 1 << 20);
// 	mallopt(M_TRIM_THRESHOLD, 1 << 20);
// #endif
// }
import "C"
