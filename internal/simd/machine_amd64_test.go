package simd

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"unsafe"
)

// machine executes the machine code of a function in this process's memory: the integer and vector
// instructions of gemmAMX, and the instructions of AMX as Intel's manual defines them. An
// instruction that is not supported, or that a processor would reject, panics.
type machine struct {
	r          [16]uint64
	pc         uint64
	zero, less bool // flags: equal, and signed less
	k          [8]uint64
	z          [32][16]uint32
	tiles      [8]tileRegister
	configured bool
	counts     map[string]int
}

// tileRegister has rows of at most 64 bytes.
type tileRegister struct {
	rows, bytes int
	data        [16][16]uint32
}

const rsp = 4

// at is the memory at an address.
func at(address uint64, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}

func load64(address uint64) uint64     { return binary.LittleEndian.Uint64(at(address, 8)) }
func store64(address uint64, v uint64) { binary.LittleEndian.PutUint64(at(address, 8), v) }

// codeOf is the address of an assembly function, after the wrapper that Go calls.
func codeOf(f any) uint64 {
	wrapper := reflect.ValueOf(f).Pointer()
	code := at(uint64(wrapper), 256)
	for i, b := range code[:len(code)-5] {
		target := uint64(wrapper) + uint64(i) + 5 + uint64(int64(int32(binary.LittleEndian.Uint32(code[i+1:]))))
		fn := runtime.FuncForPC(uintptr(target))
		if b == 0xe8 && fn != nil && uint64(fn.Entry()) == target && strings.HasPrefix(fn.Name(), runtime.FuncForPC(wrapper).Name()) {
			return target
		}
	}
	panic("no call in the wrapper")
}

// call runs a function until it returns. Arguments that are addresses are of memory outside the
// goroutine's stack, and remain in use after the call.
func (m *machine) call(code uint64, arguments ...uintptr) {
	stack := make([]uint64, 1<<14) // too large for the goroutine's stack, which can move
	top := &stack[500]             // the return address; the arguments follow
	for i, a := range arguments {
		stack[501+i] = uint64(a)
	}
	m.r[rsp], m.pc = uint64(uintptr(unsafe.Pointer(top))), code
	for m.pc != 0 {
		m.step()
	}
	if m.r[rsp] != uint64(uintptr(unsafe.Pointer(top)))+8 || m.configured {
		panic("the stack or the tiles are not as before the call")
	}
	runtime.KeepAlive(stack)
}

// instruction is a decoded instruction.
type instruction struct {
	form               int // 0 without a vector prefix, then 0xc5 (VEX) or 0x62 (EVEX)
	space              int // opcode map: 0, 1 (0F), 2 (0F38)
	prefix             int // 0 none, 1 66, 2 F3, 3 F2
	wide               bool
	opcode             byte
	reg, rm, v         int
	memory             bool
	base, index, scale int // base or index -1: none
	disp               int64
	mask               int
	zeroing            bool
	immediate          int64
	length             int
}

// immediates has the bytes of an opcode's immediate, without a vector prefix.
var immediates = map[byte]int{0x83: 1, 0xc1: 1, 0x81: 4, 0xc7: 4, 0xeb: 1, 0xe9: 4}

func decode(code []byte) (in instruction) {
	rest := code
	next := func() byte { b := rest[0]; rest = rest[1:]; return b }
	bit := func(b byte, i int) int { return int(b >> i & 1) }
	var r, x, b, high int
	switch first := next(); {
	case first == 0xc4:
		p, q := next(), next()
		r, x, b = bit(^p, 7)<<3, bit(^p, 6)<<3, bit(^p, 5)<<3
		in.form, in.space, in.wide, in.v, in.prefix = 0xc5, int(p&31), bit(q, 7) > 0, int(^q>>3&15), int(q&3)
		in.opcode = next()
	case first == 0xc5:
		p := next()
		r = bit(^p, 7) << 3
		in.form, in.space, in.v, in.prefix = 0xc5, 1, int(^p>>3&15), int(p&3)
		in.opcode = next()
	case first == 0x62:
		p, q, s := next(), next(), next()
		r, x, b, high = bit(^p, 7)<<3|bit(^p, 4)<<4, bit(^p, 6)<<3, bit(^p, 5)<<3, bit(^p, 6)<<4
		in.form, in.space, in.wide, in.v, in.prefix = 0x62, int(p&3), bit(q, 7) > 0, int(^q>>3&15)|bit(^s, 3)<<4, int(q&3)
		in.mask, in.zeroing = int(s&7), bit(s, 7) > 0
		if s>>5&3 != 2 || bit(s, 4) > 0 {
			panic("not a vector of 512 bits")
		}
		in.opcode = next()
	default:
		if first>>4 == 4 {
			r, x, b, in.wide = bit(first, 2)<<3, bit(first, 1)<<3, bit(first, 0)<<3, bit(first, 3) > 0
			first = next()
		}
		if in.opcode = first; first == 0x0f {
			in.space, in.opcode = 1, next()
		}
	}
	legacy := in.form == 0
	size := 0
	switch {
	case legacy && in.space == 1 && in.opcode>>4 == 8:
		size = 4
	case legacy && in.space == 0 && in.opcode>>4 == 7:
		size = 1
	case legacy && in.space == 0 && in.opcode&^7 == 0xb8:
		size = 4
	case legacy && in.space == 0:
		size = immediates[in.opcode]
	}
	branch := legacy && (in.opcode>>4 == 7 || in.opcode == 0xeb || in.opcode == 0xe9 || in.space == 1 && in.opcode>>4 == 8)
	bare := branch || legacy && (in.opcode>>4 == 5 || in.opcode == 0xc3 || in.opcode == 0x90) || in.form == 0xc5 && in.space == 1 && in.opcode == 0x77
	switch {
	case legacy && in.space == 0 && (in.opcode>>4 == 5 || in.opcode&^7 == 0xb8): // PUSH, POP, MOVL
		in.reg = int(in.opcode&7) | b
	case !bare:
		modrm := next()
		in.reg, in.rm = int(modrm>>3&7)|r, int(modrm&7)|b|high
		if in.memory = modrm>>6 != 3; in.memory {
			in.base, in.index, in.scale = int(modrm&7)|b, -1, 1
			if modrm&7 == 4 {
				sib := next()
				in.base, in.index, in.scale = int(sib&7)|b, int(sib>>3&7)|x, 1<<(sib>>6)
				if in.index == rsp {
					in.index = -1
				}
			}
			switch modrm >> 6 {
			case 0:
				if in.base&7 == 5 {
					panic("an address without a base")
				}
			case 1:
				in.disp = int64(int8(next())) * in.unit()
			case 2:
				in.disp = int64(int32(binary.LittleEndian.Uint32(rest)))
				rest = rest[4:]
			}
		}
	}
	switch size {
	case 1:
		in.immediate = int64(int8(next()))
	case 4:
		in.immediate = int64(int32(binary.LittleEndian.Uint32(rest)))
		rest = rest[4:]
	}
	in.length = len(code) - len(rest)
	return in
}

// unit is the factor of a displacement of one byte.
func (in *instruction) unit() int64 {
	switch {
	case in.form != 0x62:
		return 1
	case in.space == 2 && in.opcode == 0x18: // VBROADCASTSS
		return 4
	}
	return 64
}

// step executes an instruction.
func (m *machine) step() {
	in := decode(at(m.pc, 16))
	m.pc += uint64(in.length)
	switch {
	case in.form == 0x62:
		m.vector(&in)
	case in.form == 0xc5 && in.space == 2:
		m.amx(&in)
	case in.form == 0xc5 && in.opcode == 0x92: // KMOVW
		m.k[in.reg] = m.r[in.rm] & 0xffff
	case in.form == 0xc5 && in.opcode == 0x77: // VZEROUPPER
	default:
		m.integer(&in)
	}
}

func (m *machine) unsupported(in *instruction) {
	panic(fmt.Sprintf("instruction % x is not supported", at(m.pc-uint64(in.length), in.length)))
}

func (m *machine) address(in *instruction) uint64 {
	address := m.r[in.base] + uint64(in.disp)
	if in.index >= 0 {
		address += m.r[in.index] * uint64(in.scale)
	}
	return address
}

// get and set access the register or memory operand.
func (m *machine) get(in *instruction) uint64 {
	if in.memory {
		return load64(m.address(in))
	}
	return m.r[in.rm]
}

func (m *machine) set(in *instruction, v uint64) {
	if in.memory {
		store64(m.address(in), v)
	} else {
		m.r[in.rm] = v
	}
}

// flags sets the flags of a result, and of a comparison.
func (m *machine) flags(v uint64, less bool) uint64 {
	m.zero, m.less = v == 0, less
	return v
}

func (m *machine) integer(in *instruction) {
	branch := in.space == 0 && in.opcode>>4 == 7 || in.space == 1 && in.opcode>>4 == 8
	if in.wide == (in.opcode&^7 == 0xb8) && slices.Contains(sized, in.opcode) && !branch {
		m.unsupported(in) // all operands have 64 bits, except for MOVL of a constant
	}
	switch {
	case branch:
		if m.condition(in) {
			m.pc += uint64(in.immediate)
		}
	case in.space == 1 && in.opcode == 0xaf: // IMUL
		m.r[in.reg] *= m.get(in)
	case in.space == 1:
		m.unsupported(in)
	default:
		m.common(in)
	}
}

// sized are the opcodes with operands of 32 or 64 bits.
var sized = []byte{0x8b, 0x89, 0xc7, 0x8d, 0x03, 0x01, 0x31, 0x85, 0x83, 0x81, 0xc1, 0xff, 0xaf, 0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf}

func (m *machine) condition(in *instruction) bool {
	switch in.opcode & 15 {
	case 4:
		return m.zero
	case 5:
		return !m.zero
	case 12:
		return m.less
	case 13:
		return !m.less
	case 14:
		return m.zero || m.less
	case 15:
		return !m.zero && !m.less
	}
	m.unsupported(in)
	return false
}

// common executes an instruction of one byte.
func (m *machine) common(in *instruction) {
	switch v := in.immediate; {
	case in.opcode == 0x8b:
		m.r[in.reg] = m.get(in)
	case in.opcode == 0x89:
		m.set(in, m.r[in.reg])
	case in.opcode&^7 == 0xb8: // MOVL
		m.r[in.reg] = uint64(uint32(v))
	case in.opcode == 0xc7:
		m.set(in, uint64(v))
	case in.opcode == 0x8d:
		m.r[in.reg] = m.address(in)
	case in.opcode == 0x03:
		m.r[in.reg] = m.flags(m.r[in.reg]+m.get(in), false)
	case in.opcode == 0x01:
		m.set(in, m.flags(m.get(in)+m.r[in.reg], false))
	case in.opcode == 0x31:
		m.set(in, m.flags(m.get(in)^m.r[in.reg], false))
	case in.opcode == 0x85:
		both := m.get(in) & m.r[in.reg]
		m.flags(both, int64(both) < 0)
	case in.opcode == 0x83 || in.opcode == 0x81:
		m.group(in)
	case in.opcode == 0xc1 && in.reg == 4:
		m.set(in, m.flags(m.get(in)<<v, false))
	case in.opcode == 0xc1 && in.reg == 5:
		m.set(in, m.flags(m.get(in)>>v, false))
	case in.opcode == 0xff && in.reg == 1: // DEC
		m.set(in, m.flags(m.get(in)-1, false))
	case in.opcode == 0xeb || in.opcode == 0xe9:
		m.pc += uint64(v)
	case in.opcode&^7 == 0x50: // PUSH
		m.r[rsp] -= 8
		store64(m.r[rsp], m.r[in.reg])
	case in.opcode&^7 == 0x58: // POP
		m.r[in.reg] = load64(m.r[rsp])
		m.r[rsp] += 8
	case in.opcode == 0xc3:
		m.pc = load64(m.r[rsp])
		m.r[rsp] += 8
	case in.opcode == 0x90:
	default:
		m.unsupported(in)
	}
}

// group executes an operation with an immediate.
func (m *machine) group(in *instruction) {
	a, b := m.get(in), uint64(in.immediate)
	switch in.reg & 7 {
	case 0:
		m.set(in, m.flags(a+b, false))
	case 5:
		m.set(in, m.flags(a-b, int64(a) < int64(b)))
	case 7: // CMP
		m.flags(a-b, int64(a) < int64(b))
	default:
		m.unsupported(in)
	}
}

// vector executes an AVX-512 instruction. Masked lanes of memory are not accessed.
func (m *machine) vector(in *instruction) {
	mask := uint64(0xffff)
	if in.mask > 0 {
		mask = m.k[in.mask]
	}
	lane := func(i int) []byte { return at(m.address(in)+4*uint64(i), 4) }
	operand := func(i int) uint32 {
		switch {
		case !in.memory:
			return m.z[in.rm][i]
		case mask>>i&1 == 0:
			return 0
		case in.space == 2: // VBROADCASTSS
			return binary.LittleEndian.Uint32(lane(0))
		}
		return binary.LittleEndian.Uint32(lane(i))
	}
	var result [16]uint32
	for i := range result {
		x, y := m.z[in.v][i], operand(i)
		if in.space == 1 && in.opcode == 0x11 { // a store
			if mask>>i&1 != 0 {
				binary.LittleEndian.PutUint32(lane(i), m.z[in.reg][i])
			}
			continue
		}
		a, b := math.Float32frombits(x), math.Float32frombits(y)
		switch in.space<<16 | in.prefix<<8 | int(in.opcode) {
		case 0x10010, 0x20118:
			result[i] = y
		case 0x10058:
			result[i] = math.Float32bits(a + b)
		case 0x1005f: // the second operand unless the first is larger
			if result[i] = y; a > b {
				result[i] = x
			}
		case 0x101ef:
			result[i] = x ^ y
		default:
			m.unsupported(in)
		}
		if mask>>i&1 == 0 {
			if result[i] = 0; !in.zeroing {
				result[i] = m.z[in.reg][i]
			}
		}
	}
	if in.space != 1 || in.opcode != 0x11 {
		m.z[in.reg] = result
	}
}
