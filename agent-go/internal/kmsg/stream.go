package kmsg

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// Stream turns the lines of a log that someone saved into events: the parser and the folder without the reading.
type Stream struct {
	Counts struct {
		Lines, Unmatched, Foreign, Unreadable int
	}
	anyFacility bool
	parser      *Parser
	folder      folder
	uuids       map[string]string
	ordinal     uint64
	// ready are events that wait for older ones, which are still held for a further line.
	ready []*event
	// last is the newest line, and matched what it meant, nil for nothing.
	last    Line
	matched *Fact
}

// Lines of one event stand close together. In a saved log that is the distance in lines, and in time where they bear one.
const (
	farLines = 256
	farTime  = time.Second
)

// NewStream returns a stream. Lines that the kernel did not write are taken only with anyFacility.
func NewStream(anyFacility bool) *Stream {
	return &Stream{anyFacility: anyFacility, parser: NewParser(), uuids: map[string]string{}}
}

// Line takes the next line and returns the events that are complete.
func (s *Stream) Line(text string) []*heelerv1.KernelEvent {
	text = trimLine(text)
	if text == "" {
		return nil
	}
	if rest, ok := s.continued(text); ok {
		if rest == "" {
			return nil
		}
		return s.take(Record{Text: clean(rest), Raw: text}, &s.last)
	}
	s.Counts.Lines++
	l, err := ParseLine(text)
	if err != nil {
		s.Counts.Unreadable++
		return nil
	}
	if l.Foreign && !s.anyFacility {
		s.Counts.Foreign++
		s.matched = nil
		return nil
	}
	s.last = l
	return s.take(l.Record, &l)
}

// continued tells whether a line belongs to the record before: as one of its dictionary, which means nothing here, or
// as a further line of its text, which tools print under the first.
func (s *Stream) continued(text string) (rest string, ok bool) {
	trimmed := strings.TrimLeft(text, " \t")
	if len(trimmed) == len(text) {
		return "", false
	}
	if strings.HasPrefix(trimmed, driverMark) {
		return trimmed, true
	}
	return "", dictionary.MatchString(text)
}

// take parses what a line or record says.
func (s *Stream) take(r Record, l *Line) []*heelerv1.KernelEvent {
	s.ordinal++
	out := s.messages(s.stale(l))
	if l.Repeats && r.Text == "" {
		return append(out, s.repeat(l)...)
	}
	facts := s.parser.record(&r)
	s.matched = nil
	if len(facts) == 0 {
		s.Counts.Unmatched++
		return out
	}
	r.Priority, r.Seq, r.MonoUS = l.Priority, l.Seq, l.MonoUS
	for i := range facts {
		e := s.event(&facts[i], &r, l)
		if e.fact.Kind == heelerv1.KindGpuUUID && e.trusted && e.fact.PCI != "" {
			s.uuids[e.fact.PCI] = e.fact.UUID
		}
		s.matched = &facts[i]
		out = append(out, s.messages(s.folder.add(e))...)
	}
	return out
}

func (s *Stream) event(f *Fact, r *Record, l *Line) *event {
	e := &event{fact: *f, rec: *r, ordinal: s.ordinal, at: l.Time, trusted: !l.Foreign, count: max(1, f.Count)}
	if l.Repeats {
		e.count *= max(1, l.Times)
	}
	return e
}

// repeat is a line that says how often the one before was repeated.
func (s *Stream) repeat(l *Line) []*heelerv1.KernelEvent {
	if s.matched == nil || s.matched.part == continues {
		s.Counts.Unmatched++
		return nil
	}
	f := *s.matched
	f.part = whole
	return s.messages(append(s.folder.flush(), s.event(&f, &Record{Raw: l.Raw, MonoUS: l.MonoUS}, l)))
}

// stale lets go the events whose further lines would have come by now.
func (s *Stream) stale(l *Line) []*event {
	var out []*event
	for len(s.folder.held) > 0 {
		h := s.folder.held[0]
		apart := s.ordinal-h.ordinal > farLines ||
			!l.Time.IsZero() && !h.at.IsZero() && l.Time.Sub(h.at) > farTime ||
			l.MonoUS > h.rec.MonoUS && h.rec.MonoUS > 0 && l.MonoUS-h.rec.MonoUS > uint64(farTime.Microseconds())
		if !apart {
			break
		}
		out = append(out, s.folder.release(0)...)
	}
	return out
}

// Flush returns what was held back for lines that never came.
func (s *Stream) Flush() []*heelerv1.KernelEvent { return s.messages(s.folder.flush()) }

// messages returns what can go out in the order of the lines.
func (s *Stream) messages(events []*event) []*heelerv1.KernelEvent {
	s.ready = append(s.ready, events...)
	slices.SortStableFunc(s.ready, func(a, b *event) int { return cmp.Compare(a.ordinal, b.ordinal) })
	n := len(s.ready)
	for _, h := range s.folder.held {
		first, _ := slices.BinarySearchFunc(s.ready, h.ordinal, func(e *event, o uint64) int { return cmp.Compare(e.ordinal, o) })
		n = min(n, first)
	}
	out := make([]*heelerv1.KernelEvent, 0, n)
	for _, e := range s.ready[:n] {
		m := Message(&e.fact, &e.rec)
		m.Seq = e.ordinal
		if m.UUID == "" {
			m.UUID = s.uuids[e.fact.PCI]
		}
		if !e.at.IsZero() {
			m.TS = e.at.UnixNano()
		}
		if e.rec.Seq == 0 {
			m.KmsgSeq = nil
		}
		if e.rec.MonoUS == 0 {
			m.TSMonoUS = nil
		}
		m.Count = heelerv1.Some(e.count)
		m.Trusted = heelerv1.Some(e.trusted)
		m.ApproximateTS = heelerv1.Some(true)
		out = append(out, m)
	}
	s.ready = append(s.ready[:0], s.ready[n:]...)
	return out
}
