//go:build !race

package tables

const raceOn = false
