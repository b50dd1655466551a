// Package connpeek checks incoming connections before they cost memory or cryptography.
package connpeek

import "net"

// SpeakFirst sets l to accept only connections with received data or, on Linux, after about seven
// seconds: silent connections then wake no process. It has no effect without system support, or
// without SYN cookies on Linux, where silent connections would fill the queue.
func SpeakFirst(l net.Listener) { speakFirst(l) }

// Peek copies up to len(p) received bytes of conn to p without consuming them, never blocks, and
// returns the number of bytes. n is 0 without data or without support; gone reports a peer that
// closed without data.
func Peek(conn net.Conn, p []byte) (n int, gone bool) { return peek(conn, p) }
