package kmsg

import (
	"fmt"
	"testing"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

func TestAFloodIsSummedUpAndNothingIsLost(t *testing.T) {
	g := newGate(10 * time.Second)
	start := time.Unix(1000, 0)
	const lines, texts = 80_000, 29
	var passed, summed, published uint64
	for i := range lines {
		at := start.Add(time.Duration(i) * 600 * time.Second / lines)
		for _, e := range g.due(at) {
			summed += e.count
			published++
		}
		f := Fact{Kind: heelerv1.KindXid, Code: u(95), PCI: at3b, Text: fmt.Sprint("text ", i%texts)}
		if g.admit(&event{fact: f, at: at, count: 1, ordinal: uint64(i), before: position{Ordinal: uint64(i)}}) {
			passed++
			published++
		}
	}
	for _, e := range g.flush() {
		summed += e.count
		published++
	}
	if passed+summed != lines {
		t.Errorf("%d lines became %d and %d", lines, passed, summed)
	}
	if limit := uint64(texts * (3 + 61)); published > limit {
		t.Errorf("%d events for a flood, more than %d", published, limit)
	}
	if passed != 3*texts {
		t.Errorf("%d passed at once", passed)
	}
}

func xidOf(code uint64, pci, text string) *event {
	f := Fact{Kind: heelerv1.KindXid, Code: &code, PCI: pci, Text: text}
	return &event{fact: f, at: time.Unix(1000, 0), count: 1}
}

func TestAFloodOfOneCodeDoesNotHideAnother(t *testing.T) {
	g := newGate(time.Second)
	passed := 0
	for i := range 1000 {
		if g.admit(xidOf(45, at3b, fmt.Sprint("Ch ", i))) {
			passed++
		}
	}
	if !g.admit(xidOf(79, at3b, "GPU has fallen off the bus.")) {
		t.Error("a flood of another code holds an XID 79 back")
	}
	got := g.due(time.Unix(1001, 0))
	if len(got) != 1 {
		t.Fatalf("%d passed, %d summaries", passed, len(got))
	}
	if f := got[0].fact; *f.Code != 45 || f.PCI != at3b || got[0].count != uint64(1000-passed) || f.Detail["mixed"] != true {
		t.Errorf("got %+v", got[0])
	}
}

func TestTooManyGroupsShareASummaryOfTheirKind(t *testing.T) {
	g := newGate(time.Second)
	passed := 0
	for i := range 2000 {
		if g.admit(xidOf(uint64(i), at3b, "x")) {
			passed++
		}
	}
	got := g.due(time.Unix(1001, 0))
	if len(got) != 1 || got[0].fact.Kind != heelerv1.KindFlood || got[0].fact.Detail["of"] != "xid" ||
		got[0].count != uint64(2000-passed) {
		t.Errorf("%d passed, summaries %+v", passed, got)
	}
}

func TestFewEqualLinesAreEventsOfTheirOwn(t *testing.T) {
	g := newGate(10 * time.Second)
	f := Fact{Kind: heelerv1.KindXid, Code: u(31), PCI: at3b, Text: "same"}
	for range 2 {
		if !g.admit(&event{fact: f, at: time.Unix(1000, 0), count: 1}) {
			t.Error("held back")
		}
	}
}
