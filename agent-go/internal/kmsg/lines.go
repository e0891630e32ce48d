package kmsg

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Line is a line of a kernel log as some tool printed it.
type Line struct {
	Record
	// Time is the time of day that the line bears, zero where it bears none.
	Time time.Time
	// Foreign says that the line tells of a writer other than the kernel.
	Foreign bool
}

// ErrNoText says that a journal entry has no text to read.
var ErrNoText = errors.New("journal entry without text")

var (
	syslogPriority = regexp.MustCompile(`^<(\d{1,4})>\s*`)
	dmesgLevel     = regexp.MustCompile(`^(\w{1,8})\s*:(\w{1,8})\s*:\s?`)
	dmesgStamp     = regexp.MustCompile(`^\[\s*(\d{1,12})\.(\d{1,9})\]\s?`)
	dmesgDate      = regexp.MustCompile(`^\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]\s?`)
	callerID       = regexp.MustCompile(`^\[\s*[TC]\d{1,8}\]\s?`)
	isoStamp       = regexp.MustCompile(`^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)\s+`)
	syslogStamp    = regexp.MustCompile(`^([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)\s+`)
	hostAndTag     = regexp.MustCompile(`^(\S{1,255}) ([\w./@-]{1,64})(?:\[\d{1,10}\])?: `)
	kernelTag      = regexp.MustCompile(`^kernel: `)
	rawRecord      = regexp.MustCompile(`^\d{1,6},\d{1,20},\d{1,20},[^;]{1,200};`)
)

// ParseLine reads a line in any of the forms in which kernel logs are passed around: raw records, dmesg with and without
// -T, -x and --time-format iso, syslog files, journalctl as text and as JSON.
func ParseLine(line string) (Line, error) {
	line = strings.TrimRight(line, "\r\n")
	switch {
	case rawRecord.MatchString(line):
		r, err := ParseRecord(line)
		return Line{Record: r, Foreign: !r.Kernel()}, err
	case strings.HasPrefix(line, "{"):
		return journalEntry(line)
	default:
		return textLine(line), nil
	}
}

// textLine takes off what tools put before the kernel's text.
func textLine(line string) Line {
	l := Line{Record: Record{Raw: line}}
	rest := line
	if m := syslogPriority.FindStringSubmatch(rest); m != nil {
		l.Priority, _ = strconv.ParseUint(m[1], 10, 64)
		l.Foreign = !l.Kernel()
		rest = rest[len(m[0]):]
	}
	if m := dmesgLevel.FindStringSubmatch(rest); m != nil {
		l.Foreign = l.Foreign || m[1] != "kern"
		rest = rest[len(m[0]):]
	}
	rest = l.stamp(rest)
	rest = l.writer(rest)
	rest = l.stamp(rest) // syslog files repeat the kernel's own stamp
	if m := callerID.FindString(rest); m != "" {
		rest = rest[len(m):]
	}
	l.Text = clean(unescape(rest))
	return l
}

// stamp takes a time off the front.
func (l *Line) stamp(s string) string {
	if m := dmesgStamp.FindStringSubmatch(s); m != nil {
		seconds, _ := strconv.ParseUint(m[1], 10, 64)
		micros, _ := strconv.ParseUint((m[2] + "000000")[:6], 10, 64)
		l.MonoUS = seconds*1_000_000 + micros
		return s[len(m[0]):]
	}
	for _, form := range []struct {
		pattern *regexp.Regexp
		layouts []string
	}{
		{dmesgDate, []string{"Mon Jan _2 15:04:05 2006"}},
		{isoStamp, []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05"}},
		{syslogStamp, []string{"Jan _2 15:04:05"}},
	} {
		m := form.pattern.FindStringSubmatch(s)
		if m == nil {
			continue
		}
		text := strings.Replace(strings.Replace(m[1], ",", ".", 1), " ", spaceFor(form.pattern), 1)
		for _, layout := range form.layouts {
			if t, err := time.ParseInLocation(layout, text, time.Local); err == nil && t.Year() > 0 {
				l.Time = t
				break
			}
		}
		return s[len(m[0]):]
	}
	return s
}

// spaceFor is what stands between date and time in the layouts of a pattern.
func spaceFor(p *regexp.Regexp) string {
	if p == isoStamp {
		return "T"
	}
	return " "
}

// writer takes host and tag off the front; a tag other than the kernel's tells of another writer.
func (l *Line) writer(s string) string {
	if m := kernelTag.FindString(s); m != "" {
		return s[len(m):]
	}
	if strings.HasPrefix(s, "NVRM: ") {
		return s
	}
	if m := hostAndTag.FindStringSubmatch(s); m != nil {
		if m[2] == "kernel" {
			return s[len(m[0]):]
		}
		// Only a line that came through syslog has a host and a tag; the kernel's own texts look alike.
		if !l.Time.IsZero() || syslogStamp.MatchString(l.Raw) {
			l.Foreign = true
			return s[len(m[0]):]
		}
	}
	return s
}

// journalEntry reads a line of journalctl -o json.
func journalEntry(line string) (Line, error) {
	var e struct {
		Message   json.RawMessage `json:"MESSAGE"`
		Transport string          `json:"_TRANSPORT"`
		Facility  string          `json:"SYSLOG_FACILITY"`
		Monotonic string          `json:"_SOURCE_MONOTONIC_TIMESTAMP"`
		Realtime  string          `json:"__REALTIME_TIMESTAMP"`
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return Line{}, err
	}
	text, err := journalText(e.Message)
	if err != nil {
		return Line{}, err
	}
	l := textLine(text)
	l.Raw = line
	if e.Transport != "" && e.Transport != "kernel" || e.Facility != "" && e.Facility != "0" {
		l.Foreign = true
	}
	if us, err := strconv.ParseUint(e.Monotonic, 10, 64); err == nil {
		l.MonoUS = us
	}
	if us, err := strconv.ParseInt(e.Realtime, 10, 64); err == nil {
		l.Time = time.UnixMicro(us)
	}
	return l, nil
}

// journalText: the journal gives text that is not valid UTF-8 as a list of bytes, and long text as null.
func journalText(raw json.RawMessage) (string, error) {
	var text *string
	if json.Unmarshal(raw, &text) == nil && text != nil {
		return *text, nil
	}
	var bytes []uint8
	var numbers []int
	if json.Unmarshal(raw, &numbers) != nil || len(numbers) == 0 {
		return "", ErrNoText
	}
	for _, n := range numbers {
		if n < 0 || n > 255 {
			return "", ErrNoText
		}
		bytes = append(bytes, uint8(n))
	}
	return string(bytes), nil
}
