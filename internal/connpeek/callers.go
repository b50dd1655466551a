// Package connpeek is what a listener can know of who calls it before a goroutine, memory or
// cryptography is spent on them.
package connpeek

import "net"

// SpeakFirst tells the system that who connects to l speaks first: a connection is not accepted before something came, or, on Linux, about
// seven seconds have passed. So those that say nothing wake no process. It does nothing where the system cannot, or where
// silent connections would then keep others out: on Linux, without SYN cookies.
func SpeakFirst(l net.Listener) { speakFirst(l) }

// Peek returns how many bytes have come on conn, len(p) at most, and copies them to p, but leaves them there to be read. It never waits. It is 0 where
// nothing came yet, and where the system or conn cannot say; gone is whether the other end has closed without a word.
func Peek(conn net.Conn, p []byte) (n int, gone bool) { return peek(conn, p) }
