//go:build cgo

package gpu

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/schemas/go/heelerv1"
)

// impatient makes opening give up soon.
func impatient(o *Options) { o.OpenPatience = 50 * time.Millisecond }

func TestEveryCallMayHangAndNoneHangsMore(t *testing.T) {
	for _, call := range []string{
		"uuid", "clocks", "pcie_errors", "nvlink_state", "mig_mode", "gpm", "processes", "all",
	} {
		t.Run(call, func(t *testing.T) {
			r, scenario := fakeRig(t, "gpus 3\nall busy")
			r.window(t)
			scenario.Set("gpus 3\nall busy\n1 hang " + call)
			wait()
			before := runtime.NumGoroutine()
			r.window(t)
			time.Sleep(2 * r.HangAfter)
			start := time.Now()
			s := r.window(t)
			if states(s) != "ok hung ok" || !errors.Is(r.err, collector.ErrHung) {
				t.Errorf("%s, %v", states(s), r.err)
			}
			if took := time.Since(start); took > r.Patience {
				t.Errorf("a window takes %s", took)
			}
			if _, ok := value(t, s.Mean, "power_w", 1); ok {
				t.Error("the one that hangs has power")
			}
			if _, ok := value(t, s.Mean, "power_w", 2); !ok {
				t.Error("the others have none")
			}
			stays(t, before+1)
			if got := r.Recheck(*s.GPU.PCI[1], second); got != heelerv1.GpuHung {
				t.Errorf("recheck says %s", got)
			}
			scenario.Set("gpus 3\nall busy")
			time.Sleep(10 * noticed)
			r.window(t)
			if s := r.window(t); states(s) != "ok ok ok" || r.err != nil {
				t.Errorf("afterwards %s, %v", states(s), r.err)
			}
		})
	}
}

func TestALibraryThatHangsWhenItIsOpenedIsOpenedOnce(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 2\nhang init", impatient)
	before := runtime.NumGoroutine()
	start := time.Now()
	for range 20 {
		r.ticks(1)
		time.Sleep(r.Retry / 4)
	}
	if !errors.Is(r.err, collector.ErrHung) || len(r.samples) != 0 || time.Since(start) > 5*time.Second {
		t.Errorf("%v, %d samples after %s", r.err, len(r.samples), time.Since(start))
	}
	stays(t, before+1)
	scenario.Set("gpus 2\nall busy")
	time.Sleep(10*noticed + r.Retry)
	if s := r.window(t); states(s) != "ok ok" {
		t.Errorf("afterwards %s, %v", states(s), r.err)
	}
}

func TestGPUsAreReadOnWhileTheLibraryHangsCountingThem(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 2\nall busy")
	r.window(t)
	scenario.Set("gpus 2\nall busy\nhang count")
	wait()
	before := runtime.NumGoroutine()
	r.window(t)
	s := r.window(t)
	if _, ok := value(t, s.Mean, "power_w", 1); !ok || states(s) != "ok ok" {
		t.Errorf("%s", states(s))
	}
	if !errors.Is(r.err, collector.ErrHung) || !strings.Contains(r.err.Error(), "listing the GPUs") {
		t.Errorf("error %v", r.err)
	}
	stays(t, before+1)
	scenario.Set("gpus 2\nall busy")
	time.Sleep(10 * noticed)
	r.window(t)
	if r.window(t); r.err != nil {
		t.Errorf("afterwards %v", r.err)
	}
}

func TestAGPUThatDoesNotSayItsNameHidesNoOther(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 3\nall busy\n1 hang uuid", impatient)
	before := runtime.NumGoroutine()
	s := r.window(t)
	if states(s) != "ok ok" || *s.GPU.Index[1] != 2 {
		t.Fatalf("%s, %v", states(s), r.err)
	}
	time.Sleep(2 * r.HangAfter)
	r.window(t)
	if !errors.Is(r.err, collector.ErrHung) || !strings.Contains(r.err.Error(), "index 1") || r.Counts()["hung"] != 1 {
		t.Errorf("error %v, counts %v", r.err, r.Counts())
	}
	stays(t, before+1)
	scenario.Set("gpus 3\nall busy")
	time.Sleep(10 * noticed)
	r.window(t)
	if s = r.window(t); len(s.GPU.UUID) != 3 || states(s) != "ok ok ok" || r.err != nil {
		t.Errorf("afterwards %s, %v", states(s), r.err)
	}
}

func TestAGPUKnownFromBeforeARestartIsHungNotLostWhenItDoesNotSayItsName(t *testing.T) {
	path := t.TempDir() + "/gpus.json"
	remember := func(o *Options) { o.MemoryPath, o.OpenPatience = path, 50*time.Millisecond }
	r, scenario := fakeRig(t, "gpus 3\nall busy", remember)
	r.window(t)
	if err := r.Release(second); err != nil {
		t.Fatal(err)
	}
	scenario.Set("gpus 3\nall busy\n1 hang uuid")
	again := newRig(t, r.Library, remember)
	if s := again.window(t); states(s) != "ok unknown ok" {
		t.Errorf("soon: %s", states(s))
	}
	time.Sleep(2 * again.HangAfter)
	if s := again.window(t); states(s) != "ok hung ok" {
		t.Errorf("later: %s", states(s))
	}
}

func TestAHangOfHoursCostsNothingMore(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 2\nall busy")
	r.window(t)
	scenario.Set("gpus 2\nall busy\n1 hang temp\nhang count")
	wait()
	r.ticks(10)
	r.samples = nil
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	for range 20 {
		r.ticks(360)
		r.samples = nil
	}
	stays(t, goroutines)
	if now := heapInUse(); now > heap+heap/5 {
		t.Errorf("the heap grew from %d to %d", heap, now)
	}
}

func TestTheErrorsOfOneGPUAreItsOwn(t *testing.T) {
	for code, want := range map[string]struct {
		state, why string
	}{
		"999": {"unknown", "error_999"}, "16": {"unknown", "reset_required"}, "11": {"unknown", "interrupt_issue"},
		"10": {"unknown", "timeout"}, "14": {"unknown", "corrupted_inforom"}, "28": {"unknown", "gpu_not_found"},
		"17": {"unknown", "blocked_by_os"}, "15": {"lost", "lost"}, "4": {"ok", "no_permission"}, "3": {"ok", "not_supported"},
	} {
		t.Run(want.why, func(t *testing.T) {
			r, scenario := fakeRig(t, "gpus 3\nall busy")
			before := r.window(t)
			scenario.Set("gpus 3\nall busy\n1 error all " + code + "\n1 ok handle uuid")
			wait()
			r.window(t)
			s := r.window(t)
			if states(s) != "ok "+want.state+" ok" || s.GPU.UUID[1] != before.GPU.UUID[1] {
				t.Errorf("%s", states(s))
			}
			if v, ok := value(t, s.Mean, "temp_c", 1); ok {
				t.Errorf("it has %v degrees", v)
			}
			if want.state != "lost" && s.Absent["temp_c"] != want.why {
				t.Errorf("absent because %q", s.Absent["temp_c"])
			}
			if (r.err != nil) != (want.state != "ok") || r.err != nil && !strings.Contains(r.err.Error(), want.why) {
				t.Errorf("error %v", r.err)
			}
			scenario.Set("gpus 3\nall busy")
			wait()
			r.window(t)
			if s = r.window(t); states(s) != "ok ok ok" || r.err != nil {
				t.Errorf("afterwards %s, %v", states(s), r.err)
			}
		})
	}
}

func TestAGPUWhoseHandleIsRefusedIsUnknownNotLost(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 2\nall busy")
	r.window(t)
	if err := r.Release(second); err != nil {
		t.Fatal(err)
	}
	scenario.Set("gpus 2\nall busy\n1 error handle 4")
	wait()
	s := r.window(t)
	if states(s) != "ok unknown" || r.err == nil || !strings.Contains(r.err.Error(), "no_permission") {
		t.Errorf("%s, %v", states(s), r.err)
	}
}

func TestTheDriverIsReloaded(t *testing.T) {
	for _, code := range []string{"1", "9", "18", "999", "15"} {
		t.Run(code, func(t *testing.T) {
			r, scenario := fakeRig(t, "gpus 2\nall busy\n1 sm_clock_mhz 1155\nall nvlink_tx_total_kib 999999999999")
			before := settle(t, r)
			scenario.Set("gpus 2\nall error all " + code)
			wait()
			s := r.window(t)
			for range 3 {
				s = r.window(t)
			}
			if _, ok := s.Mean["power_w"]; ok {
				t.Error("power without a driver")
			}
			// It comes back with the GPUs in another order, and counters that begin again.
			scenario.Set("gpus 2\norder 1 0\nall busy\n1 sm_clock_mhz 1155\nall nvlink_tx_total_kib 5")
			time.Sleep(noticed + 2*r.Retry)
			for range 3 {
				s = r.window(t)
				if rate, ok := value(t, s.Mean, "nvlink_tx_bytes_per_s", 0); ok && (rate < 0 || rate > 1<<40) {
					t.Errorf("rate %v", rate)
				}
			}
			if states(s) != "ok ok" || r.err != nil || r.Counts()["reopened"] == 0 {
				t.Errorf("%s, %v, %v", states(s), r.err, r.Counts())
			}
			if s.GPU.UUID[1] != before.GPU.UUID[1] || *s.GPU.Index[1] != 0 {
				t.Errorf("identity %+v", s.GPU)
			}
			if clock, _ := value(t, s.Mean, "sm_clock_mhz", 1); clock != 1155 {
				t.Errorf("clock %v", clock)
			}
		})
	}
}

func TestAnotherGPUAtTheSamePlace(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 2\nall busy\n1 sm_clock_mhz 1155")
	before := settle(t, r)
	r.ticks(1)
	scenario.Set("gpus 2\nall busy\n1 uuid GPU-swapped\n1 sm_clock_mhz 700")
	wait()
	s := r.window(t)
	if clock, ok := value(t, s.Mean, "sm_clock_mhz", 1); ok && clock != 1155 {
		t.Errorf("the old GPU is given the clock of the new one: %v", clock)
	}
	s = r.window(t)
	if len(s.GPU.UUID) != 3 || states(s) != "ok lost ok" || s.GPU.UUID[1] != before.GPU.UUID[1] || s.GPU.UUID[2] != "GPU-swapped" {
		t.Fatalf("%v, %s", s.GPU.UUID, states(s))
	}
	if clock, _ := value(t, s.Mean, "sm_clock_mhz", 2); clock != 700 {
		t.Errorf("the new one's clock is %v", clock)
	}
}

func TestCountersArePublishedAsTheyAre(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 1\nall busy\n0 ecc_uncorrected_volatile 5\n0 ecc_uncorrected_aggregate 12")
	settle(t, r)
	scenario.Set("gpus 1\nall busy\n0 ecc_uncorrected_volatile 0\n0 ecc_uncorrected_aggregate 12")
	wait()
	s := settle(t, r)
	volatile, _ := value(t, s.Last, "ecc_uncorrected_volatile", 0)
	aggregate, _ := value(t, s.Last, "ecc_uncorrected_aggregate", 0)
	if volatile != 0 || aggregate != 12 {
		t.Errorf("%v, %v", volatile, aggregate)
	}
}
