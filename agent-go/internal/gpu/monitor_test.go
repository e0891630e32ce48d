//go:build cgo

package gpu

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/nvml"
)

func TestTheMonitorAveragesOverExactlyTheWindow(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 1\nall busy\n0 sm_active_pct 20")
	s := r.window(t)
	if _, ok := value(t, s.Mean, "sm_active_ratio", 0); ok || s.Absent["sm_active_ratio"] != "not_read" {
		t.Errorf("an average without a beginning, absent %q", s.Absent["sm_active_ratio"])
	}
	time.Sleep(150 * time.Millisecond)
	scenario.Set("gpus 1\nall busy\n0 sm_active_pct 80") // for as long again, from the next reading on
	wait()
	r.ticks(1)
	time.Sleep(150 * time.Millisecond)
	s = r.window(t)
	if v, ok := value(t, s.Mean, "sm_active_ratio", 0); !ok || v < 0.4 || v > 0.6 {
		t.Errorf("the mean of 20 %% and 80 %% is %v, %v", v, ok)
	}
	r.tick = r.tick.Add(30 * second) // as after a long hang: whole windows have no end
	time.Sleep(150 * time.Millisecond)
	s = r.window(t)
	if v, ok := value(t, s.Mean, "sm_active_ratio", 0); ok {
		t.Errorf("%v is the average of a longer time", v)
	}
	time.Sleep(150 * time.Millisecond)
	if v, ok := value(t, r.window(t).Mean, "sm_active_ratio", 0); !ok || v < 0.79 || v > 0.81 {
		t.Errorf("then %v, %v", v, ok)
	}
}

func TestAMetricIsValidByItsOwnStatus(t *testing.T) {
	r, _ := fakeRig(t, "gpus 1\nall busy\n0 error tensor_active 3\n0 error dram_active 999")
	s := settle(t, r)
	if _, ok := value(t, s.Mean, "sm_active_ratio", 0); !ok {
		t.Error("the others are gone")
	}
	if s.Absent["tensor_active_ratio"] != "not_supported" || s.Absent["dram_active_ratio"] != "error_999" {
		t.Errorf("absent %v", s.Absent)
	}
}

func TestARefusalToProfileIsSaidOnceAndNothingStandsInForIt(t *testing.T) {
	r, _ := fakeRig(t, "gpus 2\nall busy\nall error gpm 4")
	var log bytes.Buffer
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	for range 5 {
		r.window(t)
	}
	s := r.window(t)
	if s.Absent["sm_active_ratio"] != "no_permission" || states(s) != "ok ok" || r.err != nil {
		t.Errorf("absent %v, %s, %v", s.Absent, states(s), r.err)
	}
	if _, ok := s.Mean["sm_active_ratio"]; ok {
		t.Error("there is a value")
	}
	if n := strings.Count(log.String(), "column=sm_active_ratio"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
}

// figures is a performance monitor that gives what the test says.
type figures struct{ value float64 }

func (figures) Sample() nvml.Status { return nvml.OK }
func (f figures) Read(metrics []nvml.MetricValue) nvml.Status {
	for i := range metrics {
		metrics[i].Value, metrics[i].Status = f.value, nvml.OK
	}
	return nvml.OK
}
func (figures) Close() {}

func TestAbsurdRatiosAreRejected(t *testing.T) {
	for percent, want := range map[float64]float64{
		100.7: 1, 100: 1, 0: 0, 8200: -1, -3: -1, math.NaN(): -1, math.Inf(1): -1,
	} {
		d := &scripted{uuid: "GPU-a", total: 10, perf: figures{percent}}
		r := newRig(t, &script{gpus: []*scripted{d}})
		r.window(t)
		s := r.window(t)
		if v, ok := value(t, s.Mean, "sm_active_ratio", 0); ok != (want >= 0) || ok && v != want {
			t.Errorf("%v %%: %v, %v", percent, v, ok)
		}
	}
}

func TestCountersThatBeginAgainGiveNoRate(t *testing.T) {
	d := &scripted{uuid: "GPU-a", total: 10}
	count, wide := uint64(0), true
	d.fields = func(f *nvml.Field) {
		if f.ID == nvml.FieldNVLinkTxKiB || f.ID == nvml.FieldPCIeTxBytes {
			f.Value, f.Status, f.Wide = count, nvml.OK, wide
		}
	}
	r := newRig(t, &script{gpus: []*scripted{d}})
	rate := func(now uint64) (float64, bool) {
		count = now
		time.Sleep(10 * time.Millisecond)
		return value(t, r.window(t).Mean, "nvlink_tx_bytes_per_s", 0)
	}
	if v, ok := rate(5000); ok {
		t.Errorf("the first: %v", v)
	}
	if v, ok := rate(6000); !ok || v <= 0 {
		t.Errorf("the second: %v, %v", v, ok)
	}
	if v, ok := rate(10); ok {
		t.Errorf("after a reset: %v", v)
	}
	if v, ok := rate(20); !ok || v <= 0 {
		t.Errorf("then: %v, %v", v, ok)
	}
	if v, ok := rate(1 << 60); ok {
		t.Errorf("more than any link carries: %v", v)
	}
	wide = false // a counter that turns over many times a second
	rate(1)
	if v, ok := rate(4000000000); ok {
		t.Errorf("of 32 bits: %v", v)
	}
}

// closing is a performance monitor that counts how often it was closed.
type closing struct {
	figures
	closed *int
}

func (c closing) Close() { *c.closed++ }

func TestTheMonitorOfAGPUThatMovesOrGoesAwayIsClosed(t *testing.T) {
	closed := 0
	a := &scripted{uuid: "GPU-a", total: 10, perf: closing{figures{50}, &closed}}
	b := &scripted{uuid: "GPU-b", total: 10}
	lib := &script{gpus: []*scripted{a, b}}
	r := newRig(t, lib)
	r.window(t)
	lib.set([]*scripted{b, a})
	r.window(t)
	r.window(t)
	if closed != 1 {
		t.Errorf("after it moved, closed %d times", closed)
	}
	s := r.window(t)
	if v, ok := value(t, s.Mean, "sm_active_ratio", 0); !ok || v != 0.5 {
		t.Errorf("its new place gives %v, %v", v, ok)
	}
	lib.set([]*scripted{b})
	r.window(t)
	if closed != 2 {
		t.Errorf("after it went away, closed %d times", closed)
	}
}
