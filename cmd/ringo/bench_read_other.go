//go:build !linux

package main

import "os"

// canDropCache says whether dropCache does anything.
const canDropCache = false

func dropCache(*os.File) error { return nil }
