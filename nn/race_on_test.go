//go:build race

package nn

// With the race detector, sync.Pool drops what it is given at random: the sums of Kernels.Sum are then allocated.
const raceDetector = true
