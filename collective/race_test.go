//go:build race

package collective

// The race detector makes sync.Pool forget at random.
const raceDetector = true
