package kmsg

import (
	"strings"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// gate thins out floods: of equal lines the first few pass at once, the rest are counted, and one event with the count
// follows at the end of the interval. The sum of all counts is the number of lines.
type gate struct {
	interval time.Duration
	// burst is how many equal lines pass in an interval, most how many different ones are kept apart.
	burst, most int
	started     time.Time
	seen        map[string]*repeated
}

// repeated is what became of one line within the interval.
type repeated struct {
	passed  int
	waiting uint64 // lines counted and not yet told
	first   position
	newest  *event
	// mixed says that it stands for lines of one kind that were too many to keep apart.
	mixed bool
}

func newGate(interval time.Duration) *gate {
	return &gate{interval: interval, burst: 3, most: 256, seen: map[string]*repeated{}}
}

func lineKey(f *Fact) string {
	var b strings.Builder
	b.WriteString(string(f.Kind))
	b.WriteByte(0)
	b.WriteString(f.PCI)
	b.WriteByte(0)
	if f.Code != nil {
		b.WriteString(decimal(*f.Code))
	}
	b.WriteByte(0)
	if f.PID != nil {
		b.WriteString(decimal(*f.PID))
	}
	b.WriteByte(0)
	b.WriteString(f.Text)
	return b.String()
}

// admit tells whether an event may pass now.
func (g *gate) admit(e *event) bool {
	if g.started.IsZero() {
		g.started = e.at
	}
	key := lineKey(&e.fact)
	r, ok := g.seen[key]
	if !ok && len(g.seen) >= g.most {
		key = "\x00" + string(e.fact.Kind)
		if r, ok = g.seen[key]; !ok {
			r = &repeated{passed: g.burst, mixed: true}
			g.seen[key] = r
		}
	} else if !ok {
		r = &repeated{}
		g.seen[key] = r
	}
	if r.passed < g.burst {
		r.passed++
		return true
	}
	if r.waiting == 0 {
		r.first = e.before
	}
	r.waiting++
	r.newest = e
	return false
}

// due returns the summaries once the interval is over. Lines that went on repeating stay known, so that a flood
// makes one event an interval.
func (g *gate) due(now time.Time) []*event {
	if g.started.IsZero() || now.Sub(g.started) < g.interval {
		return nil
	}
	g.started = now
	return g.flush()
}

func (g *gate) flush() []*event {
	var out []*event
	for key, r := range g.seen {
		if r.waiting == 0 {
			delete(g.seen, key)
			continue
		}
		e := *r.newest
		e.count, e.before = r.waiting, r.first
		if r.mixed {
			e.fact = Fact{Kind: heelerv1.KindFlood, Text: e.fact.Text}
			e.fact.set("of", string(r.newest.fact.Kind))
		}
		out = append(out, &e)
		r.waiting, r.newest, r.passed = 0, nil, g.burst
	}
	return out
}

// oldest is where the oldest line stands that is counted but not yet told.
func (g *gate) oldest() (position, bool) {
	var first position
	found := false
	for _, r := range g.seen {
		if r.waiting > 0 && (!found || r.first.Ordinal < first.Ordinal) {
			first, found = r.first, true
		}
	}
	return first, found
}
