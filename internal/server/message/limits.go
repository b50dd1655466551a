package message

import (
	"math"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/wire"
)

// MaxSchema is the maximum size of an encoded schema in bytes.
const MaxSchema = 16 << 20

// Limits are the schema's sizes and the maximum sizes of messages. The zero value allows no data.
type Limits struct {
	Dims   []int // values of a row, by sparse table
	Counts []int // values after a pushed row's gradient, by sparse table; nil: none
	Arrays []int // values, by dense array
	Keys   int   // maximum keys per message
	Values int   // maximum values per message

	Trainers int // trainers of gathers; 0: none
}

func (l *Limits) longest(t wire.Type) int {
	const slack = 8 // int8 is longer than float32 for a few values
	switch t {
	case TypeHello:
		return helloFixed + MaxJob + setting.MaxValuesBytes
	case TypeSchema:
		return MaxSchema
	case TypeWelcome:
		return welcomeSize
	case TypeFailure:
		return failureFixed + maxOver
	case TypeGoodbye:
		return MaxText
	case TypeFailed:
		return HeadSize + MaxText
	case TypePullRows:
		return HeadSize + KeySize*l.Keys
	case TypePushRows:
		return HeadSize + KeySize*l.Keys + 4*l.Values + slack
	case TypePushDense:
		return HeadSize + max(4*l.Values+slack, compress.PayloadBound(l.Values, compress.FP32{}))
	case TypeSetDense, TypeRows, TypeValues:
		return HeadSize + 4*l.Values + slack
	case TypePullDense, TypeClock, TypeLeave, TypeAck, TypeSave, TypeSaved:
		return HeadSize
	case TypeGather:
		return HeadSize + MaxBlob
	case TypeGathered:
		return HeadSize + l.longestParts()
	}
	return 0
}

// Check returns the length of the body after a head, or an ErrMalformed for an invalid head.
func (l *Limits) Check(t wire.Type, h Head) (body int, err error) {
	keys, values := 0, 0
	switch t {
	case TypePullRows, TypePushRows, TypeRows:
		keys, values, err = l.rows(t, h)
	case TypePullDense, TypeSetDense, TypePushDense, TypeValues:
		values, err = l.dense(t, h)
	case TypeClock:
		err = checkClock(h)
	case TypeLeave, TypeAck:
		err = only(t, h, Head{Number: h.Number})
	case TypeFailed:
		if h.Count > MaxText {
			err = malformed("a text of %d bytes: at most %d", h.Count, MaxText)
		}
		return h.Count, err
	case TypeGather, TypeGathered:
		return h.Count, l.meeting(t, h)
	case TypeSave, TypeSaved:
		return 0, checkSave(t, h)
	default:
		err = malformed("a %s frame has no head", Name(t))
	}
	if err != nil {
		return 0, err
	}
	if Sequenced(t) && h.Number == 0 {
		return 0, malformed("%s number 0: they are numbered from 1 on", Name(t))
	}
	switch t {
	case TypePullRows:
		return KeySize * keys, nil
	case TypePullDense:
		return 0, nil
	case TypePushRows:
		return KeySize*keys + h.Code.RowsSize(keys, l.Dims[h.Table], l.CountsOf(h.Table)), nil
	case TypeRows:
		return h.Code.Size(values), nil
	}
	if h.Code == Coded {
		return h.Count, nil // bounded by the frame
	}
	return KeySize*keys + h.Code.Size(values), nil
}

// CountsOf returns the number of counts after a pushed row's gradient.
func (l *Limits) CountsOf(table int) int {
	if l.Counts == nil {
		return 0
	}
	return l.Counts[table]
}

func (l *Limits) rows(t wire.Type, h Head) (keys, values int, err error) {
	if h.Table >= len(l.Dims) {
		return 0, 0, malformed("%s of sparse table %d, the schema has %d", Name(t), h.Table, len(l.Dims))
	}
	width := l.Dims[h.Table]
	if t == TypePushRows {
		width += l.CountsOf(h.Table)
	}
	switch {
	case h.Count > l.Keys:
		return 0, 0, malformed("%s: %d keys, the limit is %d", Name(t), h.Count, l.Keys)
	case h.Count > l.Values/width:
		return 0, 0, malformed("%s: %d rows of %d values, the limit is %d values", Name(t), h.Count, width, l.Values)
	case !h.Code.Valid():
		return 0, 0, malformed("%s: values in code %d", Name(t), h.Code)
	case t == TypePullRows && h.At != Peek && (h.At&Peek != 0 || h.At>>1 > h.Number) || t == TypePushRows && h.At > 0:
		return 0, 0, malformed("%s at %d: rows have keys", Name(t), h.At)
	}
	return h.Count, h.Count * l.Dims[h.Table], nil
}

func (l *Limits) dense(t wire.Type, h Head) (values int, err error) {
	switch {
	case h.Table >= len(l.Arrays):
		return 0, malformed("%s: dense array %d, the schema has %d", Name(t), h.Table, len(l.Arrays))
	case t == TypePushDense && h.Code == Coded && h.At <= uint64(l.Arrays[h.Table]):
		return 0, nil
	case h.Count > l.Values:
		return 0, malformed("%s: %d values, the limit is %d", Name(t), h.Count, l.Values)
	case h.At > uint64(l.Arrays[h.Table]) || h.Count > l.Arrays[h.Table]-int(h.At):
		return 0, malformed("%s: %d values at %d of array %d, which has %d", Name(t), h.Count, h.At, h.Table, l.Arrays[h.Table])
	case !h.Code.Valid():
		return 0, malformed("%s: values in code %d", Name(t), h.Code)
	case t == TypeSetDense && (h.Code != FP32 || h.Step != 0):
		return 0, malformed("%s in %v at step %d: they are float32 and have no step", Name(t), h.Code, h.Step)
	}
	return h.Count, nil
}

func checkClock(h Head) error {
	if err := only(TypeClock, h, Head{Number: h.Number, Step: h.Step, At: h.At}); err != nil {
		return err
	}
	if rate := math.Float64frombits(h.At); math.IsNaN(rate) || math.IsInf(rate, 0) {
		return malformed("a clock with the rate %s", quantity.Exact(rate))
	}
	return nil
}

func checkSave(t wire.Type, h Head) error {
	if err := only(t, h, Head{Number: h.Number, Step: h.Step, At: h.At}); err != nil {
		return err
	}
	if h.Step == 0 || t == TypeSave && h.At > h.Step || t == TypeSaved && h.At == 0 {
		return malformed("%s after step %d, at %d: want a step from 1 on, and the oldest to be kept or a number", Name(t), h.Step, h.At)
	}
	return nil
}

// only returns an error for a head with values in fields that its type does not use.
func only(t wire.Type, h, allowed Head) error {
	if h != allowed {
		return malformed("%s with the head %+v", Name(t), h)
	}
	return nil
}
