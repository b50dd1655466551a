package main

import . "github.com/mmcloughlin/avo/build"

// sequence generates the kernels of sequence models of a level.
func sequence(l level) {
	ConstraintExpr("amd64")
	dropout(l)
	lstm(l)
	lookup(l)
	bags(l)
	softmaxGrad(l)
}
