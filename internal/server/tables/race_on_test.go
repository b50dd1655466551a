//go:build race

package tables

const raceOn = true
