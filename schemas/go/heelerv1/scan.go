package heelerv1

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

const maxDepth = 16

// scan checks what the generated decoders do not: all of the payload is one map with string keys, text is UTF-8,
// numbers are finite, required keys are there. It returns the payload without the keys whose value is null, since null
// and absent mean the same; usually that is the payload itself.
func scan(payload []byte, n *need) ([]byte, error) {
	if msgp.NextType(payload) != msgp.MapType {
		return nil, errors.New("payload is not a map")
	}
	s := scanner{in: payload}
	rest, err := s.value(payload, n, 0)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes after the end of the map", len(rest))
	}
	return s.cleaned(), nil
}

type scanner struct {
	in    []byte
	edits []edit
}

// edit replaces in[from:to].
type edit struct {
	from, to int
	with     []byte
}

func (s *scanner) at(b []byte) int { return len(s.in) - len(b) }

func (s *scanner) value(b []byte, n *need, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deep")
	}
	switch msgp.NextType(b) {
	case msgp.MapType:
		return s.mapping(b, n, depth)
	case msgp.ArrayType:
		return s.array(b, n, depth)
	case msgp.StrType:
		text, rest, err := msgp.ReadStringZC(b)
		if err == nil && !utf8.Valid(text) {
			err = errors.New("text is not valid UTF-8")
		}
		return rest, err
	case msgp.Float32Type, msgp.Float64Type:
		f, rest, err := msgp.ReadFloat64Bytes(b)
		if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
			err = errNotFinite
		}
		return rest, err
	default:
		return msgp.Skip(b)
	}
}

func (s *scanner) array(b []byte, n *need, depth int) ([]byte, error) {
	count, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	for range count {
		if rest, err = s.value(rest, n, depth+1); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

func (s *scanner) mapping(b []byte, n *need, depth int) ([]byte, error) {
	count, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	header, nulls := edit{from: s.at(b), to: s.at(rest)}, uint32(0)
	var missing []string
	if n != nil {
		missing = slices.Clone(n.keys)
	}
	for range count {
		start := s.at(rest)
		var key []byte
		if key, rest, err = msgp.ReadStringZC(rest); err != nil {
			return nil, fmt.Errorf("key of a map: %w", err)
		}
		if !utf8.Valid(key) {
			return nil, errors.New("key of a map is not valid UTF-8")
		}
		if msgp.IsNil(rest) {
			if n != nil && n.noNull {
				return nil, fmt.Errorf("%s: null instead of a list", key)
			}
			nulls++
			rest = rest[1:]
			s.edits = append(s.edits, edit{from: start, to: s.at(rest)})
			continue
		}
		missing = slices.DeleteFunc(missing, func(k string) bool { return k == string(key) })
		if rest, err = s.value(rest, n.under(string(key), rest), depth+1); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("required key %q is missing", missing[0])
	}
	if nulls > 0 {
		header.with = msgp.AppendMapHeader(nil, count-nulls)
		s.edits = append(s.edits, header)
	}
	return rest, nil
}

// under is what the value of a key must have.
func (n *need) under(key string, value []byte) *need {
	if n == nil || n.sub == nil {
		return nil
	}
	if msgp.NextType(value) == msgp.ArrayType {
		key += "[]"
	}
	return n.sub[key]
}

func (s *scanner) cleaned() []byte {
	if len(s.edits) == 0 {
		return s.in
	}
	slices.SortFunc(s.edits, func(a, b edit) int { return a.from - b.from })
	out, last := make([]byte, 0, len(s.in)), 0
	for _, e := range s.edits {
		out = append(append(out, s.in[last:e.from]...), e.with...)
		last = e.to
	}
	return append(out, s.in[last:]...)
}
