//go:build race

package meshtest

const raceEnabled = true
