package heelerv1

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// Some returns a pointer to v, for the optional fields.
func Some[T any](v T) *T { return &v }

// Number is a number of the schema: a reader takes whole numbers too, which some writers send for 2.0.
type Number float64

// Value is one entry of a column: a whole number, a fraction, or not known (the zero Value). Whole numbers keep all
// 64 bits, which a float would not.
type Value struct {
	kind valueKind
	bits uint64
}

type valueKind uint8

const (
	valueNull valueKind = iota
	valueInt
	valueUint
	valueFloat
)

// IntValue returns v as a Value.
func IntValue(v int64) Value {
	if v >= 0 {
		return Value{valueUint, uint64(v)}
	}
	return Value{valueInt, uint64(v)}
}

// UintValue returns v as a Value.
func UintValue(v uint64) Value { return Value{valueUint, v} }

// FloatValue returns v as a Value; NaN and infinities are not known.
func FloatValue(v float64) Value {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Value{}
	}
	return Value{valueFloat, math.Float64bits(v)}
}

// Known tells whether there is a value.
func (v Value) Known() bool { return v.kind != valueNull }

// Float returns the value as a float, and false when it is not known.
func (v Value) Float() (float64, bool) {
	switch v.kind {
	case valueInt:
		return float64(int64(v.bits)), true
	case valueUint:
		return float64(v.bits), true
	case valueFloat:
		return math.Float64frombits(v.bits), true
	default:
		return 0, false
	}
}

// Uint returns the value when it is a whole number that is not negative.
func (v Value) Uint() (uint64, bool) { return v.bits, v.kind == valueUint }

// MarshalJSON writes a number or null.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.kind {
	case valueInt:
		return strconv.AppendInt(nil, int64(v.bits), 10), nil
	case valueUint:
		return strconv.AppendUint(nil, v.bits, 10), nil
	case valueFloat:
		return json.Marshal(math.Float64frombits(v.bits))
	default:
		return []byte("null"), nil
	}
}

// MarshalMsg implements [msgp.Marshaler].
func (v Value) MarshalMsg(b []byte) ([]byte, error) {
	switch v.kind {
	case valueInt:
		return msgp.AppendInt64(b, int64(v.bits)), nil
	case valueUint:
		return msgp.AppendUint64(b, v.bits), nil
	case valueFloat:
		return msgp.AppendFloat(b, math.Float64frombits(v.bits)), nil
	default:
		return msgp.AppendNil(b), nil
	}
}

// UnmarshalMsg implements [msgp.Unmarshaler].
func (v *Value) UnmarshalMsg(b []byte) ([]byte, error) {
	switch msgp.NextType(b) {
	case msgp.NilType:
		*v = Value{}
		return msgp.ReadNilBytes(b)
	case msgp.IntType:
		n, rest, err := msgp.ReadInt64Bytes(b)
		*v = IntValue(n)
		return rest, err
	case msgp.UintType:
		n, rest, err := msgp.ReadUint64Bytes(b)
		*v = UintValue(n)
		return rest, err
	case msgp.Float32Type, msgp.Float64Type:
		f, rest, err := msgp.ReadFloat64Bytes(b)
		*v = FloatValue(f)
		return rest, err
	default:
		return b, errors.New("entry of a column is neither a number nor null")
	}
}

// Msgsize implements [msgp.Sizer].
func (v Value) Msgsize() int { return msgp.Float64Size }

// MarshalMsg implements [msgp.Marshaler].
func (n Number) MarshalMsg(b []byte) ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return b, errNotFinite
	}
	return msgp.AppendFloat(b, float64(n)), nil
}

// UnmarshalMsg implements [msgp.Unmarshaler].
func (n *Number) UnmarshalMsg(b []byte) ([]byte, error) {
	var v Value
	rest, err := v.UnmarshalMsg(b)
	if err != nil {
		return b, err
	}
	f, ok := v.Float()
	if !ok {
		return b, errors.New("not a number")
	}
	*n = Number(f)
	return rest, nil
}

// Msgsize implements [msgp.Sizer].
func (n Number) Msgsize() int { return msgp.Float64Size }

// Proc is a compute process on a GPU. On the wire it is an array, and longer arrays of a newer writer are taken.
type Proc struct {
	// GPU is the position in the sample's columns.
	GPU int
	PID uint64
	// JobID is nil when the process belongs to no job, or none is known.
	JobID *string
	// MemoryBytes is nil when not known.
	MemoryBytes *uint64
}

const procFields = 4

// MarshalMsg implements [msgp.Marshaler].
func (p Proc) MarshalMsg(b []byte) ([]byte, error) {
	b = msgp.AppendArrayHeader(b, procFields)
	b = msgp.AppendInt(b, p.GPU)
	b = msgp.AppendUint64(b, p.PID)
	if p.JobID == nil {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendString(b, *p.JobID)
	}
	if p.MemoryBytes == nil {
		return msgp.AppendNil(b), nil
	}
	return msgp.AppendUint64(b, *p.MemoryBytes), nil
}

// UnmarshalMsg implements [msgp.Unmarshaler].
func (p *Proc) UnmarshalMsg(b []byte) ([]byte, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return b, err
	}
	if n < procFields {
		return b, errors.New("process with fewer than four entries")
	}
	if p.GPU, rest, err = msgp.ReadIntBytes(rest); err != nil {
		return b, err
	}
	if p.PID, rest, err = msgp.ReadUint64Bytes(rest); err != nil {
		return b, err
	}
	if p.JobID, rest, err = optional(rest, msgp.ReadStringBytes); err != nil {
		return b, err
	}
	if p.MemoryBytes, rest, err = optional(rest, msgp.ReadUint64Bytes); err != nil {
		return b, err
	}
	for range n - procFields {
		if rest, err = msgp.Skip(rest); err != nil {
			return b, err
		}
	}
	return rest, nil
}

// Msgsize implements [msgp.Sizer].
func (p Proc) Msgsize() int {
	size := msgp.ArrayHeaderSize + msgp.IntSize + 2*msgp.Uint64Size
	if p.JobID != nil {
		size += msgp.StringPrefixSize + len(*p.JobID)
	}
	return size
}

func optional[T any](b []byte, read func([]byte) (T, []byte, error)) (*T, []byte, error) {
	if msgp.IsNil(b) {
		rest, err := msgp.ReadNilBytes(b)
		return nil, rest, err
	}
	v, rest, err := read(b)
	return &v, rest, err
}
