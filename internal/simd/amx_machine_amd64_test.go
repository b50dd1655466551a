package simd

import (
	"encoding/binary"
	"math"
)

// amx executes an instruction of AMX.
func (m *machine) amx(in *instruction) {
	name := map[int]string{0x49: "LDTILECFG", 0x349: "TILEZERO", 0x34b: "TILELOADD", 0x24b: "TILESTORED", 0x25c: "TDPBF16PS"}[in.prefix<<8|int(in.opcode)]
	if name == "LDTILECFG" && !in.memory {
		name = "TILERELEASE"
	}
	if m.counts == nil {
		m.counts = map[string]int{}
	}
	m.counts[name]++
	if !m.configured && name != "LDTILECFG" {
		panic(name + " without sizes of tiles")
	}
	switch name {
	case "LDTILECFG":
		m.configureTiles(at(m.address(in), 64))
	case "TILERELEASE":
		m.configured, m.tiles = false, [8]tileRegister{}
	case "TILEZERO":
		m.tile(in.reg).data = [16][16]uint32{}
	case "TILELOADD", "TILESTORED":
		m.moveTile(in, name == "TILESTORED")
	case "TDPBF16PS":
		m.dotTiles(in.reg, in.rm, in.v)
	default:
		m.unsupported(in)
	}
}

// configureTiles sets the sizes of tiles, and clears them.
func (m *machine) configureTiles(config []byte) {
	if config[0] != 1 {
		panic("the palette is not 1")
	}
	used := map[int]bool{0: true}
	m.configured, m.tiles = true, [8]tileRegister{}
	for i := range m.tiles {
		t := &m.tiles[i]
		used[16+2*i], used[17+2*i], used[48+i] = true, true, true
		t.bytes, t.rows = int(binary.LittleEndian.Uint16(config[16+2*i:])), int(config[48+i])
		if t.rows > 16 || t.bytes > 64 || (t.rows == 0) != (t.bytes == 0) {
			panic("the sizes of a tile are not valid")
		}
	}
	for i, b := range config {
		if b != 0 && !used[i] {
			panic("a reserved byte is not 0")
		}
	}
}

// tile is a configured tile register.
func (m *machine) tile(i int) *tileRegister {
	if i > 7 || m.tiles[i].rows == 0 {
		panic("a tile without a size")
	}
	return &m.tiles[i]
}

// moveTile moves rows at a distance of the index register: it is no part of the first address.
func (m *machine) moveTile(in *instruction, store bool) {
	t := m.tile(in.reg)
	if !store {
		t.data = [16][16]uint32{}
	}
	for row := range t.rows {
		memory := at(m.r[in.base]+uint64(in.disp)+uint64(row)*m.r[in.index]*uint64(in.scale), t.bytes)
		for i := range t.bytes / 4 {
			if store {
				binary.LittleEndian.PutUint32(memory[4*i:], t.data[row][i])
			} else {
				t.data[row][i] = binary.LittleEndian.Uint32(memory[4*i:])
			}
		}
	}
}

// dotTiles adds the products of pairs to tile c: the first and the second values separately, then
// both sums to each other and to c. Inputs and results below the normal range are 0.
func (m *machine) dotTiles(ci, ai, bi int) {
	c, a, b := m.tile(ci), m.tile(ai), m.tile(bi)
	if ci == ai || ci == bi || ai == bi || a.bytes/4 != b.rows || c.rows != a.rows || c.bytes != b.bytes {
		panic("the sizes of tiles do not match")
	}
	x, y := a.values(), b.values()
	for row := range c.rows {
		for column := range c.bytes / 4 {
			var sums [2]float32
			for k := range b.rows {
				for i := range sums {
					sums[i] = multiplyAdd(x[row][k][i], y[k][column][i], sums[i])
				}
			}
			old := toNormal(math.Float32frombits(c.data[row][column]))
			c.data[row][column] = math.Float32bits(toNormal(old + toNormal(sums[0]+sums[1])))
		}
	}
}

// values are the pairs of a tile.
func (t *tileRegister) values() (out [16][16][2]float64) {
	for i, row := range t.data {
		for j, pair := range row {
			out[i][j] = [2]float64{float64(toNormal(math.Float32frombits(pair << 16))), float64(toNormal(math.Float32frombits(pair & 0xffff0000)))}
		}
	}
	return out
}

// multiplyAdd returns x*y+sum, rounded once: a float64 holds every bit that can change the
// float32.
func multiplyAdd(x, y float64, sum float32) float32 {
	return toNormal(float32(math.FMA(x, y, float64(sum))))
}
