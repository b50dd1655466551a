package images

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Markers of JPEG (ITU-T T.81, table B.1).
const (
	jpegBaseline    = 0xc0
	jpegExtended    = 0xc1
	jpegProgressive = 0xc2
	jpegEnd         = 0xd9
	jpegScan        = 0xda
	jpegApp1        = 0xe1
)

// jpegSegment is a marker with its segment.
type jpegSegment struct {
	marker byte
	at     int    // position of the marker
	body   []byte // content after the length
}

// jpegSegments calls visit with the segments of a JPEG until visit returns false, the end marker or
// damage. Data of scans are skipped.
func jpegSegments(encoded []byte, visit func(jpegSegment) bool) {
	for at := 2; ; {
		next := bytes.IndexByte(encoded[min(at, len(encoded)):], 0xff)
		if next < 0 || at+next+1 >= len(encoded) {
			return
		}
		at += next
		marker := encoded[at+1]
		if marker == 0xff { // fill byte
			at++
			continue
		}
		if marker == 0 || marker >= 0xd0 && marker <= 0xd7 { // data of a scan: byte 0xff, or a restart
			at += 2
			continue
		}
		if marker == jpegEnd || at+4 > len(encoded) {
			visit(jpegSegment{marker, at, nil})
			return
		}
		n := int(binary.BigEndian.Uint16(encoded[at+2:]))
		if n < 2 || at+2+n > len(encoded) || !visit(jpegSegment{marker, at, encoded[at+4 : at+2+n]}) {
			return
		}
		at += 2 + n
	}
}

// unsent describes the part of a decodable JPEG that no scan transmits, and the position of the
// missing scan; "" for a complete image. Decoders read missing scans as zeros: a file cut between
// two scans and closed with an end marker, as repair programs do, decodes to a coarse image without
// an error.
func unsent(encoded []byte) (at int, problem string) {
	c := scanCoverage{problem: "the end marker is missing"}
	jpegSegments(encoded, c.add)
	return c.at, c.problem
}

// scanCoverage tracks the transmitted bits of all coefficients.
type scanCoverage struct {
	progressive bool
	parts       []partCoverage
	at          int
	problem     string
}

// partCoverage is the coverage of one colour component.
type partCoverage struct {
	id  byte
	low [64]int8 // lowest transmitted bit of each coefficient, from 1; 0: no bit
}

// add processes a segment. It returns false after the last relevant segment.
func (c *scanCoverage) add(s jpegSegment) bool {
	c.at = s.at
	switch s.marker {
	case jpegBaseline, jpegExtended, jpegProgressive:
		c.progressive = s.marker == jpegProgressive
		for i := 6; i+3 <= len(s.body); i += 3 {
			c.parts = append(c.parts, partCoverage{id: s.body[i]})
		}
	case jpegScan:
		if c.problem = ""; !c.scan(s.body) {
			return false
		}
		c.problem = "the end marker is missing"
	case jpegEnd:
		c.problem = c.lacking()
		return false
	}
	return true
}

// scan processes the header of a scan. It returns false, with a problem, after a missing scan.
func (c *scanCoverage) scan(body []byte) bool {
	n := 0
	if len(body) > 0 {
		n = int(body[0])
	}
	if len(body) < 1+2*n+3 {
		return false
	}
	first, last, high, low := 0, 63, 0, 0
	if c.progressive {
		tail := body[1+2*n:]
		first, last, high, low = int(tail[0]), min(int(tail[1]), 63), int(tail[2]>>4), int(tail[2]&15)
	}
	for i := range n {
		for p := range c.parts {
			if part := &c.parts[p]; part.id == body[1+2*i] {
				for k := first; k <= last; k++ {
					if high > 0 && int(part.low[k]) != high+1 {
						c.problem = fmt.Sprintf("a scan before this one is missing, of coefficients %d to %d of component %d", first, last, part.id)
						return false
					}
					part.low[k] = int8(low + 1)
				}
			}
		}
	}
	return true
}

// lacking describes the coefficients that no scan has transmitted.
func (c *scanCoverage) lacking() string {
	for _, part := range c.parts {
		for k, low := range part.low {
			switch {
			case low == 0:
				return fmt.Sprintf("truncated: the image ends here, before a scan with coefficient %d of component %d", k, part.id)
			case low > 1:
				return fmt.Sprintf("truncated: the image ends here, before a scan with the lowest %d bits of coefficient %d of component %d", low-1, k, part.id)
			}
		}
	}
	return ""
}
