//go:build !linux

package simd

import "errors"

func permitTiles() error { return errors.New("its tiles need Linux 5.16 or later") }
