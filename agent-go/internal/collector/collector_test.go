package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

func TestAGuardIsNotEnteredWhileACallHangs(t *testing.T) {
	var g Guard
	hang, calls := make(chan struct{}), atomic.Int32{}
	call := func() int {
		if calls.Add(1) == 1 {
			<-hang
		}
		return 7
	}
	if _, err := Guarded(&g, 10*time.Millisecond, call); !errors.Is(err, ErrSlow) {
		t.Fatalf("got %v", err)
	}
	for range 100 {
		if _, err := Guarded(&g, 10*time.Millisecond, call); !errors.Is(err, ErrBusy) {
			t.Fatalf("got %v", err)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
	if silent, stuck := g.Stuck(); !stuck || silent <= 0 {
		t.Errorf("stuck %v for %s", stuck, silent)
	}
	close(hang)
	deadline := time.Now().Add(2 * time.Second)
	for {
		if _, stuck := g.Stuck(); !stuck || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if v, err := Guarded(&g, time.Second, call); v != 7 || err != nil {
		t.Errorf("after it returned: %d, %v", v, err)
	}
}

func TestAGuardSurvivesAPanic(t *testing.T) {
	var g Guard
	if _, err := Guarded(&g, time.Second, func() int { panic("boom") }); err == nil {
		t.Error("no error")
	}
	if v, err := Guarded(&g, time.Second, func() int { return 1 }); v != 1 || err != nil {
		t.Errorf("then %d, %v", v, err)
	}
}

func TestOneCallerAtATime(t *testing.T) {
	var g Guard
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, err := Guarded(&g, time.Second, func() int {
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				return 0
			})
			if err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d inside at a time", most.Load())
	}
}

// reads is a collector made of a function.
type reads func() error

func (f reads) Collect(context.Context, time.Time, Emit) error { return f() }

type opens func(ctx context.Context, beat func()) error

func (f opens) Run(ctx context.Context, beat func(), _ Emit) error { return f(ctx, beat) }

func run(t *testing.T, entries ...Entry) *Runner {
	t.Helper()
	r := NewRunner(entries, "n", func(heelerv1.Message) error { return nil }, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

func until(t *testing.T, r *Runner, name string, ok func(heelerv1.CollectorStatus) bool) heelerv1.CollectorStatus {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		s := r.Status()[name]
		if ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s stays %+v", name, s)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func inState(state heelerv1.CollectorState) func(heelerv1.CollectorStatus) bool {
	return func(s heelerv1.CollectorStatus) bool { return s.State == state }
}

const often = 10 * time.Millisecond

func TestStates(t *testing.T) {
	r := run(t,
		Entry{Name: "well", Every: often, Collector: reads(func() error { return nil })},
		Entry{Name: "absent", Every: often, Collector: reads(func() error { return fmt.Errorf("%w: none", ErrAbsent) })},
		Entry{Name: "failing", Every: often, Collector: reads(func() error { return errors.New("broken") })},
		Entry{Name: "partly", Every: often, Collector: reads(func() error { return errors.Join(errors.New("x"), ErrHung) })},
		Entry{Name: "panics", Every: often, Collector: reads(func() error { panic("boom") })},
		Entry{Name: "off", Every: often, Off: true, Collector: reads(func() error { panic("it was off") })},
	)
	s := until(t, r, "well", inState(heelerv1.CollectorOK))
	if *s.Readings == 0 || s.LastSuccessTS == nil || *s.Failures != 0 {
		t.Errorf("well: %+v", s)
	}
	if s := until(t, r, "absent", inState(heelerv1.CollectorAbsent)); *s.Failures != 0 || s.LastSuccessTS != nil {
		t.Errorf("absent: %+v", s)
	}
	if s := until(t, r, "failing", inState(heelerv1.CollectorFailing)); s.Why != "broken" || *s.Failures == 0 {
		t.Errorf("failing: %+v", s)
	}
	until(t, r, "partly", inState(heelerv1.CollectorHung))
	until(t, r, "panics", inState(heelerv1.CollectorFailing))
	if s := r.Status()["off"]; s.State != heelerv1.CollectorOff || s.Readings != nil {
		t.Errorf("off: %+v", s)
	}
}

func TestAHangingReadingSkipsTicksAndStopsNobody(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	var others atomic.Int32
	r := run(t,
		Entry{Name: "hangs", Every: often, Deadline: 50 * time.Millisecond, Collector: reads(func() error {
			<-hang
			return nil
		})},
		Entry{Name: "other", Every: often, Collector: reads(func() error {
			others.Add(1)
			return nil
		})},
	)
	s := until(t, r, "hangs", inState(heelerv1.CollectorHung))
	if *s.Skipped == 0 || *s.Readings != 0 {
		t.Errorf("got %+v", s)
	}
	if others.Load() == 0 {
		t.Error("the other one stands still")
	}
}

func TestASourceThatDiesIsSeenAndStartedAgain(t *testing.T) {
	var runs atomic.Int32
	r := run(t, Entry{Name: "s", Every: time.Second, Source: opens(func(ctx context.Context, beat func()) error {
		if runs.Add(1) == 1 {
			return errors.New("died")
		}
		beat()
		<-ctx.Done()
		return nil
	})})
	if s := until(t, r, "s", inState(heelerv1.CollectorFailing)); s.Why != "died" {
		t.Errorf("got %+v", s)
	}
	until(t, r, "s", inState(heelerv1.CollectorOK))
}

func TestASourceThatNoLongerBeatsIsHung(t *testing.T) {
	r := run(t, Entry{Name: "s", Every: time.Second, Deadline: 50 * time.Millisecond, Source: opens(
		func(ctx context.Context, beat func()) error {
			beat()
			<-ctx.Done()
			return nil
		})})
	until(t, r, "s", inState(heelerv1.CollectorHung))
}

func TestAlignedTicksAreMultiplesOfTheirPeriod(t *testing.T) {
	now := time.Unix(1000, 123456789)
	if got := nextTick(now, time.Second, 0); !got.Equal(time.Unix(1001, 0)) {
		t.Errorf("got %s", got)
	}
	if got := nextTick(time.Unix(1000, 0), time.Second, 0); !got.Equal(time.Unix(1001, 0)) {
		t.Errorf("at the tick itself: %s", got)
	}
	if got := nextTick(now, time.Second, 500*time.Millisecond); !got.Equal(time.Unix(1000, 500000000)) {
		t.Errorf("with a phase: %s", got)
	}
}

func TestWhatIsPausedStandsStillAndSaysWhy(t *testing.T) {
	var readings, openings atomic.Int32
	open := atomic.Bool{}
	r := run(t,
		Entry{Name: "reads", Every: often, HoldsGPUs: true, Collector: counting(&readings)},
		Entry{Name: "stays", Every: time.Second, HoldsGPUs: true, Source: opens(func(ctx context.Context, beat func()) error {
			openings.Add(1)
			open.Store(true)
			defer open.Store(false)
			beat()
			<-ctx.Done()
			return nil
		})},
		Entry{Name: "other", Every: often, Collector: counting(new(atomic.Int32))},
	)
	until(t, r, "reads", inState(heelerv1.CollectorOK))
	until(t, r, "stays", inState(heelerv1.CollectorOK))
	r.SetPauses(func(e *Entry) string {
		if e.HoldsGPUs {
			return "released"
		}
		return ""
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.Settle(ctx); err != nil || open.Load() {
		t.Fatalf("%v, open %v", err, open.Load())
	}
	before := readings.Load()
	time.Sleep(5 * often)
	if readings.Load() != before {
		t.Error("it reads on")
	}
	for _, name := range []string{"reads", "stays"} {
		if s := r.Status()[name]; s.State != heelerv1.CollectorOff || s.Why != "released" || *s.Failures != 0 || *s.Skipped != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := r.Status()["other"]; s.State != heelerv1.CollectorOK {
		t.Errorf("other: %+v", s)
	}
	r.SetPauses(func(*Entry) string { return "" })
	until(t, r, "reads", inState(heelerv1.CollectorOK))
	if s := until(t, r, "stays", inState(heelerv1.CollectorOK)); *s.Failures != 0 || openings.Load() != 2 {
		t.Errorf("opened %d times: %+v", openings.Load(), s)
	}
}

func counting(n *atomic.Int32) reads {
	return func() error {
		n.Add(1)
		return nil
	}
}

func TestAReadingThatHangsIsNamedWhenItIsToEnd(t *testing.T) {
	hang := make(chan struct{})
	r := run(t, Entry{Name: "hangs", Every: often, Deadline: often, Collector: reads(func() error {
		<-hang
		return nil
	})})
	defer close(hang)
	until(t, r, "hangs", inState(heelerv1.CollectorHung))
	r.SetPauses(func(*Entry) string { return "released" })
	ctx, cancel := context.WithTimeout(context.Background(), 3*often)
	defer cancel()
	if err := r.Settle(ctx); err == nil || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("got %v", err)
	}
}

func TestALoopThatNoLongerComesRoundIsSeenAHangingReadingIsNotOne(t *testing.T) {
	hang := make(chan struct{})
	r := run(t, Entry{Name: "hangs", Every: often, Deadline: often, Collector: reads(func() error {
		<-hang
		return nil
	})})
	defer close(hang)
	until(t, r, "hangs", inState(heelerv1.CollectorHung))
	if name, stuck := r.Stuck(time.Now()); stuck {
		t.Errorf("%s is called stuck", name)
	}
	if name, stuck := r.Stuck(time.Now().Add(time.Minute)); !stuck || name != "hangs" {
		t.Errorf("after a minute: %q, %v", name, stuck)
	}
}
