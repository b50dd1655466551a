// Command gen writes the assembly of package simd, with avo. As a separate module, it keeps the
// generator out of the library's dependencies. `go generate ./internal/simd` at the root of the
// repository regenerates all files.
package main

import (
	"flag"
	"log"

	"github.com/mmcloughlin/avo/build"
)

func main() {
	set := flag.String("set", "", "what to generate, a name of those below")
	table := flag.String("table", "", "Go `file` of a gemm set's declarations and table")
	flag.Parse()
	sets := map[string]func() error{
		"gemm512":     func() error { return gemm(avx512, *table) },
		"gemm2":       func() error { return gemm(avx2, *table) },
		"vec512":      func() error { elementwise(avx512); return nil },
		"vec2":        func() error { elementwise(avx2); transpose8(); return nil },
		"act512":      func() error { activations(avx512); return nil },
		"act2":        func() error { activations(avx2); return nil },
		"window512":   func() error { windows(avx512); return nil },
		"window2":     func() error { windows(avx2); return nil },
		"norm512":     func() error { norms(avx512); layerNorms(avx512); return nil },
		"norm2":       func() error { norms(avx2); layerNorms(avx2); return nil },
		"seq512":      func() error { sequence(avx512); return nil },
		"seq2":        func() error { sequence(avx2); return nil },
		"rows512":     func() error { rows(avx512); return nil },
		"rows2":       func() error { rows(avx2); return nil },
		"winograd512": func() error { winograd(avx512); return nil },
		"winograd2":   func() error { winograd(avx2); return nil },
		"reduce512":   func() error { reductions(avx512); return nil },
		"reduce2":     func() error { reductions(avx2); return nil },
		"compress512": func() error { compression(avx512); return nil },
		"compress2":   func() error { compression(avx2); return nil },
		"opt512":      func() error { optimizers(avx512); return nil },
		"opt2":        func() error { optimizers(avx2); return nil },
	}
	f := sets[*set]
	if f == nil {
		log.Fatalf("unknown -set %q", *set)
	}
	if err := f(); err != nil {
		log.Fatal(err)
	}
	build.Generate()
}
