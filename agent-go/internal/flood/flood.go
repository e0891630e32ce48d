// Package flood thins out floods: of equal things the first few pass at once, the rest are counted, and one summary
// with the count follows at the end of the interval. The sum of what passed and of all counts is the number of things.
package flood

import "time"

// Gate lets things pass or counts them. Each group has room of its own, so that a flood of one cannot hide another.
// What a gate keeps is bounded, however many different things come.
type Gate[T, P any] struct {
	interval time.Duration
	// burst is how many equal things pass in an interval; texts is how many different ones of a group are kept apart,
	// groups how many groups, most how many of all.
	burst, texts, groups, most int
	started                    time.Time
	seen                       map[string]*repeated[T, P]
	room                       map[string]int // by group, the texts kept apart
}

// Mixture says what a count stands for.
type Mixture int

// The mixtures.
const (
	// Equal things.
	Equal Mixture = iota
	// Group is different things of one group, which had no room left.
	Group
	// Anything is things of groups for which there was no room.
	Anything
)

// Summary stands for the things counted.
type Summary[T, P any] struct {
	Last    T
	First   P // where the first of them stood
	Count   uint64
	Mixture Mixture
}

// repeated is what became of one thing within the interval.
type repeated[T, P any] struct {
	group  string
	passed int
	told   Summary[T, P] // counted and not yet told
}

// New returns a gate that sums up once an interval.
func New[T, P any](interval time.Duration) *Gate[T, P] {
	return &Gate[T, P]{
		interval: interval, burst: 3, texts: 64, groups: 256, most: 4096,
		seen: map[string]*repeated[T, P]{}, room: map[string]int{},
	}
}

// SetInterval changes how often it sums up.
func (g *Gate[T, P]) SetInterval(interval time.Duration) { g.interval = interval }

// slot finds what a thing is counted under.
func (g *Gate[T, P]) slot(wider, group, text string) *repeated[T, P] {
	key := group + "\x00" + text
	if r, ok := g.seen[key]; ok {
		return r
	}
	texts, known := g.room[group]
	switch {
	case !known && len(g.room) >= g.groups:
		return g.shared("\x01"+wider, Anything)
	case texts >= g.texts || len(g.seen) >= g.most:
		return g.shared("\x02"+group, Group)
	}
	g.room[group]++
	r := &repeated[T, P]{group: group}
	g.seen[key] = r
	return r
}

// shared is what things are counted under for which there is no room of their own.
func (g *Gate[T, P]) shared(key string, m Mixture) *repeated[T, P] {
	r, ok := g.seen[key]
	if !ok {
		r = &repeated[T, P]{passed: g.burst, told: Summary[T, P]{Mixture: m}}
		g.seen[key] = r
	}
	return r
}

// Thing is what comes to a gate. It is equal to others of the same group and text. Wider is what it is counted under
// when there are too many groups, Place what a summary keeps of the first, and Count how many it stands for itself.
type Thing[T, P any] struct {
	Wider, Group, Text string
	Value              T
	Place              P
	Count              uint64
}

// Admit tells whether a thing may pass now.
func (g *Gate[T, P]) Admit(t *Thing[T, P], at time.Time) bool {
	if g.started.IsZero() {
		g.started = at
	}
	r := g.slot(t.Wider, t.Group, t.Text)
	if r.passed < g.burst {
		r.passed++
		return true
	}
	if r.told.Count == 0 {
		r.told.First = t.Place
	}
	r.told.Count += t.Count
	r.told.Last = t.Value
	return false
}

// Due returns the summaries once the interval is over.
func (g *Gate[T, P]) Due(now time.Time) []Summary[T, P] {
	if g.started.IsZero() || now.Sub(g.started) < g.interval {
		return nil
	}
	g.started = now
	return g.Flush()
}

// Flush returns the summaries. Things that repeated stay known, so that a flood makes one summary an interval.
func (g *Gate[T, P]) Flush() []Summary[T, P] {
	var out []Summary[T, P]
	for key, r := range g.seen {
		if r.told.Count == 0 {
			delete(g.seen, key)
			if r.told.Mixture == Equal {
				g.leave(r.group)
			}
			continue
		}
		out = append(out, r.told)
		r.told, r.passed = Summary[T, P]{Mixture: r.told.Mixture}, g.burst
	}
	return out
}

func (g *Gate[T, P]) leave(group string) {
	if g.room[group]--; g.room[group] <= 0 {
		delete(g.room, group)
	}
}

// Waiting calls f with the first of each of those that are counted and not yet told.
func (g *Gate[T, P]) Waiting(f func(first P)) {
	for _, r := range g.seen {
		if r.told.Count > 0 {
			f(r.told.First)
		}
	}
}
