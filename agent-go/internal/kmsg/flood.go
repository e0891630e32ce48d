package kmsg

import (
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// gate thins out floods: of equal lines the first few pass at once, the rest are counted, and one event with the count
// follows at the end of the interval. The sum of all counts is the number of lines. Each code of each GPU has room of
// its own, so that a flood of one cannot hide another.
type gate struct {
	interval time.Duration
	// burst is how many equal lines pass in an interval; texts is how many different ones of a group (a kind, code and
	// PCI address) are kept apart, groups how many groups.
	burst, texts, groups int
	started              time.Time
	seen                 map[string]*repeated
	room                 map[string]int // by group, the texts kept apart
}

// repeated is what became of one line within the interval.
type repeated struct {
	group   string
	passed  int
	waiting uint64 // lines counted and not yet told
	first   position
	newest  *event
	mixed   mixture
}

// mixture says what a count stands for.
type mixture int

const (
	oneText mixture = iota
	textsOfGroup
	anything
)

func newGate(interval time.Duration) *gate {
	return &gate{
		interval: interval, burst: 3, texts: 64, groups: 256, seen: map[string]*repeated{}, room: map[string]int{},
	}
}

func groupKey(f *Fact) string {
	code := "-"
	if f.Code != nil {
		code = decimal(*f.Code)
	}
	return string(f.Kind) + "\x00" + f.PCI + "\x00" + code
}

func lineKey(group string, f *Fact) string {
	pid := ""
	if f.PID != nil {
		pid = decimal(*f.PID)
	}
	return group + "\x00" + pid + "\x00" + f.Text
}

// slot finds what a line is counted under.
func (g *gate) slot(f *Fact) *repeated {
	group := groupKey(f)
	if r, ok := g.seen[lineKey(group, f)]; ok {
		return r
	}
	texts, known := g.room[group]
	switch {
	case !known && len(g.room) >= g.groups:
		return g.shared("\x01"+string(f.Kind), anything)
	case texts >= g.texts:
		return g.shared("\x02"+group, textsOfGroup)
	}
	g.room[group]++
	r := &repeated{group: group}
	g.seen[lineKey(group, f)] = r
	return r
}

// shared is what lines are counted under for which there is no room of their own.
func (g *gate) shared(key string, m mixture) *repeated {
	r, ok := g.seen[key]
	if !ok {
		r = &repeated{passed: g.burst, mixed: m}
		g.seen[key] = r
	}
	return r
}

// admit tells whether an event may pass now.
func (g *gate) admit(e *event) bool {
	if g.started.IsZero() {
		g.started = e.at
	}
	r := g.slot(&e.fact)
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

// due returns the summaries once the interval is over.
func (g *gate) due(now time.Time) []*event {
	if g.started.IsZero() || now.Sub(g.started) < g.interval {
		return nil
	}
	g.started = now
	return g.flush()
}

// flush returns the summaries. Lines that repeated stay known, so that a flood makes one event an interval.
func (g *gate) flush() []*event {
	var out []*event
	for key, r := range g.seen {
		if r.waiting == 0 {
			delete(g.seen, key)
			if r.mixed == oneText {
				g.leave(r.group)
			}
			continue
		}
		out = append(out, r.summary())
		r.waiting, r.newest, r.passed = 0, nil, g.burst
	}
	return out
}

func (g *gate) leave(group string) {
	if g.room[group]--; g.room[group] <= 0 {
		delete(g.room, group)
	}
}

// summary is the event that stands for the lines counted. Its text is that of the last of them.
func (r *repeated) summary() *event {
	e := *r.newest
	e.count, e.before = r.waiting, r.first
	switch r.mixed {
	case textsOfGroup:
		e.fact.PID, e.fact.Comm, e.fact.Detail = nil, "", map[string]any{"mixed": true}
	case anything:
		e.fact = Fact{Kind: heelerv1.KindFlood, Text: e.fact.Text}
		e.fact.set("of", string(r.newest.fact.Kind))
	}
	return &e
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
