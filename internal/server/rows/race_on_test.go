//go:build race

package rows

const raceDetector = true
