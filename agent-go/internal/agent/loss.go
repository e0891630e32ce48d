package agent

import (
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// losses makes the events that tell of events which the spool lost.
type losses struct {
	*stamper
	last atomic.Uint64
}

const (
	// lossSeq is where the numbers of such events begin, beyond those of kernel records and of NVML.
	lossSeq  = 1<<62 + 1<<61
	lossOf   = "spool" // detail.of
	fullWhy  = "no room"
	damagWhy = "damage"
)

// loss adds up what is lost.
type loss struct {
	lost, own       uint64 // all, and those not told of before
	firstTS, lastTS int64
	first, last     uint64 // kernel records of the present boot
	kinds           map[string]any
}

// tell implements [spool.Options]: a KernelEvent of kind gap, with how many events are lost, of which kinds, and from
// when to when they happened.
func (l *losses) tell(unread uint64, dropped [][]byte) ([]byte, uint64) {
	sum := loss{lost: unread, kinds: map[string]any{}}
	for _, d := range dropped {
		l.add(&sum, d)
	}
	detail := map[string]any{"of": lossOf, "lost": sum.lost, "why": fullWhy}
	if len(dropped) == 0 {
		detail["why"] = damagWhy
	}
	if sum.firstTS > 0 {
		detail["first_ts"], detail["last_ts"] = sum.firstTS, sum.lastTS
	}
	if sum.last > 0 {
		detail["first"], detail["last"] = sum.first, sum.last
	}
	if len(sum.kinds) > 0 {
		detail["kinds"] = sum.kinds
	}
	m := &heelerv1.KernelEvent{Kind: heelerv1.KindGap, Detail: detail}
	m.Seq = l.number()
	p, err := l.pack(m)
	if err != nil {
		return nil, sum.own // cannot be: the node's name was checked
	}
	return bus.EncodeEnvelope(p.subject, p.typeHeader, p.id, p.data), sum.own
}

// number is one that no other event of the boot has.
func (l *losses) number() uint64 {
	since, err := hostfs.SinceBoot()
	if err != nil {
		since = time.Duration(time.Now().UnixNano())
	}
	for {
		last := l.last.Load()
		next := max(lossSeq+uint64(since.Microseconds()), last+1)
		if l.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

func (l *losses) add(sum *loss, record []byte) {
	var m heelerv1.KernelEvent
	e, err := bus.DecodeEnvelope(record)
	if err == nil {
		_, err = m.UnmarshalMsg(e.Data)
	}
	if err != nil {
		sum.lost++
		sum.own++
		return
	}
	if m.Kind == heelerv1.KindGap && m.Detail["of"] == lossOf {
		sum.lost += whole(m.Detail["lost"])
		sum.span(int64(whole(m.Detail["first_ts"])), int64(whole(m.Detail["last_ts"])))
		if m.Boot == l.boot {
			sum.records(whole(m.Detail["first"]), whole(m.Detail["last"]))
		}
		kinds, _ := m.Detail["kinds"].(map[string]any)
		for kind, n := range kinds {
			sum.kinds[kind] = whole(sum.kinds[kind]) + whole(n)
		}
		return
	}
	sum.lost++
	sum.own++
	sum.span(m.TS, m.TS)
	if m.Boot == l.boot && m.KmsgSeq != nil {
		sum.records(*m.KmsgSeq, *m.KmsgSeq)
	}
	sum.kinds[string(m.Kind)] = whole(sum.kinds[string(m.Kind)]) + 1
}

func (s *loss) span(first, last int64) {
	if first <= 0 {
		return
	}
	if s.firstTS == 0 || first < s.firstTS {
		s.firstTS = first
	}
	s.lastTS = max(s.lastTS, last)
}

func (s *loss) records(first, last uint64) {
	if last == 0 {
		return
	}
	if s.last == 0 || first < s.first {
		s.first = first
	}
	s.last = max(s.last, last)
}

// whole reads a number as it comes from the wire.
func whole(v any) uint64 {
	switch n := v.(type) {
	case uint64:
		return n
	case int64:
		return uint64(max(n, 0))
	default:
		return 0
	}
}
