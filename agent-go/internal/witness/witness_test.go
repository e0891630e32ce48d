package witness

import (
	"math/rand/v2"
	"testing"
	"time"
)

var (
	start = time.Unix(1000, 0)
	lost  = Fault{PCI: "0000:3b:00", Code: 79}
	other = Fault{PCI: "0000:3b:00", Code: 48}
)

func after(d time.Duration) time.Time { return start.Add(d) }

func watching() *Book[int] {
	b := New[int]()
	b.SetLog(Live)
	b.Watch([]string{lost.PCI})
	return b
}

func TestAnEventThatCameFirstIsPartOfItsLine(t *testing.T) {
	b := watching()
	b.Event(lost, start, 1)
	l := b.Line(lost, after(time.Second), after(time.Second))
	if !l.Seen() {
		t.Error("the line does not know of NVML")
	}
	if got := b.Due(after(time.Minute)); len(got) != 0 {
		t.Errorf("told twice: %v", got)
	}
}

func TestAnEventRightAfterItsLineIsNamedByIt(t *testing.T) {
	b := watching()
	l := b.Line(lost, start, start)
	b.Event(lost, after(time.Millisecond), 1)
	if !l.Peek() || !l.Seen() {
		t.Error("the line does not know of NVML")
	}
	if together, late := b.Counts(); together != 1 || late != 0 {
		t.Errorf("%d together, %d late", together, late)
	}
}

func TestAnEventAfterItsLineWentOutIsOnlyCounted(t *testing.T) {
	b := watching()
	if b.Line(lost, start, start).Seen() {
		t.Error("seen by nobody")
	}
	b.Event(lost, after(time.Second), 1)
	if got := b.Due(after(time.Minute)); len(got) != 0 {
		t.Errorf("told twice: %v", got)
	}
	if _, late := b.Counts(); late != 1 {
		t.Errorf("%d late", late)
	}
}

func TestAnEventWithoutALineIsTold(t *testing.T) {
	b := watching()
	b.Line(other, start, start)
	b.Event(lost, start, 1)
	if got := b.Due(after(Hold - time.Millisecond)); len(got) != 0 {
		t.Errorf("told too early: %v", got)
	}
	if got := b.Due(after(Hold)); len(got) != 1 || got[0] != 1 {
		t.Errorf("got %v", got)
	}
}

func TestAnOldLineIsAnotherFault(t *testing.T) {
	b := watching()
	b.Line(lost, start, start).Seen()
	b.Event(lost, after(Window), 1)
	if got := b.Due(after(Window + Hold)); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	b.Line(other, start, after(time.Hour)) // of a backlog
	b.Event(other, after(time.Hour), 2)
	if got := b.Due(after(2 * time.Hour)); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestTheLogsStateSaysHowLongToWait(t *testing.T) {
	b := watching()
	b.SetLog(Opening)
	b.Event(lost, start, 1)
	if got := b.Due(after(Hold)); len(got) != 0 {
		t.Errorf("told while the log is being read: %v", got)
	}
	if got := b.Due(after(LongHold)); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	b.SetLog(Gone)
	b.Event(lost, start, 2)
	if got := b.Due(start); len(got) != 1 {
		t.Errorf("not told although no line can come: %v", got)
	}
}

// Whatever the order, of n lines and m events of one fault n are told, and of the events those beyond n.
func TestLinesAndEventsPairOneToOne(t *testing.T) {
	for round := range 500 {
		r := rand.New(rand.NewPCG(uint64(round), 1))
		lines, events := r.IntN(6), r.IntN(6)
		b := watching()
		both, at := 0, start
		var open []*Line
		for left, right := lines, events; left+right > 0; {
			at = at.Add(time.Duration(r.IntN(100)) * time.Millisecond)
			if r.IntN(left+right) < left {
				left--
				open = append(open, b.Line(lost, at, at))
			} else {
				right--
				b.Event(lost, at, right)
			}
		}
		for _, l := range open {
			if l.Seen() {
				both++
			}
		}
		alone := len(b.Due(at.Add(Hold)))
		if both != min(lines, events) || alone != max(0, events-lines) {
			t.Fatalf("round %d: %d lines and %d events became %d of both and %d alone", round, lines, events, both, alone)
		}
	}
}

func TestABookStaysSmall(t *testing.T) {
	b := watching()
	for i := range 1_000_000 {
		now := after(time.Duration(i) * time.Microsecond)
		b.Line(Fault{PCI: lost.PCI, Code: uint64(i % 1000)}, now, now)
	}
	if len(b.lines) > mostFaults {
		t.Errorf("%d faults are kept", len(b.lines))
	}
	for _, lines := range b.lines {
		if len(lines) > mostLines || cap(lines) > 4*mostLines {
			t.Errorf("%d lines of one fault are kept, room for %d", len(lines), cap(lines))
		}
	}
	for i := range 5000 {
		b.Event(Fault{Code: uint64(i)}, start, i)
	}
	if got := b.Due(start); len(got) < 5000-mostHeld || b.Waiting() > mostHeld {
		t.Errorf("%d told, %d wait", len(got), b.Waiting())
	}
}
