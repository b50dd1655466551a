package message

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// What is said of the end of a step is read as it was written.
func TestSteps(t *testing.T) {
	for _, e := range []End{
		{Step: 1, Attempt: 1},
		{Step: 1 << 40, Count: 1 << 50, Rate: 0.125, Attempt: maxAttempts, Open: true, Members: []uint64{0, 7, 1 << 63}},
	} {
		b := e.Append([]byte{9})[1:]
		if got, err := ParseEnd(b); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%+v, %v, want %+v", got, err, e)
		}
		if len(b) != 32+8*len(e.Members) {
			t.Errorf("%+v has %d bytes", e, len(b))
		}
	}
	for _, a := range []RetryEnd{{Step: 3, Attempt: 2}, {Step: 4, Attempt: 9, Lost: []uint64{1, 2}}} {
		if got, err := ParseAgain(a.Append(nil)); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v, %v, want %+v", got, err, a)
		}
	}
	if got, err := ParseCommit(Commit(1 << 60).Append(nil)); err != nil || got != 1<<60 {
		t.Errorf("%d, %v", got, err)
	}
}

// What is no end of a step is malformed, and says why.
func TestNoSteps(t *testing.T) {
	good := func(change func(*End)) []byte {
		e := End{Step: 5, Attempt: 1, Rate: 1}
		change(&e)
		return e.Append(nil)
	}
	open := good(func(*End) {})
	open[28] = 2
	end := func(b []byte) error { _, err := ParseEnd(b); return err }
	again := func(b []byte) error { _, err := ParseAgain(b); return err }
	commit := func(b []byte) error { _, err := ParseCommit(b); return err }
	for _, c := range []struct {
		parse func([]byte) error
		b     []byte
		want  string
	}{
		{end, nil, "an end of a step of 0 bytes"},
		{end, make([]byte, MaxEnd+4), "bytes, want 32 to "},
		{end, good(func(e *End) { e.Step = 0 }), "an end of step 0"},
		{end, good(func(e *End) { e.Attempt = 0 }), "attempt 0"},
		{end, good(func(e *End) { e.Attempt = maxAttempts + 1 }), "attempt 1025"},
		{end, good(func(e *End) { e.Rate = -1 }), "at the rate -1"},
		{end, good(func(e *End) { e.Rate = math.NaN() }), "at the rate NaN"},
		{end, good(func(e *End) { e.Rate = math.Inf(1) }), "at the rate +Inf"},
		{end, open, "attempt 1"},
		{end, append(good(func(*End) {}), 1, 2), "2 bytes of lives of heter-trainers"},
		{again, nil, "an again of 0 bytes"},
		{again, RetryEnd{Attempt: 1}.Append(nil), "step 0 again"},
		{again, RetryEnd{Step: 1}.Append(nil), "in attempt 0"},
		{commit, make([]byte, 8), "a commit of 00"},
		{commit, make([]byte, 9), "want the number of a step"},
	} {
		if err := c.parse(c.b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%x: %v, want %q", c.b, err, c.want)
		}
	}
}
