package compress

import "testing"

// Every kind of chain has costs, of payloads that are as long as they must be.
func TestMeasureCosts(t *testing.T) {
	for _, stages := range [][]Stage{{DLGS{Ratio: 0.01}}, {TopK{0.1}, FP16{}}, {BF16{}}} {
		chain, err := NewChain(stages...)
		if err != nil {
			t.Fatal(err)
		}
		samples, err := MeasureCosts(chain, nil)
		if err != nil {
			t.Fatal(err)
		}
		last := 0
		for _, s := range samples {
			if s.Values <= last || !(s.Exact > 0 && s.Reuse > 0 && s.Apply > 0) {
				t.Errorf("%v: %+v", chain, s)
			}
			last = s.Values
			if want := Entries(ratioOf(chain), s.Values); s.Entries < want/4 || s.Entries > 4*want {
				t.Errorf("%v: %d entries of %d", chain, s.Entries, s.Values)
			}
			if most := PayloadBound(s.Values, chain.Quantiser()); s.Bytes <= headerBytes || s.Bytes > most {
				t.Errorf("%v: payloads of %d bytes of %d values", chain, s.Bytes, s.Values)
			}
		}
		if last != costArena {
			t.Errorf("%v: the longest group has %d values", chain, last)
		}
	}
}

func ratioOf(c *Chain) float64 {
	switch s := c.selector.(type) {
	case DLGS:
		return s.Ratio
	case TopK:
		return s.Ratio
	}
	return 1
}
