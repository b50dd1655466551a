package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"
)

func init() { emulated = []*Kernels{emulatedAMX(runAMX)} }

// runAMX is gemmAMX, executed by a machine.
func runAMX(t *tile) {
	t.configure()
	new(machine).call(codeOf(gemmAMX), uintptr(unsafe.Pointer(t)))
	runtime.KeepAlive(t)
}

// emulatedAMX returns kernels with products computed by run. Operands are packed by this processor,
// or in Go if it lacks AVX512-BF16.
func emulatedAMX(run func(*tile)) *Kernels {
	base := vectorBF16()
	if base == nil {
		k := *portable
		k.gemm = gemmLevel{nr: 32, masked: true, chained: true, pair: &pairLevel{pairRowsGo, pairBetweenGo, pairColumnsGo}}
		base = &k
	}
	return amxKernels(base, run)
}

func pairRowsGo(dst *float32, ldd int, src *float32, lds, columns, n int) {
	to, from := unsafe.Slice(dst, (n-1)*ldd+(columns+1)/2), unsafe.Slice(src, (n-1)*lds+columns)
	for i := range n {
		for j := 0; j < columns; j += 2 {
			var second float32
			if j+1 < columns {
				second = from[i*lds+j+1]
			}
			to[i*ldd+j/2] = pairOf(from[i*lds+j], second)
		}
	}
}

func pairBetweenGo(dst *float32, ldd int, src *float32, lds, columns, width, n int) {
	to, from := unsafe.Slice(dst, (n-1)*ldd+width), unsafe.Slice(src, (2*n-1)*lds+columns)
	for i := range n {
		clear(to[i*ldd:][:width])
		for j := range columns {
			to[i*ldd+j] = pairOf(from[2*i*lds+j], from[(2*i+1)*lds+j])
		}
	}
}

func pairColumnsGo(dst *float32, src *float32, lds, n int) {
	to, from := unsafe.Slice(dst, 16*n*32), unsafe.Slice(src, 15*lds+32*n)
	for i := range 16 * n {
		for j := range 16 {
			to[i*32+j] = pairOf(from[j*lds+2*i], from[j*lds+2*i+1])
		}
	}
}

// TestAMXStaysInside checks that the kernel neither reads after a panel of B nor uses values after
// the rows of A, and writes no float next to C, for edges in m, n and k.
func TestAMXStaysInside(t *testing.T) {
	k := emulated[0]
	r := rand.New(rand.NewPCG(4, 4))
	for _, m := range []int{1, 2, 15, 16, 17, 31, 32, 33, 50} {
		for _, n := range []int{1, 15, 16, 17, 31, 32, 33, 70} {
			for _, kk := range []int{0, 1, 2, 31, 32, 33, 64, 95, 545} {
				if testing.Short() && (m+n+kk)%5 != 0 {
					continue
				}
				g := gemmCase{m: m, n: n, kk: kk, pad: r.IntN(3), transA: r.IntN(2) > 0, accumulate: r.IntN(2) > 0, bias: r.IntN(2) > 0, relu: r.IntN(2) > 0}
				lda, ldc := kk, n+g.pad
				if g.transA {
					lda = m
				}
				a, b := normal(r, m*kk), normal(r, kk*n)
				c, check := guarded(r, stored(m, n, ldc))
				want := slices.Clone(c)
				var e Epilogue
				if g.bias {
					e.RowBias, e.ColBias = normal(r, m), normal(r, n)
				}
				e.ReLU = g.relu
				var s Scratch
				for i := range grow(&s.a, 1<<16) {
					s.a[:1<<16][i] = float32(math.NaN())
				}
				var p PackedB
				k.PanelsIn(&p, fenced(make([]float32, (n+31)/32*32*((kk+1)/2))), kk, n)
				k.PackB(&p, false, kk, n, b, n)
				k.GemmWith(&s, g.transA, m, n, kk, a, lda, &p, g.accumulate, c, ldc, e)
				check(t, g.String())
				if g.transA {
					a = transposed(a, kk, m)
				}
				brainNaive(k, m, n, kk, a, b, g.accumulate, want, ldc)
				applyEpilogue(want, m, n, ldc, e)
				equalBits(t, g.String(), c, want)
			}
		}
	}
}

// TestAMXVerifies checks that the comparison before the first use accepts the kernel, and rejects
// one with an error in a single part.
func TestAMXVerifies(t *testing.T) {
	if err := emulated[0].verify(); err != nil {
		t.Error(err)
	}
	for name, wrong := range map[string]func(*tile){
		"the rest of the pairs is missing": func(t *tile) {
			t.kc = t.kc / amxStep * amxStep
			runAMX(t)
		},
		"the second half of the columns has those of the first": func(t *tile) {
			runAMX(t)
			for i := 0; i < t.rows*t.tiles && t.columns > 16; i++ {
				copy(t.c[i*t.ldc+16:][:t.columns-16], t.c[i*t.ldc:])
			}
		},
		"the last row is missing": func(t *tile) {
			if t.rows > 16 {
				t.rows--
			}
			runAMX(t)
		},
		"C is not added": func(t *tile) {
			t.accumulate = 0
			runAMX(t)
		},
	} {
		if err := emulatedAMX(wrong).verify(); err == nil {
			t.Errorf("accepted although %s", name)
		} else if !strings.Contains(err.Error(), "want ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAMXInstructions checks that a kernel call uses tiles as intended: one configuration and one
// release, five loads for four products of whole halves. It counts the operations of the peak.
func TestAMXInstructions(t *testing.T) {
	const n = 32
	var s Scratch
	x, c := make([]float32, n*n), make([]float32, n*n)
	m := machine{}
	k := emulatedAMX(func(t *tile) {
		t.configure()
		m.call(codeOf(gemmAMX), uintptr(unsafe.Pointer(t)))
		runtime.KeepAlive(t)
	})
	k.Gemm(&s, false, false, n, n, n, x, n, x, n, false, c, n)
	want := "map[LDTILECFG:1 TDPBF16PS:4 TILELOADD:5 TILERELEASE:1 TILESTORED:4 TILEZERO:4]"
	if got := fmt.Sprint(m.counts); got != want {
		t.Errorf("instructions %s, want %s", got, want)
	}
	peak, p := machine{}, &peakTile
	p.configure()
	peak.call(codeOf(peakAMX), 3, uintptr(unsafe.Pointer(&p.amx.config)))
	if got, want := peak.counts["TDPBF16PS"]*2*16*16*32, 3*4*k.gemm.mr*k.gemm.lanes*2; got != want {
		t.Errorf("the peak's loop has %d operations, want %d", got, want)
	}
}

var peakTile = tile{rows: amxRows, kc: amxStep}

// TestAMXDecoder compares the machine's decoder with the disassembler of binutils: the length of
// each instruction of the kernels, and the operands of AMX's.
func TestAMXDecoder(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip(err)
	}
	for _, f := range []any{gemmAMX, peakAMX} {
		start := codeOf(f)
		var want []string
		size := 0
		for last := byte(0); last != 0xc3; {
			in := decode(at(start+uint64(size), 16))
			want = append(want, fmt.Sprintf("%x %s", size, assembler(&in)))
			size, last = size+in.length, in.opcode
		}
		file := filepath.Join(t.TempDir(), "code")
		if err := os.WriteFile(file, at(start, size), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(objdump, "-D", "-w", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, line := range regexp.MustCompile(`(?m)^ *([0-9a-f]+):\t[^\t]*\t(.*)$`).FindAllStringSubmatch(string(out), -1) {
			text := ""
			if strings.Contains(line[2], "tile") || strings.Contains(line[2], "tdp") {
				text = strings.Join(strings.Fields(line[2]), " ")
			}
			got = append(got, line[1]+" "+text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("objdump has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// assembler is the text of an instruction of AMX in Intel's syntax, or empty.
func assembler(in *instruction) string {
	if in.form != 0xc5 || in.space != 2 {
		return ""
	}
	name := func(i int) string {
		return []string{"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}[i]
	}
	address := func() string {
		text := "[" + name(in.base)
		if in.index >= 0 {
			text += "+" + name(in.index) + "*" + strconv.Itoa(in.scale)
		}
		return text + fmt.Sprintf("+%#x]", in.disp)
	}
	switch in.prefix<<8 | int(in.opcode) {
	case 0x49:
		if !in.memory {
			return "tilerelease"
		}
		return "ldtilecfg " + address()
	case 0x349:
		return fmt.Sprintf("tilezero tmm%d", in.reg)
	case 0x34b:
		return fmt.Sprintf("tileloadd tmm%d,%s", in.reg, address())
	case 0x24b:
		return fmt.Sprintf("tilestored %s,tmm%d", address(), in.reg)
	}
	return fmt.Sprintf("tdpbf16ps tmm%d,tmm%d,tmm%d", in.reg, in.rm, in.v)
}

// TestAMXNeedsPermission checks the errors of a processor without AMX, and that XCR0 has the state of
// vectors.
func TestAMXNeedsPermission(t *testing.T) {
	if cpu.X86.HasAVX && xgetbv()&6 != 6 {
		t.Errorf("XCR0 is %#x, without the state of vectors", xgetbv())
	}
	if cpu.X86.HasAMXTile {
		t.Skip("this processor has AMX")
	}
	if _, err := withAMX(emulated[0]); err == nil || err.Error() != "the operating system does not save its tiles" {
		t.Errorf("kernels without tiles: %v", err)
	}
	if err := permitTiles(); err == nil || !strings.Contains(err.Error(), "Linux 5.16 or later") {
		t.Errorf("permission without tiles: %v", err)
	}
}

// TestAMXCallsAreShort is TestCallsAreShort for calls of the kernel.
func TestAMXCallsAreShort(t *testing.T) {
	most := calls{}
	runLarge(counted(emulatedAMX(func(*tile) {}), most))
	if got := most["gemm"]; got > callSteps || got < callSteps/2 {
		t.Errorf("one call was given %d steps, the limit is %d", got, callSteps)
	}
}
