//go:build !race

package trainer

const raceDetector = false
