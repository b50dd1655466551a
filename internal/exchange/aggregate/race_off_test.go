//go:build !race

package aggregate

const raceDetector = false
