//go:build !race

package meshtest

const raceEnabled = false
