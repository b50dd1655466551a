package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxHeader is the largest header of an array, in bytes.
const maxHeader = 1 << 16

// maxDims is NumPy's limit of dimensions.
const maxDims = 64

const magic = "\x93NUMPY"

// header reads the header of an array. entry is the size of the file or archive entry in bytes.
func (a *Array) header(r io.Reader, entry int64) (fortran bool, err error) {
	text, err := a.description(r)
	if err != nil {
		return false, err
	}
	p := parser{text: text}
	if err := p.dict(a, &fortran); err != nil {
		return false, &Fault{a.file, a.entry, a.begin - int64(len(text)) + int64(p.at), err.Error()}
	}
	if len(a.Shape) < 2 { // C and Fortran order are equal
		fortran = false
	}
	return fortran, a.sized(entry)
}

// description returns the header's text and moves begin to the first value.
func (a *Array) description(r io.Reader) (string, error) {
	head := make([]byte, 12)
	need := func(b []byte) error {
		n, err := io.ReadFull(r, b)
		if a.begin += int64(n); err != nil {
			return &Fault{a.file, a.entry, a.begin, reasonOf(err)}
		}
		return nil
	}
	if err := need(head[:8]); err != nil {
		return "", err
	}
	if string(head[:6]) != magic {
		return "", &Fault{a.file, a.entry, 0, fmt.Sprintf("no array of NumPy: it begins with % x", head[:6])}
	}
	length, version := head[8:10], head[6]
	switch version {
	case 1:
	case 2, 3:
		length = head[8:12]
	default:
		return "", &Fault{a.file, a.entry, 6, fmt.Sprintf("version %d of the format: want 1, 2 or 3", version)}
	}
	if err := need(length); err != nil {
		return "", err
	}
	var n uint32
	if version == 1 {
		n = uint32(binary.LittleEndian.Uint16(length))
	} else if n = binary.LittleEndian.Uint32(length); n > maxHeader {
		return "", &Fault{a.file, a.entry, 8, fmt.Sprintf("a description of %d bytes: want %d at most", n, maxHeader)}
	}
	text := make([]byte, n)
	if err := need(text); err != nil {
		return "", err
	}
	return string(text), nil
}

// parser reads Python's literal of a dictionary.
type parser struct {
	text string
	at   int
}

// dict reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}, in any order, each once.
func (p *parser) dict(a *Array, fortran *bool) error {
	if err := p.expect('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for !p.has('}') {
		key, err := p.quoted()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%q stands twice in the description", key)
		}
		seen[key] = true
		if err := p.expect(':'); err != nil {
			return err
		}
		switch key {
		case "descr":
			err = p.descr(&a.Type)
		case "fortran_order":
			*fortran, err = p.boolean()
		case "shape":
			a.Shape, err = p.tuple()
		default:
			err = fmt.Errorf("unknown key %q in the description", key)
		}
		if err != nil {
			return err
		}
		if !p.has(',') && !p.peek('}') {
			return errors.New("want , or } in the description")
		}
	}
	if len(seen) != 3 {
		return errors.New("the description lacks descr, fortran_order or shape")
	}
	if strings.TrimSpace(p.text[p.at:]) != "" {
		return errors.New("more text behind the description")
	}
	return nil
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.at]) >= 0 {
		p.at++
	}
}

func (p *parser) peek(c byte) bool {
	p.space()
	return p.at < len(p.text) && p.text[p.at] == c
}

func (p *parser) has(c byte) bool {
	if p.peek(c) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(c byte) error {
	if !p.has(c) {
		return fmt.Errorf("want %c in the description", c)
	}
	return nil
}

// quoted reads a string. Files by NumPy have no escapes.
func (p *parser) quoted() (string, error) {
	for _, q := range []byte{'\'', '"'} {
		if p.has(q) {
			n := strings.IndexByte(p.text[p.at:], q)
			if n < 0 {
				return "", errors.New("a text without an end in the description")
			}
			p.at += n + 1
			return p.text[p.at-n-1 : p.at-1], nil
		}
	}
	return "", errors.New("want a quoted text in the description")
}

func (p *parser) boolean() (bool, error) {
	p.space()
	for word, value := range map[string]bool{"True": true, "False": false} {
		if strings.HasPrefix(p.text[p.at:], word) {
			p.at += len(word)
			return value, nil
		}
	}
	return false, errors.New("want True or False in the description")
}

func (p *parser) tuple() ([]int, error) {
	if err := p.expect('('); err != nil {
		return nil, err
	}
	out := []int{}
	for !p.has(')') {
		p.space()
		from := p.at
		for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
			p.at++
		}
		d, err := strconv.Atoi(p.text[from:p.at])
		if err != nil || len(out) == maxDims {
			return nil, fmt.Errorf("want a shape of at most %d numbers in the description", maxDims)
		}
		p.has('L') // long suffix of Python 2
		if out = append(out, d); !p.has(',') && !p.peek(')') {
			return nil, errors.New("want , or ) in the shape")
		}
	}
	return out, nil
}

func (p *parser) descr(t *Type) error {
	if p.peek('[') {
		return errors.New("an array of records: want one of numbers; save its fields as arrays of their own")
	}
	text, err := p.quoted()
	if err != nil {
		return err
	}
	*t, err = parseType(text)
	return err
}
