//go:build !linux

package store

import "errors"

func mountSmall(string, string) error { return errors.New("cannot mount here") }
