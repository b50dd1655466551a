//go:build race

package exchange

const raceDetector = true
