//go:build !cgo

package main

func main() {} // without cgo there is no library, and all else builds and is vetted as ever: build.sh turns it on
