package kmsg

import (
	"time"

	"heeler.dev/agent-go/internal/flood"
	"heeler.dev/schemas/go/heelerv1"
)

// gate thins out floods of equal lines. Each code of each GPU has room of its own.
type gate struct {
	*flood.Gate[*event, position]
}

func newGate(interval time.Duration) *gate { return &gate{Gate: flood.New[*event, position](interval)} }

func groupKey(f *Fact) string {
	code := "-"
	if f.Code != nil {
		code = decimal(*f.Code)
	}
	return string(f.Kind) + "\x00" + f.PCI + "\x00" + code
}

// admit tells whether an event may pass now.
func (g *gate) admit(e *event) bool {
	text := e.fact.Text
	if e.fact.PID != nil {
		text = decimal(*e.fact.PID) + "\x00" + text
	}
	return g.Admit(&flood.Thing[*event, position]{
		Wider: string(e.fact.Kind), Group: groupKey(&e.fact), Text: text, Value: e, Place: e.before, Count: e.count,
	}, e.at)
}

// due returns the summaries once the interval is over.
func (g *gate) due(now time.Time) []*event { return summaries(g.Due(now)) }

// flush returns the summaries.
func (g *gate) flush() []*event { return summaries(g.Flush()) }

// summaries are the events that stand for the lines counted. The text of each is that of the last of them.
func summaries(all []flood.Summary[*event, position]) []*event {
	out := make([]*event, 0, len(all))
	for _, s := range all {
		e := *s.Last
		e.count, e.before = s.Count, s.First
		switch s.Mixture {
		case flood.Group:
			e.fact.PID, e.fact.Comm, e.fact.Detail = nil, "", map[string]any{"mixed": true}
		case flood.Anything:
			e.fact = Fact{Kind: heelerv1.KindFlood, Text: e.fact.Text}
			e.fact.set("of", string(s.Last.fact.Kind))
		}
		out = append(out, &e)
	}
	return out
}

// oldest is where the oldest line stands that is counted but not yet told.
func (g *gate) oldest() (position, bool) {
	var first position
	found := false
	g.Waiting(func(p position) {
		if !found || p.Ordinal < first.Ordinal {
			first, found = p, true
		}
	})
	return first, found
}
