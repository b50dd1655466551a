package images

import (
	"image"
	"math"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

// randomCrop draws the box of a random-resized crop (Szegedy et al. 2015, as in torchvision): 8 to
// 100 % of the area, with a ratio of the sides from 3/4 to 4/3. After ten boxes that do not fit,
// the largest central box is used.
func randomCrop(w, h int, r *prng.Rand) image.Rectangle {
	area := float64(w) * float64(h)
	low, high := math.Log(3.0/4), math.Log(4.0/3)
	for range 10 {
		target := area * (0.08 + 0.92*r.Unit())
		ratio := math.Exp(low + (high-low)*r.Unit())
		cw := int(math.RoundToEven(math.Sqrt(target * ratio)))
		ch := int(math.RoundToEven(math.Sqrt(target / ratio)))
		if cw > 0 && ch > 0 && cw <= w && ch <= h {
			y, x := r.Below(h-ch+1), r.Below(w-cw+1)
			return image.Rect(x, y, x+cw, y+ch)
		}
	}
	cw, ch := w, h
	if 4*w < 3*h {
		ch = max(1, int(math.RoundToEven(float64(w)*4/3)))
	} else if 3*w > 4*h {
		cw = max(1, int(math.RoundToEven(float64(h)*4/3)))
	}
	x, y := (w-cw)/2, (h-ch)/2
	return image.Rect(x, y, x+cw, y+ch)
}

// centreWindows returns the windows of evaluation in an image of w x h: the shorter side resized to
// size*256/224, and the central size x size of the result.
func centreWindows(w, h, size int) (x, y window) {
	short := max(size, (size*256+112)/224)
	rw, rh := short, short
	if w < h {
		rh = short * h / w
	} else {
		rw = short * w / h
	}
	return window{rw, halfEven(rw - size), size}, window{rh, halfEven(rh - size), size}
}

// halfEven returns n/2 rounded to the nearest, a tie to the even number, as Python's round.
func halfEven(n int) int { return (n + n/2%2) / 2 }

// flip reverses the columns of an image of RGB bytes.
func flip(pix []uint8, w int) {
	for ; len(pix) >= 3*w; pix = pix[3*w:] {
		for i, j := 0, 3*(w-1); i < j; i, j = i+3, j-3 {
			pix[i], pix[j] = pix[j], pix[i]
			pix[i+1], pix[j+1] = pix[j+1], pix[i+1]
			pix[i+2], pix[j+2] = pix[j+2], pix[i+2]
		}
	}
}
