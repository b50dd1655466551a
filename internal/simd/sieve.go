package simd

// sieveLevel holds the kernels for the candidates of an exact selection. Counts are multiples of
// vectorLevel.width, at least one. nil: portable.
type sieveLevel struct {
	minAtLeast func(x *float32, n int, least uint32) uint32
	below      func(dst, x *float32, n int, bound uint32) int
	separate   func(toIndex *int32, toValue *float32, index *int32, value *float32, n int, bound uint32, lowIndex *int32, lowValue *float32) int
}

// MinAtLeast returns the smallest magnitude with bits of at least least, which is below 1<<31, or
// all ones without any.
func (k *Kernels) MinAtLeast(x []float32, least uint32) uint32 {
	most := ^uint32(0)
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		most = min(most, k.compress.sieve.minAtLeast(&x[0], n, least))
		x = x[n:]
	}
	for _, v := range x {
		if m := Magnitude(v); m >= least {
			most = min(most, m)
		}
	}
	return most
}

// Below writes to the front of dst the values of x with magnitude bits below bound, and returns
// their number. dst has at least x's length, and is unspecified after the result.
func (k *Kernels) Below(dst, x []float32, bound uint32) (count int) {
	dst = dst[:len(x)]
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		count += k.compress.sieve.below(&dst[count], &x[0], n, bound)
		x = x[n:]
	}
	for _, v := range x { // without branches
		dst[count] = v
		count += int((Magnitude(v) - bound) >> 31)
	}
	return count
}

// Entries are values with their indices.
type Entries struct {
	Index []int32
	Value []float32
}

// Separate writes the entries of e with magnitude bits of at least bound to the front of to, the
// remaining entries to the front of low, both in order, and returns both numbers. to and low have
// at least e's length, and are unspecified after the entries. to may be e, or the same arrays from
// an earlier index on.
func (k *Kernels) Separate(to, low, e Entries, bound uint32) (high, rest int) {
	n := len(e.Index)
	if n != len(e.Value) {
		sameLength("Separate", n, len(e.Value))
	}
	to.Index, to.Value, low.Index, low.Value = to.Index[:n], to.Value[:n], low.Index[:n], low.Value[:n]
	at := 0
	for m := k.bulk(n); m > 0; m = k.bulk(n - at) {
		took := k.compress.sieve.separate(&to.Index[high], &to.Value[high], &e.Index[at], &e.Value[at], m, bound, &low.Index[rest], &low.Value[rest])
		high, rest, at = high+took, rest+m-took, at+m
	}
	for ; at < n; at++ {
		i, v := e.Index[at], e.Value[at]
		if Magnitude(v) >= bound {
			to.Index[high], to.Value[high] = i, v
			high++
		} else {
			low.Index[rest], low.Value[rest] = i, v
			rest++
		}
	}
	return high, rest
}
