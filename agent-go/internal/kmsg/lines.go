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
	// Repeats says that the line stands for Times equal ones, which a logger left out. Without a text they are equal to
	// the line before.
	Repeats bool
	Times   uint64
}

// ErrNoText says that a journal entry has no text to read.
var ErrNoText = errors.New("journal entry without text")

var (
	syslogPriority = regexp.MustCompile(`^<(\d{1,4})>(?:1 )?\s*`)
	dmesgLevel     = regexp.MustCompile(`^(\w{1,8})\s*:(\w{1,8})\s*:\s?`)
	dmesgStamp     = regexp.MustCompile(`^\[\s*(\d{1,12})\.(\d{1,9})(?:\s*<\s*[\d.]{1,24}>)?\]\s?`)
	dmesgDate      = regexp.MustCompile(`^\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})(?:\s*<\s*[\d.]{1,24}>)?\]\s?`)
	dmesgDelta     = regexp.MustCompile(`^\[(?:\s*[+<]\s*[\d.]{1,24}>?|[A-Z][a-z]{2} ?[ \d]\d \d\d:\d\d)\]\s?`)
	callerID       = regexp.MustCompile(`^\[\s*[TC]\d{1,8}\]\s?`)
	isoStamp       = regexp.MustCompile(`^(?:[A-Z][a-z]{2} )?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)` +
		`(?: ?(Z|UTC|[+-]\d\d(?::?\d\d)?)| ([A-Z]{3,5}))?\s+`)
	unixStamp   = regexp.MustCompile(`^(\d{9,11})\.(\d{6})\s+`)
	syslogStamp = regexp.MustCompile(`^([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?:\.\d{1,9})?\s+`)
	hostAndTag  = regexp.MustCompile(`^(\S{1,255}) ([\w./@-]{1,64})(\[\d{1,10}\])?: `)
	structured  = regexp.MustCompile(`^(\S{1,255}) ([\w./@-]{1,64}) \S{1,32} \S{1,32} (?:-|\[.*?\]) `) // RFC 5424
	tagWithPID  = regexp.MustCompile(`^[\w./@-]{1,64}\[\d{1,10}\]: `)
	kernelTag   = regexp.MustCompile(`^kernel: `)
	rawRecord   = regexp.MustCompile(`^\d{1,6},\d{1,20},\d{1,20},[^;]{1,200};`)
	dictionary  = regexp.MustCompile(`^ [A-Z_0-9]{1,64}=`)
	repeatedOf  = regexp.MustCompile(`^message repeated (\d{1,9}) times: \[ ?(.*?)\]?$`)
	repeatedOld = regexp.MustCompile(`(?:^|[^\s:]+ |kernel: )(?:last message|above message) repeat(?:ed|s) (\d{1,9}) times?\.?$`)
)

// trimLine takes off what is not of the line: its end, and what a crash or an editor left around it.
func trimLine(line string) string {
	line = strings.TrimRight(line, "\r\n\x00")
	line = strings.TrimLeft(line, "\x00\x1e")
	return strings.TrimPrefix(line, "\ufeff")
}

// ParseLine reads a line in any of the forms in which kernel logs are passed around: raw records, dmesg with and without
// -T, -x, -d and --time-format, syslog files old and new, journalctl in its text forms and as JSON.
func ParseLine(line string) (Line, error) {
	line = trimLine(line)
	switch {
	case rawRecord.MatchString(line):
		r, err := ParseRecord(line)
		return Line{Record: r, Foreign: !r.Kernel()}, err
	case strings.HasPrefix(line, "{\""), strings.HasPrefix(line, "{ \""), strings.HasPrefix(line, "data: {"):
		return journalEntry(strings.TrimPrefix(line, "data: "))
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
	if m := dmesgLevel.FindStringSubmatch(rest); m != nil && isFacility(m[1]) {
		l.Foreign = l.Foreign || m[1] != "kern"
		rest = rest[len(m[0]):]
	}
	dated := false
	rest, dated = l.stamp(rest)
	if l.repeatOfLast(rest) {
		return l
	}
	rest = l.writer(rest, dated)
	rest, _ = l.stamp(rest) // syslog files repeat the kernel's own stamp
	if m := callerID.FindString(rest); m != "" {
		rest = rest[len(m):]
	}
	if m := repeatedOf.FindStringSubmatch(rest); m != nil {
		l.Repeats = true
		l.Times, _ = strconv.ParseUint(m[1], 10, 64)
		rest, _ = l.stamp(m[2])
	}
	l.Text, l.More = splitLines(unescape(rest))
	return l
}

// repeatOfLast knows the lines of old loggers that stand for the one before.
func (l *Line) repeatOfLast(rest string) bool {
	m := repeatedOld.FindStringSubmatch(rest)
	if m == nil {
		return false
	}
	l.Repeats = true
	l.Times, _ = strconv.ParseUint(m[1], 10, 64)
	return true
}

func isFacility(word string) bool {
	switch word {
	case "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp":
		return true
	}
	return strings.HasPrefix(word, "local") || strings.HasPrefix(word, "res")
}

// stamp takes a time off the front, and tells whether it was one that only a logger writes.
func (l *Line) stamp(s string) (rest string, dated bool) {
	if m := dmesgStamp.FindStringSubmatch(s); m != nil {
		seconds, _ := strconv.ParseUint(m[1], 10, 64)
		micros, _ := strconv.ParseUint((m[2] + "000000")[:6], 10, 64)
		l.MonoUS = seconds*1_000_000 + micros
		return s[len(m[0]):], false
	}
	if m := dmesgDate.FindStringSubmatch(s); m != nil {
		l.at(time.ParseInLocation("Mon Jan _2 15:04:05 2006", m[1], time.Local))
		return s[len(m[0]):], false
	}
	if m := dmesgDelta.FindString(s); m != "" {
		return s[len(m):], false
	}
	if m := isoStamp.FindStringSubmatch(s); m != nil {
		l.iso(m[1], m[2])
		return s[len(m[0]):], true
	}
	if m := unixStamp.FindStringSubmatch(s); m != nil {
		seconds, _ := strconv.ParseInt(m[1], 10, 64)
		micros, _ := strconv.ParseInt(m[2], 10, 64)
		l.Time = time.UnixMicro(seconds*1_000_000 + micros)
		return s[len(m[0]):], true
	}
	if m := syslogStamp.FindStringSubmatch(s); m != nil {
		if t, err := time.ParseInLocation("Jan _2 15:04:05", m[1], time.Local); err == nil {
			l.Time = withYear(t, time.Now())
		}
		return s[len(m[0]):], true
	}
	return s, false
}

func (l *Line) at(t time.Time, err error) {
	if err == nil && t.Year() > 0 {
		l.Time = t
	}
}

// iso reads a date with or without a zone. The names of zones other than UTC say nothing for certain, so such a time is
// taken as that of this machine.
func (l *Line) iso(date, zone string) {
	date = strings.Replace(strings.Replace(date, ",", ".", 1), " ", "T", 1)
	if zone == "UTC" {
		zone = "Z"
	}
	for _, layout := range []string{"Z07:00", "Z0700", "Z07"} {
		if t, err := time.Parse("2006-01-02T15:04:05"+layout, date+zone); err == nil {
			l.at(t, nil)
			return
		}
	}
	l.at(time.ParseInLocation("2006-01-02T15:04:05", date, time.Local))
}

// withYear gives a date without a year the newest one for which it isn't in the future, with a day's grace for clocks.
func withYear(t, now time.Time) time.Time {
	for year := now.Year() + 1; year > now.Year()-9; year-- {
		dated := time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, t.Location())
		if dated.Day() == t.Day() && dated.Before(now.Add(24*time.Hour)) { // 29 February is not in every year
			return dated
		}
	}
	return time.Time{}
}

// writer takes host and tag off the front; a tag other than the kernel's tells of another writer. Only a line that came
// through a logger, which dates it, has a host and a tag: the kernel's own texts look alike.
func (l *Line) writer(s string, dated bool) string {
	if m := kernelTag.FindString(s); m != "" {
		return s[len(m):]
	}
	if strings.HasPrefix(s, driverMark) {
		return s
	}
	if m := hostAndTag.FindStringSubmatch(s); m != nil && (dated || m[2] == "kernel") {
		if m[2] != "kernel" {
			l.Foreign = true
		}
		return s[len(m[0]):]
	}
	if m := structured.FindStringSubmatch(s); m != nil && dated {
		if m[2] != "kernel" {
			l.Foreign = true
		}
		return s[len(m[0]):]
	}
	if tagWithPID.MatchString(s) && !strings.Contains(s, "]: segfault at ") {
		l.Foreign = true // the kernel names no process like this, but processes that write to its log do
	}
	return s
}

// journalEntry reads a line of journalctl -o json.
func journalEntry(line string) (Line, error) {
	var e struct {
		Message    json.RawMessage `json:"MESSAGE"`
		Transport  any             `json:"_TRANSPORT"`
		Facility   any             `json:"SYSLOG_FACILITY"`
		Identifier any             `json:"SYSLOG_IDENTIFIER"`
		Monotonic  any             `json:"_SOURCE_MONOTONIC_TIMESTAMP"`
		Realtime   any             `json:"__REALTIME_TIMESTAMP"`
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
	transport, facility, identifier := word(e.Transport), word(e.Facility), word(e.Identifier)
	if transport != "" && transport != "kernel" || facility != "" && facility != "0" ||
		transport == "" && identifier != "" && identifier != "kernel" {
		l.Foreign = true
	}
	if us, err := strconv.ParseUint(word(e.Monotonic), 10, 64); err == nil {
		l.MonoUS = us
	}
	if us, err := strconv.ParseInt(word(e.Realtime), 10, 64); err == nil {
		l.Time = time.UnixMicro(us)
	}
	return l, nil
}

// word is a field of the journal that should be text. One that is not, such as a list, is of no known writer.
func word(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		return "?"
	}
}

// journalText: the journal gives text that is not valid UTF-8 as a list of bytes, and long text as null.
func journalText(raw json.RawMessage) (string, error) {
	var text *string
	if json.Unmarshal(raw, &text) == nil && text != nil {
		return *text, nil
	}
	var numbers []int
	if json.Unmarshal(raw, &numbers) != nil || len(numbers) == 0 {
		return "", ErrNoText
	}
	bytes := make([]byte, 0, len(numbers))
	for _, n := range numbers {
		if n < 0 || n > 255 {
			return "", ErrNoText
		}
		bytes = append(bytes, byte(n))
	}
	return string(bytes), nil
}
