package compress

import "testing"

// Every kind of chain has costs, of payloads that are as long as they must be.
func TestMeasureCosts(t *testing.T) {
	for i, stages := range [][]Stage{{DLGS{Ratio: 0.01}}, {TopK{0.1}, FP16{}}, {BF16{}}, {TopK{0.96}, FP16{}}} {
		values := 4 * costLongest
		if i > 0 { // the limit does not depend on the chain
			values = 64 << 10
		}
		chain, err := NewChain(stages...)
		if err != nil {
			t.Fatal(err)
		}
		samples, err := MeasureCosts(chain, nil, values)
		if err != nil {
			t.Fatal(err)
		}
		last := 0
		for _, s := range samples {
			if s.Values <= last || !(s.Exact > 0 && s.Reuse > 0 && s.Encode > 0 && s.Apply > 0) {
				t.Errorf("%v: %+v", chain, s)
			}
			last = s.Values
			if want := Entries(ratioOf(chain), s.Values); s.Entries < want/4 || s.Entries > min(4*want, s.Values) || ratioOf(chain) > 0.5 && s.Entries != want {
				t.Errorf("%v: %d entries of %d", chain, s.Entries, s.Values)
			}
			if most := PayloadBound(s.Values, chain.Quantiser()); s.Bytes <= headerBytes || s.Bytes > most {
				t.Errorf("%v: payloads of %d bytes of %d values", chain, s.Bytes, s.Values)
			}
		}
		if last != min(values, costLongest) {
			t.Errorf("%v: the longest group has %d values", chain, last)
		}
	}
}

// Small models are measured by what they could send.
func TestMeasureCostsOfSmallModels(t *testing.T) {
	chain, err := NewChain(TopK{0.1})
	if err != nil {
		t.Fatal(err)
	}
	for values, want := range map[int]int{0: 1, 1: 1, 4095: 1, 4096: 2, 20000: 3} {
		if samples, err := MeasureCosts(chain, nil, values); err != nil || len(samples) != want {
			t.Errorf("%d values: %d lengths, %v, want %d", values, len(samples), err, want)
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
