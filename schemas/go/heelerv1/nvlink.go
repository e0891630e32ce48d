package heelerv1

import (
	"errors"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// NVLinkRow is a link of a GPU that is not up, could not be read or has counted something. On the wire it is an array,
// and longer arrays of a newer writer are taken.
type NVLinkRow struct {
	// GPU is the position in the sample's columns.
	GPU  int
	Link uint64
	// Up is nil when the state could not be read.
	Up *bool
	// Counters are named as the columns, without nvlink_.
	Counters map[string]Value
}

const nvlinkFields = 4

// MarshalMsg implements [msgp.Marshaler].
func (r NVLinkRow) MarshalMsg(b []byte) ([]byte, error) {
	b = msgp.AppendArrayHeader(b, nvlinkFields)
	b = msgp.AppendInt(b, r.GPU)
	b = msgp.AppendUint64(b, r.Link)
	if r.Up == nil {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendBool(b, *r.Up)
	}
	b = msgp.AppendMapHeader(b, uint32(len(r.Counters)))
	names := make([]string, 0, len(r.Counters))
	for name := range r.Counters {
		names = append(names, name)
	}
	slices.Sort(names)
	var err error
	for _, name := range names {
		b = msgp.AppendString(b, name)
		if b, err = r.Counters[name].MarshalMsg(b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// UnmarshalMsg implements [msgp.Unmarshaler].
func (r *NVLinkRow) UnmarshalMsg(b []byte) ([]byte, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return b, err
	}
	if n < nvlinkFields {
		return b, errors.New("NVLink with fewer than four entries")
	}
	if r.GPU, rest, err = msgp.ReadIntBytes(rest); err != nil {
		return b, err
	}
	if r.Link, rest, err = msgp.ReadUint64Bytes(rest); err != nil {
		return b, err
	}
	if r.Up, rest, err = optional(rest, msgp.ReadBoolBytes); err != nil {
		return b, err
	}
	if rest, err = r.readCounters(rest); err != nil {
		return b, err
	}
	for range n - nvlinkFields {
		if rest, err = msgp.Skip(rest); err != nil {
			return b, err
		}
	}
	return rest, nil
}

func (r *NVLinkRow) readCounters(b []byte) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return b, err
	}
	r.Counters = map[string]Value{}
	for range n {
		var name string
		if name, b, err = msgp.ReadStringBytes(b); err != nil {
			return b, err
		}
		var v Value
		if b, err = v.UnmarshalMsg(b); err != nil {
			return b, err
		}
		r.Counters[name] = v
	}
	return b, nil
}

// Msgsize implements [msgp.Sizer].
func (r NVLinkRow) Msgsize() int {
	size := msgp.ArrayHeaderSize + msgp.IntSize + msgp.Uint64Size + msgp.BoolSize + msgp.MapHeaderSize
	for name := range r.Counters {
		size += msgp.StringPrefixSize + len(name) + msgp.Float64Size
	}
	return size
}
