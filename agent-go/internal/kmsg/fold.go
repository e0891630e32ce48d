package kmsg

import (
	"time"

	"heeler.dev/agent-go/internal/witness"
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
	// line waits for NVML's word on the same fault; nil where none can come.
	line *witness.Line
	// state is what a fresh reading of the GPU said.
	state heelerv1.GpuState
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
	if e.fact.part == continues || e.fact.part == either {
		if i := f.find(&e.fact); i >= 0 {
			return f.join(i, e)
		}
	}
	if e.fact.part == continues {
		f.orphans++
		return nil
	}
	out := f.releaseBefore(&e.fact)
	if e.fact.part == whole || e.fact.closes {
		return append(out, e)
	}
	f.held = append(f.held, e)
	if len(f.held) > mostHeld {
		out = append(out, f.release(0)...)
	}
	return out
}

// find is the newest event that a line continues, or -1.
func (f *folder) find(next *Fact) int {
	for i := len(f.held) - 1; i >= 0; i-- {
		if belongs(next, &f.held[i].fact) {
			return i
		}
	}
	return -1
}

func belongs(next, first *Fact) bool {
	if next.thread == "" || next.thread != first.thread {
		return false
	}
	if _, has := first.Detail[next.once]; next.once != "" && has {
		return false
	}
	return next.PID == nil || first.PID == nil || *next.PID == *first.PID
}

// join folds a line into the event it continues. The event may be complete then.
func (f *folder) join(i int, e *event) []*event {
	absorb(&f.held[i].fact, &e.fact)
	if e.fact.closes {
		return f.release(i)
	}
	return nil
}

// absorb adds what only the later line says.
func absorb(to, from *Fact) {
	for key, value := range from.Detail {
		had, ok := to.Detail[key]
		list, isList := had.([]any)
		more, areMore := value.([]any)
		switch {
		case !ok:
			to.set(key, value)
		case isList && areMore && len(list) < longestList:
			to.set(key, append(list, more...))
		}
	}
	if to.PCI == "" {
		to.PCI = from.PCI
	}
	if to.PID == nil {
		to.PID = from.PID
	}
	if from.Comm != "" {
		to.Comm = from.Comm
	}
	if to.Kind == heelerv1.KindMce { // the firmware says only further on what its error is about
		to.Kind = from.Kind
	}
	to.weak = to.weak && from.weak
	switch from.text {
	case appendText:
		to.Text = cut(to.Text + " " + from.Text)
	case replaceText:
		to.Text = from.Text
	}
}

const longestList = 32

// releaseBefore lets go what the next event ends: one that had to be continued at once, and one of the same thread.
func (f *folder) releaseBefore(next *Fact) []*event {
	var out []*event
	for i := 0; i < len(f.held); {
		h := &f.held[i].fact
		if h.brief || next.part != whole && h.thread == next.thread {
			out = append(out, f.release(i)...)
			continue
		}
		i++
	}
	return out
}

// release lets one held event go, unless what came of it says nothing.
func (f *folder) release(i int) []*event {
	e := f.held[i]
	f.held = append(f.held[:i], f.held[i+1:]...)
	if e.fact.weak {
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
