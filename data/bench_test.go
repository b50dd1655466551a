package data

import "testing"

func BenchmarkSyntheticMNIST(b *testing.B) {
	for b.Loop() {
		SyntheticMNIST(1, 6000, 1000) // a tenth of the set
	}
}
