//go:build race

package compress

// The race detector makes sync.Pool forget at random.
const raceDetector = true
