package dcgm

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Entity is what a row is about.
type Entity struct {
	// Group is GPU, GPU-I, GPU-CI, SWITCH, LINK or another word of dcgmi's.
	Group string
	ID    uint64
	// Link is the number of the link where the row names one beside its GPU or switch.
	Link    uint64
	HasLink bool
}

// Row is one line of the table.
type Row struct {
	Entity Entity
	Cells  []Cell
}

// RowError says why a line that looks like a row is none.
type RowError struct{ Why, Line string }

// Error implements error.
func (e *RowError) Error() string { return fmt.Sprintf("%s: %.80q", e.Why, e.Line) }

// Verdict is what a line turned out to be.
type Verdict int

// The verdicts.
const (
	// Nothing is an empty line, a header or the row of units.
	Nothing Verdict = iota
	// IsRow is a row with as many cells as there are fields.
	IsRow
	// IsMessage is text: an error, or a farewell.
	IsMessage
)

// Parser reads the lines of dcgmi dmon. Names of columns are shortened and change between versions, so a column is known
// by its place: the order in which the fields were asked for.
type Parser struct {
	// Fields is how many were asked for.
	Fields int

	fits   bool  // the last header has as many columns
	starts []int // where they begin
	width  int   // of the header
}

// Line reads one line without its end. It never fails halfway: a row has all its cells, or there is none.
func (p *Parser) Line(line string) (Verdict, Row, error) {
	tokens := strings.Fields(line)
	switch {
	case len(tokens) == 0:
		return Nothing, Row{}, nil
	case strings.HasPrefix(tokens[0], "#"):
		return Nothing, Row{}, p.header(line, tokens)
	case strings.EqualFold(tokens[0], "ID"):
		return Nothing, Row{}, nil
	}
	entity, used := parseEntity(tokens)
	if used < 0 {
		return IsMessage, Row{}, nil
	}
	if !p.fits {
		return Nothing, Row{}, &RowError{"no header of this many columns before", line}
	}
	if used > 0 && len(tokens)-used == p.Fields {
		return p.row(entity, tokens[used:], line)
	}
	return p.byColumn(line)
}

// header notes where the columns are.
func (p *Parser) header(line string, tokens []string) error {
	names := tokens[1:]
	if tokens[0] == "#" && len(names) > 0 { // "# Entity" in DCGM 2
		names = names[1:]
	}
	p.fits = len(names) == p.Fields && p.Fields > 0
	p.starts, p.width = p.starts[:0], len(line)
	if tokens[0] == "#" { // its columns stand to the right
		p.width = -1
	}
	if !p.fits {
		return &RowError{fmt.Sprintf("a header of %d columns instead of %d", len(names), p.Fields), line}
	}
	p.starts = append(p.starts, starts(line)[len(tokens)-len(names):]...)
	return nil
}

// starts are where the words of a line begin.
func starts(line string) []int {
	var all []int
	between := true
	for i, r := range line {
		space := unicode.IsSpace(r)
		if between && !space {
			all = append(all, i)
		}
		between = space
	}
	return all
}

// byColumn reads a row with empty cells, which DCGM 4 leaves for fields that an entity lacks, or one whose entity touches
// the first value. That is safe only while nothing has moved: dcgmi pads rows to the width of the header.
func (p *Parser) byColumn(line string) (Verdict, Row, error) {
	first := p.starts[0]
	if len(line) != p.width || first > len(line) {
		return Nothing, Row{}, &RowError{fmt.Sprintf("not %d values", p.Fields), line}
	}
	entity, used := parseEntity(strings.Fields(line[:first]))
	if used <= 0 || used != len(strings.Fields(line[:first])) {
		return Nothing, Row{}, &RowError{"not an entity", line}
	}
	cells := make([]string, p.Fields)
	for i, from := range p.starts {
		to := len(line)
		if i+1 < len(p.starts) {
			to = p.starts[i+1]
		}
		cells[i] = strings.TrimRight(line[from:to], " ")
		if strings.ContainsRune(cells[i], ' ') || i+1 < len(p.starts) && cells[i] != "" && line[to-1] != ' ' {
			return Nothing, Row{}, &RowError{"values are not under their headers", line}
		}
	}
	return p.row(entity, cells, line)
}

func (p *Parser) row(entity Entity, texts []string, line string) (Verdict, Row, error) {
	r := Row{Entity: entity, Cells: make([]Cell, len(texts))}
	for i, text := range texts {
		cell, ok := parseCell(text)
		if !ok {
			return Nothing, Row{}, &RowError{fmt.Sprintf("%.20q is no value", text), line}
		}
		r.Cells[i] = cell
	}
	return IsRow, r, nil
}

// groups are the words that rows begin with.
var groups = map[string]string{
	"GPU": "GPU", "GPU-I": "GPU-I", "GPU-CI": "GPU-CI", "vGPU": "vGPU", "Switch": groupSwitch, "SW": groupSwitch,
	"NvSwitch": groupSwitch, "LINK": groupLink, "CPU": "CPU", "CX": "CX",
}

const (
	groupSwitch = "SWITCH"
	groupLink   = "LINK"
)

// parseEntity tells how many tokens the entity takes: none when it is broken, and less than none when the line does not
// begin like a row.
func parseEntity(tokens []string) (Entity, int) {
	if len(tokens) == 0 || groups[tokens[0]] == "" {
		return Entity{}, -1
	}
	e := Entity{Group: groups[tokens[0]]}
	at := 1
	if e.Group == "CPU" && len(tokens) > 1 && tokens[1] == "Core" {
		e.Group, at = "CPU Core", 2
	}
	var ok bool
	if e.ID, ok = number(tokens, at); !ok {
		return Entity{}, 0
	}
	at++
	if len(tokens) > at && tokens[at] == groupLink {
		if e.Link, ok = number(tokens, at+1); !ok {
			return Entity{}, 0
		}
		e.HasLink = true
		at += 2
	}
	return e, at
}

func number(tokens []string, at int) (uint64, bool) {
	if at >= len(tokens) {
		return 0, false
	}
	n, err := strconv.ParseUint(tokens[at], 10, 32)
	return n, err == nil
}
