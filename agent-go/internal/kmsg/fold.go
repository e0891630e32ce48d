package kmsg

import (
	"strings"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// event is a fact on its way out.
type event struct {
	fact Fact
	rec  Record
	// ordinal names the record, and before is where to read again to get it.
	ordinal uint64
	before  position
	at      time.Time // when it was read
	live    bool      // read as it was written, not from a backlog
	trusted bool
	count   uint64
}

// folder joins the lines of one event. An event that may go on is held for a moment.
type folder struct {
	hold    time.Duration
	held    []*event
	orphans uint64
}

const mostHeld = 16

// add takes the next event and returns what is complete.
func (f *folder) add(e *event) []*event {
	switch e.fact.part {
	case opens:
		f.held = append(f.held, e)
		if len(f.held) > mostHeld {
			return f.release(0)
		}
		return nil
	case continues:
		return f.join(e)
	default:
		return []*event{e}
	}
}

// join folds a line into the event it continues. Some are complete then.
func (f *folder) join(e *event) []*event {
	for i, h := range f.held {
		if !belongs(&e.fact, &h.fact) {
			continue
		}
		switch e.fact.Kind {
		case heelerv1.KindOom:
			merge(&h.fact, &e.fact)
			h.fact.Text, h.fact.PID, h.fact.Comm = e.fact.Text, e.fact.PID, e.fact.Comm
			return f.release(i)
		case heelerv1.KindGpuLost:
			h.fact.Text += " " + e.fact.Text
			if strings.Contains(e.fact.Text, lostText) {
				return f.release(i)
			}
		default:
			merge(&h.fact, &e.fact)
		}
		return nil
	}
	if e.fact.Kind == heelerv1.KindOom { // older kernels print no first line
		return []*event{e}
	}
	f.orphans++
	return nil
}

func belongs(next, first *Fact) bool {
	if next.Kind != first.Kind {
		return false
	}
	switch next.Kind {
	case heelerv1.KindSxid:
		return next.PCI == first.PCI && *next.Code == *first.Code
	case heelerv1.KindOom:
		return *next.PID == *first.PID
	default:
		return true
	}
}

// merge adds what only the later line says.
func merge(to, from *Fact) {
	for key, value := range from.Detail {
		if _, ok := to.Detail[key]; !ok {
			to.set(key, value)
		}
	}
}

// release lets one held event go, unless its first line alone says nothing.
func (f *folder) release(i int) []*event {
	e := f.held[i]
	f.held = append(f.held[:i], f.held[i+1:]...)
	if e.fact.Kind == heelerv1.KindGpuLost && !strings.Contains(e.fact.Text, lostText) {
		return nil
	}
	return []*event{e}
}

// due returns the events that were held long enough.
func (f *folder) due(now time.Time) []*event {
	var out []*event
	for len(f.held) > 0 && now.Sub(f.held[0].at) >= f.hold {
		out = append(out, f.release(0)...)
	}
	return out
}

// flush returns all that are held.
func (f *folder) flush() []*event {
	var out []*event
	for len(f.held) > 0 {
		out = append(out, f.release(0)...)
	}
	return out
}
