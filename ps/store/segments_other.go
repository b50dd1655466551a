//go:build !linux

package store

import "os"

func atRandom(*os.File) {}
