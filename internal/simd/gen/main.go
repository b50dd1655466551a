// Command gen writes the assembly of package simd, with avo. As a separate module, it keeps the
// generator out of the library's dependencies. `go generate ./internal/simd` at the root of the
// repository regenerates all files.
package main

import (
	"flag"
	"log"
	"strings"

	"github.com/mmcloughlin/avo/build"
)

func main() {
	set := flag.String("set", "", "what to generate, a name of those below followed by 512 or 2")
	table := flag.String("table", "", "Go `file` of a gemm set's declarations and table")
	flag.Parse()
	l := avx2
	name, is512 := strings.CutSuffix(*set, "512")
	if is512 {
		l = avx512
	} else {
		name = strings.TrimSuffix(name, "2")
	}
	sets := map[string]func(level){
		"gemm":     func(l level) { gemm(l, *table) },
		"brain":    func(level) { gemm(avx512Brain, *table) },
		"amx":      func(level) { amx(*table) },
		"vec":      elementwise,
		"act":      activations,
		"window":   windows,
		"norm":     norms,
		"seq":      sequence,
		"rows":     rows,
		"winograd": winograd,
		"reduce":   reductions,
		"compress": compression,
		"opt":      optimizers,
	}
	f := sets[name]
	if f == nil {
		log.Fatalf("unknown -set %q", *set)
	}
	f(l)
	build.Generate()
}
