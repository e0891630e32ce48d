package agent

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/agent-go/internal/spool"
	"heeler.dev/schemas/go/heelerv1"
)

// eventRecord is a kernel event as the spool keeps it.
func eventRecord(t *testing.T, s *stamper, kind heelerv1.EventKind, seq uint64, ts int64) []byte {
	t.Helper()
	m := &heelerv1.KernelEvent{Kind: kind, KmsgSeq: &seq}
	m.Seq, m.TS = seq, ts
	p, err := s.pack(m)
	if err != nil {
		t.Fatal(err)
	}
	return bus.EncodeEnvelope(p.subject, p.typeHeader, p.id, p.data)
}

func decodeEvent(t *testing.T, record []byte) *heelerv1.KernelEvent {
	t.Helper()
	e, err := bus.DecodeEnvelope(record)
	if err != nil {
		t.Fatal(err)
	}
	m, err := heelerv1.DecodeAs(e.Type, e.Data)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := heelerv1.MsgID(m.Type(), "c", "n1", "b", m.(*heelerv1.KernelEvent).Seq); err != nil || id != e.ID {
		t.Errorf("id %q, not %q, %v", e.ID, id, err)
	}
	return m.(*heelerv1.KernelEvent)
}

func TestALossIsToldWithWhatWasLostAndSumsUp(t *testing.T) {
	s := newStamper("c", "n1", "b")
	l := &losses{stamper: s}
	first, n := l.tell(0, [][]byte{
		eventRecord(t, s, heelerv1.KindXid, 7, 100), eventRecord(t, s, heelerv1.KindXid, 9, 300),
		eventRecord(t, s, heelerv1.KindOom, 8, 200),
	})
	m := decodeEvent(t, first)
	if n != 3 || m.Kind != heelerv1.KindGap || whole(m.Detail["lost"]) != 3 || m.Detail["of"] != "spool" ||
		whole(m.Detail["first"]) != 7 || whole(m.Detail["last"]) != 9 || whole(m.Detail["first_ts"]) != 100 ||
		whole(m.Detail["last_ts"]) != 300 || m.Detail["why"] != "no room" || m.KmsgSeq != nil {
		t.Errorf("%d lost: %+v", n, m)
	}
	old := newStamper("c", "n1", "the boot before")
	second, n := l.tell(2, [][]byte{first, eventRecord(t, old, heelerv1.KindXid, 5000, 50), []byte("rubbish")})
	sum := decodeEvent(t, second)
	kinds, _ := sum.Detail["kinds"].(map[string]any)
	if n != 2 || whole(sum.Detail["lost"]) != 7 || whole(kinds["xid"]) != 3 || whole(kinds["oom"]) != 1 ||
		whole(sum.Detail["last"]) != 9 || whole(sum.Detail["first_ts"]) != 50 {
		t.Errorf("%d lost: %+v", n, sum.Detail)
	}
	third, _ := l.tell(1, nil)
	if damage := decodeEvent(t, third); damage.Detail["why"] != "damage" || whole(damage.Detail["lost"]) != 1 {
		t.Errorf("%+v", damage.Detail)
	}
	if sum.Seq <= m.Seq || m.Seq < lossSeq {
		t.Errorf("numbers %d and %d", m.Seq, sum.Seq)
	}
}

func TestAFullSpoolTellsOfRealEvents(t *testing.T) {
	s := newStamper("c", "n1", "b")
	sp := spool.Open(t.TempDir(), spool.Options{MaxBytes: 1 << 14, Tell: (&losses{stamper: s}).tell})
	defer func() { _ = sp.Close() }()
	for seq := range uint64(1000) {
		if err := sp.Append(eventRecord(t, s, heelerv1.KindXid, seq+1, int64(seq+1))); err != nil {
			t.Fatal(err)
		}
	}
	got := sp.Next(2000)
	gap := decodeEvent(t, got[0].Data)
	lost := whole(gap.Detail["lost"])
	if int(lost)+len(got)-1 != 1000 || whole(gap.Detail["last"]) != lost || whole(gap.Detail["first"]) != 1 {
		t.Errorf("%d there, gap %+v", len(got)-1, gap.Detail)
	}
	if st := sp.Stats(); st.Dropped != lost {
		t.Errorf("%d counted, %d told", st.Dropped, lost)
	}
	if next := decodeEvent(t, got[1].Data); next.Seq != lost+1 {
		t.Errorf("then comes %d", next.Seq)
	}
}

// crowded is a sample with many processes on each of eight GPUs.
func crowded(each int) *heelerv1.GpuSample {
	m := &heelerv1.GpuSample{}
	for gpu := range 8 {
		m.GPU.UUID = append(m.GPU.UUID, fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", gpu))
		for i := range each {
			job := fmt.Sprint(81234 + i)
			m.Procs = append(m.Procs, heelerv1.Proc{
				GPU: gpu, PID: uint64(100000 + i), JobID: &job, MemoryBytes: heelerv1.Some(uint64(i) << 30),
			})
		}
	}
	return m
}

// deaf is an outlet to a bus that is not there.
func deaf(t *testing.T, maxBytes int) *outlet {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	nc, err := bus.Connect(bus.Config{Servers: []string{"nats://127.0.0.1:1"}, Name: "test"}, func() {}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	sp := spool.Open(t.TempDir(), spool.Options{})
	t.Cleanup(func() { _ = sp.Close() })
	pub, err := bus.NewPublisher(nc, bus.NewRing(10, maxBytes), sp, log)
	if err != nil {
		t.Fatal(err)
	}
	return &outlet{stamper: newStamper("c", "n1", "b"), pub: pub}
}

func sent(t *testing.T, o *outlet) *heelerv1.GpuSample {
	t.Helper()
	s, _, ok := o.pub.Ring.Next(time.Now().Add(time.Minute), true)
	if !ok {
		t.Fatal("nothing waits")
	}
	m, err := heelerv1.DecodeAs(s.Type, s.Data)
	if err != nil {
		t.Fatal(err)
	}
	return m.(*heelerv1.GpuSample)
}

func TestFiveHundredProcessesOnEachGPUAreOneValidMessage(t *testing.T) {
	o := deaf(t, 4<<20)
	if err := o.emit(crowded(500)); err != nil {
		t.Fatal(err)
	}
	if m := sent(t, o); len(m.Procs) != 4000 || m.Absent["procs"] != "" {
		t.Errorf("%d processes, %q", len(m.Procs), m.Absent["procs"])
	}
}

func TestASampleThatIsTooLargeNamesTheLargestProcessesAndSaysSo(t *testing.T) {
	for _, each := range []int{8000, 50000} { // more than a megabyte
		o := deaf(t, 4<<20)
		if err := o.emit(crowded(each)); err != nil {
			t.Fatal(err)
		}
		m := sent(t, o)
		s, _, _ := o.pub.Ring.Next(time.Now().Add(time.Minute), true)
		if len(s.Data) > o.pub.Room() || len(s.Data) < o.pub.Room()-1000 || m.Absent["procs"] == "" {
			t.Errorf("%d bytes, room for %d: %q", len(s.Data), o.pub.Room(), m.Absent["procs"])
		}
		if n := len(m.Procs); n == 0 || *m.Procs[0].MemoryBytes != uint64(each-1)<<30 {
			t.Errorf("%d processes", n)
		}
		if len(m.GPU.UUID) != 8 {
			t.Error("the GPUs are not whole")
		}
	}
}

func TestASampleIsDueSoonWhateverTheClockSays(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		end  time.Time
		want time.Duration
	}{
		"as it should":                 {now.Add(-10 * time.Millisecond), 990 * time.Millisecond},
		"read late":                    {now.Add(-5 * time.Second), 0},
		"the clock was set back":       {now.Add(time.Hour), time.Second},
		"the clock was set forward":    {now.Add(-time.Hour), 0},
		"the clock was wrong by a lot": {time.Unix(0, 1), 0},
	} {
		if got := dueAt(c.end.UnixNano(), time.Second, now).Sub(now); got != c.want {
			t.Errorf("%s: due in %s, want %s", name, got, c.want)
		}
	}
}
