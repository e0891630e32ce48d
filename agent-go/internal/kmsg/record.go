// Package kmsg follows the kernel log and turns the lines that matter into KernelEvents. Reading is apart from parsing:
// a reader gives records, the parser turns the text of one into facts, the folder joins lines that belong together, the
// flood gate thins out repetitions, and the source puts them in a row.
package kmsg

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Record is one record of the kernel log.
type Record struct {
	// Priority is facility * 8 + level.
	Priority uint64
	Seq      uint64
	// MonoUS is microseconds since boot.
	MonoUS uint64
	// Text has its escapes undone and is valid UTF-8 without control characters.
	Text string
	// More holds the further lines of a record of several.
	More []string
	// Raw is the record as read, its dictionary lines excepted.
	Raw string
}

const levels = 8

// Kernel tells whether the kernel itself wrote the record: processes that write to the log get another facility.
func (r *Record) Kernel() bool { return r.Priority/levels == 0 }

var errRecord = errors.New("not a kernel log record")

// ParseRecord reads a record as /dev/kmsg gives it: "priority,seq,usec,flags[,more];text", and then lines that begin
// with a space and are no part of the text.
func ParseRecord(data string) (Record, error) {
	line, _, _ := strings.Cut(data, "\n")
	head, text, ok := strings.Cut(line, ";")
	if !ok {
		return Record{}, errRecord
	}
	r := Record{Raw: line}
	for _, to := range []*uint64{&r.Priority, &r.Seq, &r.MonoUS} {
		field, rest, more := strings.Cut(head, ",")
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil || !more {
			return Record{}, errRecord
		}
		*to, head = n, rest
	}
	r.Text, r.More = splitLines(unescape(text))
	return r, nil
}

// driverMark begins the lines of NVIDIA's driver, in each record of several too.
const driverMark = "NVRM: "

// splitLines parts a record that the driver printed as several lines in one go. Other records keep a line break as a
// replacement character: it may come from the name of a process. Such a name, of 15 bytes at most, can fake the
// beginning of a driver's line, but no line that means anything.
func splitLines(text string) (string, []string) {
	if !strings.HasPrefix(text, driverMark) || !strings.Contains(text, "\n") {
		return clean(text), nil
	}
	var lines []string
	for rest, more := text, true; more; {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		if begins := strings.TrimLeft(line, " "); strings.HasPrefix(begins, driverMark) {
			lines = append(lines, clean(begins))
		} else if line != "" {
			lines[len(lines)-1] += clean("\n" + line)
		}
	}
	return lines[0], lines[1:]
}

// unescape undoes \xNN.
func unescape(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] == 'x' {
			if c, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// clean makes text safe to hand on: valid UTF-8, and no control characters that could play tricks on a terminal.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7F || r >= 0x80 && r < 0xA0 {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

func isClean(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7F {
			return false
		}
	}
	return true
}

const longestRaw = 1024

// cut shortens text to the bytes that the bus allows for a raw line, at the edge of a character.
func cut(s string) string {
	if len(s) <= longestRaw {
		return s
	}
	end := longestRaw
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
