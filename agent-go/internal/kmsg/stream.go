package kmsg

import (
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
}

// NewStream returns a stream. Lines that the kernel did not write are taken only with anyFacility.
func NewStream(anyFacility bool) *Stream {
	return &Stream{anyFacility: anyFacility, parser: NewParser(), uuids: map[string]string{}}
}

// Line takes the next line and returns the events that are complete.
func (s *Stream) Line(text string) []*heelerv1.KernelEvent {
	s.Counts.Lines++
	s.ordinal++
	l, err := ParseLine(text)
	if err != nil {
		s.Counts.Unreadable++
		return nil
	}
	if l.Foreign && !s.anyFacility {
		s.Counts.Foreign++
		return nil
	}
	fact, ok := s.parser.Parse(l.Text)
	if !ok {
		s.Counts.Unmatched++
		return nil
	}
	e := &event{fact: fact, rec: l.Record, ordinal: s.ordinal, at: l.Time, trusted: !l.Foreign, count: 1}
	return s.messages(s.folder.add(e))
}

// Flush returns what was held back for lines that never came.
func (s *Stream) Flush() []*heelerv1.KernelEvent { return s.messages(s.folder.flush()) }

func (s *Stream) messages(events []*event) []*heelerv1.KernelEvent {
	var out []*heelerv1.KernelEvent
	for _, e := range events {
		m := Message(&e.fact, &e.rec)
		m.Seq = e.ordinal
		if e.fact.Kind == heelerv1.KindGpuUUID && e.trusted {
			s.uuids[e.fact.PCI] = e.fact.UUID
		}
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
	return out
}
