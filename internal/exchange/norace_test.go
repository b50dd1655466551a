//go:build !race

package exchange

const raceDetector = false
