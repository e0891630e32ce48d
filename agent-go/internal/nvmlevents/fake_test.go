//go:build cgo

package nvmlevents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/fakenvml"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/pci"
	"heeler.dev/agent-go/internal/witness"
	"heeler.dev/schemas/go/heelerv1"
)

// rig is a source on the fake library.
type rig struct {
	t        *testing.T
	source   *Source
	owner    nvml.Library
	book     *Book
	scenario *fakenvml.Scenario
	base     string

	mu   sync.Mutex
	got  []*heelerv1.KernelEvent
	fail error
}

func newRig(t *testing.T, scenario string, options ...string) *rig {
	t.Helper()
	r := &rig{t: t, book: witness.New[*heelerv1.KernelEvent](), base: scenario}
	path := fakenvml.Build(t, options...)
	r.scenario = fakenvml.Follow(t, scenario)
	t.Cleanup(func() { r.scenario.Set("gpus 8") })
	shared := nvml.Share(nvml.Open(path))
	r.owner = shared.Owner()
	r.source = New(Options{
		Library: shared.Guest(), Book: r.book, FloodInterval: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	return r
}

func (r *rig) emit(m heelerv1.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.got = append(r.got, m.(*heelerv1.KernelEvent))
	return nil
}

func (r *rig) events() []*heelerv1.KernelEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// run runs the source until the returned function is called, which returns how it ended.
func (r *rig) run() func() error {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.source.Run(ctx, func() {}, r.emit) }()
	r.until("the GPUs are heard", func() bool { return r.source.Counts()["gpus"] > 0 || len(done) > 0 })
	var once sync.Once
	var err error
	stop := func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	r.t.Cleanup(func() { _ = stop() })
	return stop
}

func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s; counts %v, %d events", what, r.source.Counts(), len(r.events()))
		}
	}
}

// inject adds events to the scenario.
var ids int

func (r *rig) inject(lines ...string) {
	r.t.Helper()
	for _, line := range lines {
		ids++ // the library tells an event once in a process
		r.base += fmt.Sprintf("\nevent %d %s", time.Now().UnixMilli()*1000+int64(ids%1000), line)
	}
	r.scenario.Set(r.base)
}

func (r *rig) heard(n uint64) {
	r.t.Helper()
	r.until(fmt.Sprint(n, " events are heard"), func() bool { return r.source.Counts()["heard"] >= n })
}

// address is where GPU i of the fake stands.
func (r *rig) address(i int) string {
	r.t.Helper()
	if err := r.owner.Init(); err != nil {
		r.t.Fatal(err)
	}
	defer r.owner.Shutdown()
	d, _ := r.owner.Device(i)
	text, _ := d.PCI()
	address, ok := pci.Normalise(text)
	if !ok {
		r.t.Fatalf("address %q", text)
	}
	return address
}

func TestAnXidThatNobodyLogsIsToldByNVMLAlone(t *testing.T) {
	r := newRig(t, "gpus 4\nall busy")
	at := r.address(2)
	r.book.SetLog(witness.Live)
	r.run()
	r.inject("2 xid 48")
	r.heard(1)
	if got := r.events(); len(got) != 0 {
		t.Fatalf("told without waiting for the line: %+v", got[0])
	}
	r.until("the event is told", func() bool { return len(r.events()) == 1 })
	m := r.events()[0]
	if m.Kind != heelerv1.KindXid || *m.Code != 48 || m.PCI != at || !strings.HasPrefix(m.UUID, "GPU-") ||
		!slices.Equal(m.Witness, []string{"nvml"}) || m.Seq < ofNVML || m.KmsgSeq != nil || m.Raw != "" || m.GI != nil {
		t.Errorf("got %+v", m)
	}
	m.Header = heelerv1.Header{V: 1, Cluster: "c", Node: "n", Boot: "b", TS: m.TS, Seq: m.Seq}
	if _, err := heelerv1.Encode(m); err != nil {
		t.Error(err)
	}
}

func TestOneFaultIsOneEventWhoeverComesFirst(t *testing.T) {
	r := newRig(t, "gpus 4\nall busy")
	at := r.address(1)
	r.book.SetLog(witness.Live)
	r.run()
	fault := witness.Fault{PCI: at, Code: 79}
	before := r.book.Line(fault, time.Now(), time.Now()) // the line comes first
	r.inject("1 xid 79")
	r.heard(1)
	r.inject("1 xid 79")
	r.heard(2)
	after := r.book.Line(fault, time.Now(), time.Now()) // and here second
	if !before.Seen() || !after.Seen() {
		t.Errorf("seen by both: %v and %v", before.Seen(), after.Seen())
	}
	time.Sleep(witness.Hold + 3*waitTime)
	if got := r.events(); len(got) != 0 {
		t.Errorf("told twice: %+v", got[0])
	}
	if n := r.source.Counts()["together"]; n != 2 {
		t.Errorf("%d together", n)
	}
}

func TestWithoutAKernelLogNothingWaits(t *testing.T) {
	r := newRig(t, "gpus 2\nall busy")
	r.book.SetLog(witness.Gone)
	r.run()
	r.inject("0 xid 31", "0 xid 31", "1 xid 45")
	r.until("three events", func() bool { return len(r.events()) == 3 })
	seqs := map[uint64]bool{}
	for _, m := range r.events() {
		seqs[m.Seq] = true
	}
	if len(seqs) != 3 {
		t.Error("two events have one number")
	}
}

func TestOtherEventsBearTheirNames(t *testing.T) {
	r := newRig(t, "gpus 2\nall busy\n1 mig 1g.10gb 7 0")
	r.run()
	for line, name := range map[string]string{
		"0 dbe 0": "double_bit_ecc", "0 sbe 0": "single_bit_ecc", "0 recovery_action 2": "recovery_action",
		"0 unavailable 0": "unavailable", "1 mig 1": "mig_config", "0 sbe_storm 0": "sbe_storm", "0 dram_retirement 0": "dram_retirement",
		"0 dram_retirement_failed 0": "dram_retirement_failed", "0 poison 0": "poison", "0 fatal_poison 0 7 1": "fatal_poison",
	} {
		n := len(r.events())
		r.inject(line)
		r.until(name, func() bool { return len(r.events()) == n+1 })
		m := r.events()[n]
		if m.Kind != heelerv1.KindGpuEvent || m.Detail["event"] != name || m.Code != nil {
			t.Errorf("%s: %+v", line, m)
		}
		if name == "recovery_action" && m.Detail["value"] != uint64(2) {
			t.Errorf("value %v", m.Detail["value"])
		}
		if name == "fatal_poison" && (m.GI == nil || *m.GI != 7 || m.CI == nil || *m.CI != 1) {
			t.Errorf("instances %v %v", m.GI, m.CI)
		}
	}
}

func TestALostGPUDoesNotSilenceTheOthers(t *testing.T) {
	r := newRig(t, "gpus 3\nall busy")
	r.book.SetLog(witness.Gone)
	r.run()
	r.base = "gpus 3\nall busy\n1 lost\nwait_error 15"
	r.scenario.Set(r.base)
	r.until("the set is built anew", func() bool { return r.source.Counts()["rebuilt"] >= 1 })
	r.base = "gpus 3\nall busy\n1 lost"
	r.scenario.Set(r.base)
	r.until("the others are heard", func() bool { return r.source.Counts()["gpus"] == 2 })
	r.inject("2 xid 74")
	r.until("an event of another GPU", func() bool { return len(r.events()) == 1 })
}

func TestADriverThatIsReloadedIsHeardAgain(t *testing.T) {
	r := newRig(t, "gpus 2\nall busy")
	r.book.SetLog(witness.Gone)
	if err := r.owner.Init(); err != nil {
		t.Fatal(err)
	}
	stop := r.run()
	r.owner.Shutdown() // the owner sees that the driver went away
	r.until("the source leaves", func() bool { return r.source.Counts()["gpus"] == 0 })
	if err := stop(); err == nil {
		t.Error("ended as if all were well")
	}
	if err := r.owner.Init(); err != nil {
		t.Fatal(err)
	}
	r.run()
	r.inject("1 xid 63")
	r.until("an event after the reload", func() bool { return len(r.events()) == 1 })
}

func TestAHangingDriverIsCalledHungAndNotEnteredAgain(t *testing.T) {
	r := newRig(t, "gpus 1\nall busy")
	guest := &hanging{Library: r.source.Library, release: make(chan struct{})}
	r.source.Library = guest
	err := r.source.Run(context.Background(), func() {}, r.emit)
	if !errors.Is(err, collector.ErrHung) {
		t.Errorf("got %v", err)
	}
	if err := r.source.Run(context.Background(), func() {}, r.emit); !errors.Is(err, collector.ErrHung) {
		t.Errorf("got %v", err)
	}
	if n := guest.calls.Load(); n != 1 {
		t.Errorf("entered %d times", n)
	}
	close(guest.release)
}

// hanging is a library whose events never come.
type hanging struct {
	Library
	calls   atomic.Int32
	release chan struct{}
}

type hangingSet struct {
	nvml.EventSet
	lib *hanging
}

func (h *hanging) EventSet() (nvml.EventSet, nvml.Status) {
	set, status := h.Library.EventSet()
	return &hangingSet{set, h}, status
}

func (s *hangingSet) Wait(time.Duration) (nvml.Event, nvml.Status) {
	s.lib.calls.Add(1)
	<-s.lib.release
	return nvml.Event{}, nvml.Timeout
}

func TestAFloodOfEventsIsCounted(t *testing.T) {
	r := newRig(t, "gpus 1\nall busy")
	r.book.SetLog(witness.Gone)
	stop := r.run()
	var lines []string
	for range 200 {
		lines = append(lines, "0 xid 31")
	}
	r.inject(lines...)
	r.heard(200)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var sum uint64
	for _, m := range r.events() {
		sum += *m.Count
	}
	if sum != 200 || len(r.events()) != 4 {
		t.Errorf("%d events for %d", len(r.events()), sum)
	}
}

func TestWhatCannotBeKeptIsToldLater(t *testing.T) {
	r := newRig(t, "gpus 1\nall busy")
	r.book.SetLog(witness.Gone)
	full := errors.New("disk full")
	r.fail = full
	stop := r.run()
	r.inject("0 xid 48")
	r.heard(1)
	if err := stop(); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	r.mu.Lock()
	r.fail = nil
	r.mu.Unlock()
	r.run()
	r.until("the event is told", func() bool { return len(r.events()) == 1 })
}

func TestADriverWithoutEventsIsAbsent(t *testing.T) {
	r := newRig(t, "gpus 1", "HIDE=nvmlEventSetCreate")
	if err := r.source.Run(context.Background(), func() {}, r.emit); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("got %v", err)
	}
	r = newRig(t, "gpus 1\nall unsupported events")
	if err := r.source.Run(context.Background(), func() {}, r.emit); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("got %v", err)
	}
}
