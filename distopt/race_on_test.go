//go:build race

package distopt

const raceDetector = true
