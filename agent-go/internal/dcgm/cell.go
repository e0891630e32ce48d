package dcgm

import (
	"math"
	"strconv"
	"strings"
)

// Kind says what a cell of dcgmi's table is: a number, or why there is none.
type Kind int

// The kinds.
const (
	Number Kind = iota
	Blank
	NotFound
	NotSupported
	NoPermission
	// Cut is a value that dcgmi shortened because it is wider than its column.
	Cut
	// NotANumber is what a division by nothing gives.
	NotANumber
)

// String is the reason as the bus carries it.
func (k Kind) String() string {
	return [...]string{"ok", "blank", "not_found", "not_supported", "no_permission", "cut", "not_a_number"}[k]
}

// Cell is one value of a row.
type Cell struct {
	Value float64
	Kind  Kind
}

// The first of the sixteen values that stand for none, for each type. DCGM counts all floats from there on.
const (
	blank32    = 0x7ffffff0
	blank64    = 0x7ffffffffffffff0
	blankFloat = 140737488355328
	blanks     = 16
)

// blankKind is what the values that stand for none mean, by their distance from the first.
func blankKind(distance int64) Kind {
	switch distance {
	case 1:
		return NotFound
	case 2:
		return NotSupported
	case 3:
		return NoPermission
	default:
		return Blank
	}
}

var words = map[string]Kind{
	"": Blank, "N/A": Blank, "-": Blank, "<<<NULL>>>": Blank, "<<<NOT_FOUND>>>": NotFound,
	"<<<NOT_SUPPORTED>>>": NotSupported, "<<<NOT_PERM>>>": NoPermission,
	"nan": NotANumber, "-nan": NotANumber, "inf": NotANumber, "-inf": NotANumber,
	"NAN": NotANumber, "-NAN": NotANumber, "INF": NotANumber, "-INF": NotANumber,
}

// parseCell reads one cell. It says no to what dcgmi cannot have written.
func parseCell(s string) (Cell, bool) {
	if kind, ok := words[s]; ok {
		return Cell{Kind: kind}, true
	}
	if strings.HasSuffix(s, "...") && strings.Trim(s, "0123456789.-<>_ABCDEFGHIJKLMNOPQRSTUVWXYZ/") == "" {
		return Cell{Kind: Cut}, true
	}
	if strings.Trim(s, "0123456789.-+eE") != "" { // hexadecimals and underscores are no output of dcgmi
		return Cell{}, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		switch {
		case n >= blank64:
			return Cell{Kind: blankKind(n - blank64)}, true
		case n >= blank32 && n < blank32+blanks:
			return Cell{Kind: blankKind(n - blank32)}, true
		default:
			return Cell{Value: float64(n)}, true
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || math.IsInf(f, 0):
		return Cell{}, false
	case f >= blankFloat && f < blankFloat+blanks:
		return Cell{Kind: blankKind(int64(f) - blankFloat)}, true
	case f >= blankFloat:
		return Cell{Kind: Blank}, true
	case f >= blank32 && f < blank32+blanks && f == math.Trunc(f):
		return Cell{Kind: blankKind(int64(f) - blank32)}, true
	default:
		return Cell{Value: f}, true
	}
}
