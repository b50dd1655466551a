package simd

import (
	"fmt"
	"slices"
)

// Patches describes the matrix of patches ("im2col") of one image
// [Channels, Height, Width] under a sliding window. Row (c,ky,kx), at
// (c*KernelHeight+ky)*KernelWidth+kx, and column (y,x), at y*OutWidth()+x, is
// image[c, y*Stride+ky-Pad, x*Stride+kx-Pad], and 0 outside the image. The
// matrix is never stored: it is packed block by block as it is multiplied.
type Patches struct {
	Channels, Height, Width   int
	KernelHeight, KernelWidth int
	Stride                    int // 0 means 1
	Pad                       int // on all four sides
}

func (p Patches) stride() int { return max(1, p.Stride) }

// OutHeight returns the number of window positions from top to bottom.
func (p Patches) OutHeight() int { return (p.Height+2*p.Pad-p.KernelHeight)/p.stride() + 1 }

// OutWidth returns the number of window positions from left to right.
func (p Patches) OutWidth() int { return (p.Width+2*p.Pad-p.KernelWidth)/p.stride() + 1 }

// Rows returns Channels*KernelHeight*KernelWidth.
func (p Patches) Rows() int { return p.Channels * p.KernelHeight * p.KernelWidth }

// Cols returns OutHeight()*OutWidth().
func (p Patches) Cols() int { return p.OutHeight() * p.OutWidth() }

// ImageSize returns Channels*Height*Width.
func (p Patches) ImageSize() int { return p.Channels * p.Height * p.Width }

// Validate reports a window that does not fit the image, or a size below 1.
func (p Patches) Validate() error {
	if min(p.Channels, p.Height, p.Width, p.KernelHeight, p.KernelWidth) < 1 || p.Stride < 0 || p.Pad < 0 ||
		p.KernelHeight > p.Height+2*p.Pad || p.KernelWidth > p.Width+2*p.Pad {
		return fmt.Errorf("window %dx%d stride %d pad %d does not fit an image of %dx%dx%d",
			p.KernelHeight, p.KernelWidth, p.Stride, p.Pad, p.Channels, p.Height, p.Width)
	}
	return nil
}

// dense reports whether patches are contiguous runs of the image.
func (p Patches) dense() bool { return p.stride() == 1 && p.Pad == 0 }

// GemmPatches computes C[m, p.Cols()] = A[m, p.Rows()] * P, with P the patches
// of image: the forward pass of a convolution, A its weights and e its bias.
func (k *Kernels) GemmPatches(s *Scratch, m int, a []float32, lda int, p Patches, image []float32, accumulate bool, c []float32, ldc int, e Epilogue) {
	s.image.set(&k.gemm, p, image, false)
	k.GemmPacked(s, false, m, p.Cols(), p.Rows(), a, lda, &s.image, accumulate, c, ldc, e)
	s.image.image = nil
}

// GemmPatchesT computes C[m, p.Rows()] = A[m, p.Cols()] * transpose(P), with P
// the patches of image: the gradient of a convolution's weights for one image,
// A the gradient of its output.
func (k *Kernels) GemmPatchesT(s *Scratch, m int, a []float32, lda int, p Patches, image []float32, accumulate bool, c []float32, ldc int) {
	s.image.set(&k.gemm, p, image, true)
	k.GemmPacked(s, false, m, p.Rows(), p.Cols(), a, lda, &s.image, accumulate, c, ldc, Epilogue{})
	s.image.image = nil
}

// imageB packs the patches of an image, or their transpose.
type imageB struct {
	level     *gemmLevel
	p         Patches
	image     []float32
	transpose bool
	// Of a dense window: image offset of each row (of a window's position 0)
	// and of each column (of its element 0), kept while p stays the same.
	rows, cols []int32
}

func (b *imageB) set(level *gemmLevel, p Patches, image []float32, transpose bool) {
	if err := p.Validate(); err != nil {
		panic("simd: " + err.Error())
	}
	if len(image) < p.ImageSize() {
		panic(fmt.Sprintf("simd: an image of %dx%dx%d has %d elements", p.Channels, p.Height, p.Width, len(image)))
	}
	if b.p != p {
		b.p = p
		b.rows, b.cols = p.offsets(b.rows[:0], b.cols[:0])
	}
	b.level, b.image, b.transpose = level, image[:p.ImageSize()], transpose
}

// offsets appends the image offsets of rows and columns; the element of row i
// and column j is image[rows[i]+cols[j]] where the window is dense.
func (p Patches) offsets(rows, cols []int32) ([]int32, []int32) {
	for c := range p.Channels {
		for ky := range p.KernelHeight {
			for kx := range p.KernelWidth {
				rows = append(rows, int32((c*p.Height+ky)*p.Width+kx))
			}
		}
	}
	for y := range p.OutHeight() {
		for x := range p.OutWidth() {
			cols = append(cols, int32(y*p.stride()*p.Width+x*p.stride()))
		}
	}
	return rows, cols
}

// PackPanels implements [Packer].
func (b *imageB) PackPanels(dst []float32, k0, kc, n0, nc, width int) {
	down, across := b.rows, b.cols
	if b.transpose {
		down, across = across, down
	}
	for ; nc > 0; n0, nc = n0+width, nc-width {
		panel := dst[:kc*width]
		dst = dst[kc*width:]
		n := min(nc, width)
		if n < width {
			clear(panel)
		}
		if b.p.dense() {
			b.packRuns(panel, down[k0:k0+kc], across[n0:n0+n], width)
		} else {
			b.packSlow(panel, k0, n0, n, width)
		}
	}
}

// packRuns fills a panel run by run: columns whose offsets follow each other
// are copied together, in every row.
func (b *imageB) packRuns(panel []float32, down, across []int32, width int) {
	for j := 0; j < len(across); {
		run := 1
		for run < 16 && j+run < len(across) && across[j+run] == across[j]+int32(run) {
			run++
		}
		src := b.image[across[j]:]
		if b.level.gather != nil && len(down) > 0 {
			b.level.gather(&panel[j], width, &src[0], &down[0], len(down), run)
		} else {
			for i, off := range down {
				copy(panel[i*width+j:][:run], src[off:])
			}
		}
		j += run
	}
}

// packSlow fills a panel of a window with stride or padding.
func (b *imageB) packSlow(panel []float32, k0, n0, n, width int) {
	for i := 0; i*width < len(panel); i++ {
		for j := range n {
			if b.transpose {
				panel[i*width+j] = b.p.at(b.image, n0+j, k0+i)
			} else {
				panel[i*width+j] = b.p.at(b.image, k0+i, n0+j)
			}
		}
	}
}

// index returns where row r and column q lie in the image, or -1.
func (p Patches) index(r, q int) int {
	kx, ky, c := r%p.KernelWidth, r/p.KernelWidth%p.KernelHeight, r/p.KernelWidth/p.KernelHeight
	y := q/p.OutWidth()*p.stride() + ky - p.Pad
	x := q%p.OutWidth()*p.stride() + kx - p.Pad
	if y < 0 || y >= p.Height || x < 0 || x >= p.Width {
		return -1
	}
	return (c*p.Height+y)*p.Width + x
}

func (p Patches) at(image []float32, r, q int) float32 {
	if i := p.index(r, q); i >= 0 {
		return image[i]
	}
	return 0
}

// spreadPlan is how AddPatches gathers each image row from the patch matrix:
// the same for every channel, and kept while the shape stays the same.
type spreadPlan struct {
	p  Patches
	ld int
	// Taps in the order of the patch rows, two words each: the offset in cols,
	// for lane 0, from the channel's first patch row (it may lie before it),
	// and the mask of the lanes that exist.
	taps []int64
	// Where the taps of each image row's chunk of 16 columns begin.
	first []int
}

func (s *spreadPlan) set(p Patches, ld int) {
	if s.p == p && s.ld == ld {
		return
	}
	s.p, s.ld, s.taps, s.first = p, ld, s.taps[:0], s.first[:0]
	for y := range p.Height {
		for x0 := 0; x0 < p.Width; x0 += 16 {
			s.first = append(s.first, len(s.taps))
			s.chunk(y, x0)
		}
	}
	s.first = append(s.first, len(s.taps))
}

// chunk appends the taps of the columns x0..x0+16 of image row y.
func (s *spreadPlan) chunk(y, x0 int) {
	p, ow := s.p, s.p.OutWidth()
	for ky := max(0, y-p.OutHeight()+1); ky <= min(y, p.KernelHeight-1); ky++ {
		for kx := range p.KernelWidth {
			// Lane l takes output column x0+l-kx, where that exists.
			from, to := max(0, kx-x0), min(16, ow+kx-x0)
			if from < to {
				at := (ky*p.KernelWidth+kx)*s.ld + (y-ky)*ow + x0 - kx
				s.taps = append(s.taps, int64(at), int64(1)<<to-int64(1)<<from)
			}
		}
	}
}

// AddPatches adds each element of the patch matrix cols[p.Rows(), p.Cols()],
// of leading dimension ld, to the image element it was taken from ("col2im"):
// the gradient of a convolution's input. The order of additions is that of
// the rows, the same at every level.
func (k *Kernels) AddPatches(s *Scratch, image []float32, p Patches, cols []float32, ld int) {
	if err := p.Validate(); err != nil {
		panic("simd: " + err.Error())
	}
	checkMatrix("patches", cols, p.Rows(), p.Cols(), ld)
	image = image[:p.ImageSize()]
	switch {
	case !p.dense():
		addPatchesSlow(image, p, cols, ld)
	case k.gemm.spread != nil:
		s.plan.set(p, ld)
		k.addPatchesByRow(s, image, cols)
	default:
		k.addPatchesByRun(image, p, cols, ld)
	}
}

// callTaps is how many taps one assembly call adds, four vectors each.
const callTaps = 2048

// addPatchesByRow passes once over the image, four channels at a time.
func (k *Kernels) addPatchesByRow(s *Scratch, image, cols []float32) {
	p := s.plan.p
	plane, window := p.Height*p.Width, p.KernelHeight*p.KernelWidth*s.plan.ld
	for c := 0; c < p.Channels; {
		step, imageStep, colsStep := 4, plane, window
		if c+4 > p.Channels {
			step, imageStep, colsStep = 1, 0, 0
		}
		for i := range len(s.plan.first) - 1 {
			taps := s.plan.taps[s.plan.first[i]:s.plan.first[i+1]]
			chunks := (p.Width + 15) / 16
			x0 := i % chunks * 16
			mask := 1<<min(16, p.Width-x0) - 1
			for taps := range slices.Chunk(taps, 2*callTaps) {
				k.gemm.spread(&image[c*plane+i/chunks*p.Width+x0], imageStep, &cols[c*window], colsStep, mask, &taps[0], len(taps)/2)
			}
		}
		c += step
	}
}

func (k *Kernels) addPatchesByRun(image []float32, p Patches, cols []float32, ld int) {
	oh, ow := p.OutHeight(), p.OutWidth()
	for r := range p.Rows() {
		kx, ky, c := r%p.KernelWidth, r/p.KernelWidth%p.KernelHeight, r/p.KernelWidth/p.KernelHeight
		for y := range oh {
			k.Add(image[(c*p.Height+y+ky)*p.Width+kx:][:ow], cols[r*ld+y*ow:][:ow])
		}
	}
}

func addPatchesSlow(image []float32, p Patches, cols []float32, ld int) {
	for r := range p.Rows() {
		for q := range p.Cols() {
			if i := p.index(r, q); i >= 0 {
				image[i] += cols[r*ld+q]
			}
		}
	}
}
