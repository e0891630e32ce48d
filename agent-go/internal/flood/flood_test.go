package flood

import (
	"fmt"
	"testing"
	"time"
)

var start = time.Unix(1000, 0)

func thing(group, text string) *Thing[string, int] {
	return &Thing[string, int]{Wider: "w", Group: group, Text: text, Value: text, Count: 1}
}

func TestTheSumOfWhatPassedAndOfAllCountsIsTheNumberOfThings(t *testing.T) {
	g := New[string, int](10 * time.Second)
	const all = 100_000
	var passed, summed uint64
	for i := range all {
		at := start.Add(time.Duration(i) * time.Millisecond)
		for _, s := range g.Due(at) {
			summed += s.Count
		}
		if g.Admit(thing(fmt.Sprint(i%700), fmt.Sprint(i%977)), at) {
			passed++
		}
		if len(g.seen) > g.most+2*g.groups || len(g.room) > g.groups {
			t.Fatalf("%d things and %d groups are kept", len(g.seen), len(g.room))
		}
	}
	for _, s := range g.Flush() {
		summed += s.Count
	}
	if passed+summed != all {
		t.Errorf("%d things became %d and %d", all, passed, summed)
	}
}

func TestAfterAQuietIntervalNothingIsKept(t *testing.T) {
	g := New[string, int](time.Second)
	for i := range 1000 {
		g.Admit(thing("g", fmt.Sprint(i)), start)
	}
	if got := g.Due(start.Add(time.Second)); len(got) != 1 || got[0].Mixture != Group {
		t.Errorf("got %+v", got)
	}
	g.Due(start.Add(3 * time.Second))
	if len(g.seen) != 0 || len(g.room) != 0 {
		t.Errorf("%d things and %d groups are kept", len(g.seen), len(g.room))
	}
}

func TestAFloodMakesOneSummaryAnInterval(t *testing.T) {
	g := New[string, int](time.Second)
	summaries := 0
	for i := range 10_000 {
		at := start.Add(time.Duration(i) * time.Millisecond)
		summaries += len(g.Due(at))
		g.Admit(thing("g", "same"), at)
	}
	if summaries != 9 {
		t.Errorf("%d summaries in ten intervals", summaries)
	}
}

func TestCountsOfThingsAddUp(t *testing.T) {
	g := New[string, int](time.Second)
	for range 5 {
		one := thing("g", "same")
		one.Count = 7
		g.Admit(one, start)
	}
	if got := g.Flush(); len(got) != 1 || got[0].Count != 14 {
		t.Errorf("got %+v", got)
	}
}
