package kmsg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

type sink struct {
	mu   sync.Mutex
	got  []*heelerv1.KernelEvent
	fail error
}

func (s *sink) emit(m heelerv1.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.got = append(s.got, m.(*heelerv1.KernelEvent))
	return nil
}

func (s *sink) events() []*heelerv1.KernelEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*heelerv1.KernelEvent(nil), s.got...)
}

func (s *sink) wait(t *testing.T, n int) []*heelerv1.KernelEvent {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) {
		if got := s.events(); len(got) >= n {
			return got
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%d events, want %d", len(s.events()), n)
	return nil
}

type gpus struct{ state heelerv1.GpuState }

func (g gpus) ByPCI(address string) string                     { return "GPU-of-" + address }
func (g gpus) Recheck(string, time.Duration) heelerv1.GpuState { return g.state }

func options(dir string) Options {
	return Options{
		Path: filepath.Join(dir, "kmsg"), StatePath: filepath.Join(dir, "state"), Boot: "b", FloodInterval: time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}
}

// follow runs a source until the returned function is called.
func follow(t *testing.T, o Options, s *sink) (*Source, func()) {
	t.Helper()
	source := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, func() {}, s.emit) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("source ended with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return source, stop
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// xidLineOf is a record with an XID that carries n.
func xidLineOf(seq, n int) string {
	return fmt.Sprintf("4,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): 45, pid=%d, name=a, Ch 0000\n", seq, seq*1000, n)
}

func pids(got []*heelerv1.KernelEvent) []uint64 {
	var all []uint64
	for _, m := range got {
		if m.PID != nil {
			all = append(all, *m.PID)
		}
	}
	return all
}

func expectPIDs(t *testing.T, got []*heelerv1.KernelEvent, n int) {
	t.Helper()
	all := pids(got)
	if len(all) != n {
		t.Fatalf("events %v, want 1 to %d", all, n)
	}
	for i, pid := range all {
		if pid != uint64(i+1) {
			t.Fatalf("events %v, want 1 to %d", all, n)
		}
	}
}

func TestARestartNeitherRepeatsNorMisses(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, xidLineOf(1, 1)+xidLineOf(2, 2))
	s := &sink{}
	_, stop := follow(t, o, s)
	s.wait(t, 2)
	stop()
	write(t, o.Path, xidLineOf(3, 3))
	_, stop = follow(t, o, s)
	write(t, o.Path, xidLineOf(4, 4))
	expectPIDs(t, s.wait(t, 4), 4)
	stop()
	seqs := map[uint64]bool{}
	for _, m := range s.events() {
		if seqs[m.Seq] {
			t.Errorf("seq %d twice", m.Seq)
		}
		seqs[m.Seq] = true
	}
}

func TestAnotherBootStartsAnew(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, xidLineOf(1, 1))
	s := &sink{}
	_, stop := follow(t, o, s)
	s.wait(t, 1)
	stop()
	o.Boot = "other"
	_, stop = follow(t, o, s)
	s.wait(t, 2)
	stop()
}

func TestRotationByRenaming(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, xidLineOf(1, 1))
	s := &sink{}
	follow(t, o, s)
	s.wait(t, 1)
	if err := os.Rename(o.Path, o.Path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, o.Path+".1", xidLineOf(2, 2)) // the writer still has the old file open
	write(t, o.Path, xidLineOf(3, 3))
	expectPIDs(t, s.wait(t, 3), 3)
}

func TestRotationWhileNobodyReads(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, xidLineOf(1, 1))
	s := &sink{}
	_, stop := follow(t, o, s)
	s.wait(t, 1)
	stop()
	write(t, o.Path, xidLineOf(2, 2))
	if err := os.Rename(o.Path, o.Path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, o.Path, xidLineOf(3, 3))
	follow(t, o, s)
	expectPIDs(t, s.wait(t, 3), 3)
}

func TestTruncationStartsAtZero(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, xidLineOf(1, 1)+xidLineOf(2, 2))
	s := &sink{}
	follow(t, o, s)
	s.wait(t, 2)
	if err := os.Truncate(o.Path, 0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * filePoll)
	write(t, o.Path, xidLineOf(3, 3))
	expectPIDs(t, s.wait(t, 3), 3)
}

func TestAPartialLineWaits(t *testing.T) {
	o := options(t.TempDir())
	line := xidLineOf(1, 1)
	write(t, o.Path, line[:20])
	s := &sink{}
	source, _ := follow(t, o, s)
	time.Sleep(5 * filePoll)
	write(t, o.Path, line[20:])
	expectPIDs(t, s.wait(t, 1), 1)
	if n := source.Counts()["unreadable"]; n != 0 {
		t.Errorf("%d unreadable", n)
	}
}

func TestForeignRecordsAreCountedNotPublished(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, "12,1,1,-;"+xid79+"\n"+xidLineOf(2, 1))
	s := &sink{}
	source, _ := follow(t, o, s)
	expectPIDs(t, s.wait(t, 1), 1)
	if n := source.Counts()["untrusted"]; n != 1 {
		t.Errorf("%d untrusted", n)
	}
}

func TestForeignRecordsAreMarkedWhereTheyAreTaken(t *testing.T) {
	o := options(t.TempDir())
	o.AnyFacility = true
	write(t, o.Path, "12,1,1,-;"+xid79+"\n4,2,2,-;"+xid79+"\n")
	s := &sink{}
	follow(t, o, s)
	got := s.wait(t, 2)
	if *got[0].Trusted || !*got[1].Trusted {
		t.Errorf("trusted %v and %v", *got[0].Trusted, *got[1].Trusted)
	}
}

func TestXid79AsksTheGPUAtOnce(t *testing.T) {
	o := options(t.TempDir())
	o.GPUs = gpus{heelerv1.GpuLost}
	write(t, o.Path, "4,1,1,-;"+xid79+"\n")
	s := &sink{}
	follow(t, o, s)
	old := s.wait(t, 1)[0]
	if old.GpuState != "" || !*old.ApproximateTS || old.UUID != "GPU-of-"+at3b {
		t.Errorf("of the backlog: %+v", old)
	}
	time.Sleep(5 * filePoll)
	write(t, o.Path, "4,2,1,-;"+xid79+"\n")
	live := s.wait(t, 2)[1]
	if live.GpuState != heelerv1.GpuLost || *live.ApproximateTS || len(live.Witness) != 2 {
		t.Errorf("live: %+v", live)
	}
}

func TestTimesAreNeverInTheFuture(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, "4,1,99999999999999,-;"+xid79+"\n4,2,1000,-;"+xid79+"\n")
	s := &sink{}
	follow(t, o, s)
	now := time.Now().Add(time.Second).UnixNano()
	for _, m := range s.wait(t, 2) {
		if m.TS > now {
			t.Errorf("time %d is in the future", m.TS)
		}
	}
}

func TestWhatCannotBeKeptIsReadAgain(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, xidLineOf(1, 1))
	full := errors.New("disk full")
	s := &sink{fail: full}
	if err := New(o).Run(context.Background(), func() {}, s.emit); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	s.fail = nil
	follow(t, o, s)
	expectPIDs(t, s.wait(t, 1), 1)
}

func TestACountedLineIsReadAgainAfterACrash(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	for i := 1; i <= 6; i++ {
		write(t, o.Path, fmt.Sprintf("4,%d,%d,-;%s\n", i, i, xid79))
	}
	s := &sink{}
	source, _ := follow(t, o, s)
	s.wait(t, 3) // the burst
	time.Sleep(saveTime + 3*idleTime)
	if n := source.Counts()["summed"]; n != 3 {
		t.Fatalf("%d summed", n)
	}
	// As if the process ended here: another reads from what is kept.
	after := &sink{}
	_, stop := follow(t, o, after)
	after.wait(t, 3)
	stop()
	for i, m := range after.events() {
		if m.Seq != uint64(i+4) {
			t.Errorf("event %d has seq %d", i, m.Seq)
		}
	}
}

// ring plays /dev/kmsg.
type ring struct {
	steps []any // a record, or an error
	last  position
}

func (r *ring) next(time.Duration) (item, error) {
	if len(r.steps) == 0 {
		return item{}, errIdle
	}
	step := r.steps[0]
	r.steps = r.steps[1:]
	if err, ok := step.(error); ok {
		return item{}, err
	}
	it := item{data: step.(string), before: r.last}
	rec, err := ParseRecord(it.data)
	if err == nil {
		r.last = position{Ordinal: rec.Seq}
	}
	it.after = r.last
	return it, nil
}

func (r *ring) caughtUp() bool { return false }
func (r *ring) close()         {}

func runRing(t *testing.T, from position, steps ...any) []*heelerv1.KernelEvent {
	t.Helper()
	s := &sink{}
	r := &run{
		Source: New(Options{FloodInterval: time.Minute}), reader: &ring{steps: steps}, parser: NewParser(),
		gate: newGate(time.Minute), checks: map[string]*reading{}, emit: s.emit, state: saved{UUIDs: map[string]string{}, Position: from}, seen: from,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.loop(ctx, func() {}); err != nil {
		t.Fatal(err)
	}
	return s.events()
}

func TestAnOverrunBecomesAGap(t *testing.T) {
	got := runRing(t, position{}, "6,1001,1,-;x", errOverrun, "4,1450,2,-;"+xid79)
	if len(got) != 2 || got[0].Kind != heelerv1.KindGap || got[0].Detail["lost"] != uint64(448) ||
		got[0].Detail["first"] != uint64(1002) || got[0].Detail["last"] != uint64(1449) {
		t.Errorf("got %+v", got)
	}
	if *got[1].Code != 79 {
		t.Error("reading did not go on")
	}
}

func TestWhatWasOverwrittenWhileNoAgentRanIsAGapToo(t *testing.T) {
	got := runRing(t, position{Ordinal: 10}, "4,20,1,-;"+xid79)
	if len(got) != 2 || got[0].Kind != heelerv1.KindGap || got[0].Detail["lost"] != uint64(9) {
		t.Errorf("got %+v", got)
	}
}

func TestTheRingIsNotReadTwice(t *testing.T) {
	got := runRing(t, position{Ordinal: 11}, "4,10,1,-;"+xid79, "4,11,1,-;"+xid79, "4,12,1,-;"+xid79)
	if len(got) != 1 || got[0].Seq != 12 {
		t.Errorf("got %+v", got)
	}
}
