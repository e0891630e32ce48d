//go:build cgo

package gpu

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/fakenvml"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

func TestAReleaseLetsGoOfTheDriverAndTheNextReadingOpensItAgain(t *testing.T) {
	open := fakenvml.Holding(t)
	r, scenario := fakeRig(t, "gpus 2\nall busy")
	r.window(t)
	if !open() {
		t.Fatal("the driver was not even open")
	}
	if err := r.Release(second); err != nil || open() {
		t.Fatalf("%v, open %v", err, open())
	}
	address := r.all()[0].identity.PCI
	if state := r.Recheck(address, second); state != heelerv1.GpuUnknown {
		t.Errorf("a released GPU is %s", state)
	}
	if n := r.Counts()["lost"]; n != 0 {
		t.Errorf("%d released GPUs are called lost", n)
	}
	if err := r.Release(second); err != nil {
		t.Errorf("again: %v", err)
	}
	scenario.Set("gpus 2\nall busy\n1 serial 77") // the same GPUs after a reset
	before := len(r.samples)
	s := r.window(t)
	if !open() || states(s) != "ok ok" || len(r.samples) != before+1 || r.err != nil {
		t.Errorf("open %v, %s, %d samples more, %v", open(), states(s), len(r.samples)-before, r.err)
	}
}

func TestAHangingGPUIsNamedWhenItCannotBeReleased(t *testing.T) {
	open := fakenvml.Holding(t)
	r, scenario := fakeRig(t, "gpus 2\nall busy")
	r.window(t)
	scenario.Set("gpus 2\nall busy\n1 hang power")
	time.Sleep(noticed)
	r.window(t)
	uuid := r.all()[1].identity.UUID
	err := r.Release(second)
	if err == nil || !strings.Contains(err.Error(), uuid) || !strings.Contains(err.Error(), "power") || !open() {
		t.Fatalf("%v, open %v", err, open())
	}
	if s := r.window(t); *s.State[0] != heelerv1.GpuOK {
		t.Errorf("the other GPU is %s", *s.State[0])
	}
}

func TestAProfilingPauseGivesTheMonitorAwayAndSaysSo(t *testing.T) {
	r, _ := fakeRig(t, "gpus 2\nall busy")
	profiled := func() bool {
		t.Helper()
		r.window(t)
		time.Sleep(150 * time.Millisecond)
		_, ok := value(t, r.window(t).Mean, "sm_active_ratio", 1)
		return ok
	}
	if !profiled() {
		t.Fatal("nothing to pause")
	}
	if state, why := r.Profiling(); state != heelerv1.CollectorOK {
		t.Errorf("before: %s %s", state, why)
	}
	if err := r.PauseProfiling(second); err != nil {
		t.Fatal(err)
	}
	for _, g := range r.all() {
		if g.meter.perf.profiler != nil {
			t.Error("a monitor is still open")
		}
	}
	if profiled() {
		t.Error("it profiles while paused")
	}
	s := r.samples[len(r.samples)-1]
	if s.Absent["sm_active_ratio"] != "paused" || *s.State[1] != heelerv1.GpuOK {
		t.Errorf("absent for %q, state %s", s.Absent["sm_active_ratio"], *s.State[1])
	}
	if state, _ := r.Profiling(); state != heelerv1.CollectorOff {
		t.Errorf("paused: %s", state)
	}
	r.ResumeProfiling()
	if !profiled() {
		t.Error("it does not profile again")
	}
}

// refusing is a performance monitor that somebody else takes.
type refusing struct {
	scripted
	opened int
}

func (d *refusing) Profiler() (nvml.Profiler, nvml.Status) {
	d.opened++
	return d, nvml.OK
}
func (d *refusing) Sample() nvml.Status                 { return nvml.InUse }
func (d *refusing) Read([]nvml.MetricValue) nvml.Status { return nvml.OK }
func (d *refusing) Close()                              {}

func TestAMonitorThatSomebodyElseHasIsLeftAloneForAWhile(t *testing.T) {
	d := &refusing{}
	p := perfMonitor{allowed: new(atomic.Int32), open: d.Profiler}
	for range retryWindows {
		if s := p.sample(); s != nvml.InUse {
			t.Fatalf("got %s", s)
		}
	}
	if d.opened != 1 {
		t.Errorf("opened %d times", d.opened)
	}
	p.sample()
	p.sample()
	if d.opened != 2 {
		t.Errorf("then opened %d times", d.opened)
	}
}

func TestNewSettingsAreTakenOverWithTheNextReading(t *testing.T) {
	r, _ := fakeRig(t, "gpus 1\nall busy")
	r.window(t)
	r.Reconfigure(Settings{Window: 2 * second, HangAfter: second, Patience: second, Retry: second})
	s := r.window(t)
	if s.WindowNS != uint64(2*second) {
		t.Errorf("window %s", time.Duration(s.WindowNS))
	}
	if state, why := r.Profiling(); state != heelerv1.CollectorOff || why != "switched off" {
		t.Errorf("%s %s", state, why)
	}
}
