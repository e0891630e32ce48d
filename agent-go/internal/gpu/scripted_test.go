package gpu

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// script is a library whose GPUs do what the test says.
type script struct {
	mu    sync.Mutex
	init  error
	gpus  []*scripted
	inits int
}

func (s *script) Init() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inits++
	return s.init
}
func (s *script) Shutdown()               {}
func (s *script) Versions() nvml.Versions { return nvml.Versions{Driver: "1.2"} }
func (s *script) Count() (int, nvml.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.gpus), nvml.OK
}
func (s *script) Device(i int) (nvml.Device, nvml.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i >= len(s.gpus) {
		return nil, nvml.InvalidArgument
	}
	return s.gpus[i], nvml.OK
}

func (s *script) set(gpus []*scripted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gpus = gpus
}

// scripted is a GPU that supports only what the test gives it.
type scripted struct {
	lacking
	uuid    string
	power   func() (uint64, nvml.Status)
	util    uint64
	total   uint64
	used    uint64
	reasons func() (uint64, nvml.Status)
	procs   []nvml.Process
	temp    nvml.Status
	arch    string
	fields  func(f *nvml.Field)
	perf    nvml.Profiler
}

// each returns the values one after the other, and then the last for ever.
func each(values ...uint64) func() (uint64, nvml.Status) {
	i := -1
	return func() (uint64, nvml.Status) {
		i = min(i+1, len(values)-1)
		return nvml.Checked64(values[i], nvml.OK)
	}
}

// rig drives a collector tick by tick.
type rig struct {
	*Collector
	tick    time.Time
	samples []*heelerv1.GpuSample
	err     error
}

const second = time.Second

func newRig(t testing.TB, lib nvml.Library, change ...func(*Options)) *rig {
	t.Helper()
	o := Options{
		Library: lib, Window: 3 * second, HangAfter: 300 * time.Millisecond, Patience: 200 * time.Millisecond,
		Retry: 20 * time.Millisecond, Profile: true, PIDMax: 32768, Boot: "b", Log: slog.New(slog.DiscardHandler),
		JobOf: func(pid uint64) (string, bool) { return "job", pid == 77 },
	}
	for _, f := range change {
		f(&o)
	}
	return &rig{Collector: New(o), tick: time.Unix(3000, 0)}
}

// ticks reads n times, once a second.
func (r *rig) ticks(n int) {
	for range n {
		r.tick = r.tick.Add(second)
		r.err = r.Collect(context.Background(), r.tick, func(m heelerv1.Message) error {
			s := m.(*heelerv1.GpuSample)
			s.Header = heelerv1.Header{V: 1, Cluster: "c", Node: "n", TS: s.TS, Boot: "b", Seq: 1}
			r.samples = append(r.samples, s)
			_, err := heelerv1.Encode(s)
			return err
		})
	}
}

// window reads a whole window and returns its sample.
func (r *rig) window(t *testing.T) *heelerv1.GpuSample {
	t.Helper()
	before := len(r.samples)
	for len(r.samples) == before {
		r.ticks(1)
		if r.tick.After(time.Unix(100000, 0)) {
			t.Fatalf("no sample: %v", r.err)
		}
	}
	return r.samples[len(r.samples)-1]
}

func value(t *testing.T, columns map[string]heelerv1.Column, name string, gpu int) (float64, bool) {
	t.Helper()
	column, ok := columns[name]
	if !ok {
		return 0, false
	}
	return column[gpu].Float()
}

func TestWindowsEndAtMultiplesOfTheirLength(t *testing.T) {
	r := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a", total: 10, power: each(100000)}}})
	r.ticks(7)
	if len(r.samples) != 2 {
		t.Fatalf("%d samples", len(r.samples))
	}
	for i, end := range []int64{3003, 3006} {
		if s := r.samples[i]; s.TS != end*int64(second) || s.Reads != 3 || s.WindowNS != uint64(3*second) {
			t.Errorf("sample %d ends at %d after %d readings", i, s.TS, s.Reads)
		}
	}
}

func TestAWildSpikeIsRejectedAndNotAveraged(t *testing.T) {
	r := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a", total: 10, power: each(402000, 3690000000000, 399000)}}})
	s := r.window(t)
	if mean, ok := value(t, s.Mean, "power_w", 0); !ok || mean != 400.5 {
		t.Errorf("mean %v, %v", mean, ok)
	}
	if high, _ := value(t, s.Max, "power_w", 0); high != 402 {
		t.Errorf("max %v", high)
	}
	if n := r.Counts()["rejected"]; n != 1 {
		t.Errorf("%d rejected", n)
	}
}

func TestBlanksAreNotNumbers(t *testing.T) {
	r := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a", total: 10, power: each(9223372036854775792, 9223372036854775795, 400000)}}})
	s := r.window(t)
	if mean, ok := value(t, s.Mean, "power_w", 0); !ok || mean != 400 {
		t.Errorf("mean %v, %v", mean, ok)
	}
	for v, blank := range map[uint64]bool{
		2147483632: true, 2147483635: true, 2147483631: false, 4294967295: true,
	} {
		if _, s := nvml.Checked32(v, nvml.OK); (s == nvml.Blank) != blank {
			t.Errorf("%d: %s", v, s)
		}
	}
	for v, blank := range map[float64]bool{140737488355328: true, 140737488355331: true, 140737488355327: false} {
		if _, s := nvml.CheckedFloat(v, nvml.OK); (s == nvml.Blank) != blank {
			t.Errorf("%v: %s", v, s)
		}
	}
}

func TestMissingReadingsAreNotZero(t *testing.T) {
	i := 0
	power := func() (uint64, nvml.Status) {
		if i++; i%2 == 0 {
			return 0, nvml.Unknown
		}
		return 300000, nvml.OK
	}
	s := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a", total: 10, power: power}}}).window(t)
	if mean, ok := value(t, s.Mean, "power_w", 0); !ok || mean != 300 {
		t.Errorf("mean %v, %v", mean, ok)
	}
}

func TestReasonsAreCollectedOverTheWindow(t *testing.T) {
	r := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a", total: 10, reasons: each(0x40, 0x0, 0x4)}, {uuid: "GPU-b", total: 10}}})
	s := r.window(t)
	if bits, ok := s.Last["clock_event_reasons"][0].Uint(); !ok || bits != 0x44 {
		t.Errorf("reasons %#x, %v", bits, ok)
	}
	if s.Last["clock_event_reasons"][1].Known() {
		t.Error("reasons of a GPU that has none")
	}
	if next := r.window(t); next.Last["clock_event_reasons"][0] == s.Last["clock_event_reasons"][0] {
		t.Error("the next window keeps them")
	}
}

func TestWhatIsAbsentHasAReason(t *testing.T) {
	s := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a", total: 10, power: each(1000), util: 8200}}}).window(t)
	for column, why := range map[string]string{
		"fan_ratio": "no_permission", "sm_clock_mhz": "not_supported", "util_ratio": "implausible", "energy_j": "not_supported",
	} {
		if s.Absent[column] != why {
			t.Errorf("%s is absent since %q, want %q", column, s.Absent[column], why)
		}
		if _, ok := s.Mean[column]; ok {
			t.Errorf("%s is there", column)
		}
	}
	if _, ok := s.Absent["power_w"]; ok {
		t.Error("power is called absent")
	}
}

func TestSharedMemoryHasNoSize(t *testing.T) {
	s := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a"}}}).window(t)
	if _, ok := s.Mean["fb_used_bytes"]; ok || s.Absent["fb_total_bytes"] != "not_supported" {
		t.Errorf("memory %v, absent %v", s.Mean["fb_used_bytes"], s.Absent)
	}
}

func TestProcessesBringTheirJobs(t *testing.T) {
	size := uint64(5)
	s := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a"}, {uuid: "GPU-b", procs: []nvml.Process{
		{PID: 77, MemoryBytes: &size}, {PID: 78}, {PID: 0}, {PID: 4294967295},
	}}}}).window(t)
	if len(s.Procs) != 2 {
		t.Fatalf("processes %+v", s.Procs)
	}
	if p := s.Procs[0]; p.GPU != 1 || p.PID != 77 || *p.JobID != "job" || *p.MemoryBytes != 5 {
		t.Errorf("got %+v", p)
	}
	if p := s.Procs[1]; p.PID != 78 || p.JobID != nil || p.MemoryBytes != nil {
		t.Errorf("got %+v", p)
	}
}

func TestAWindowWhoseEndWasMissedIsPublishedLate(t *testing.T) {
	r := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a", power: each(100000)}}})
	r.ticks(2)
	r.tick = r.tick.Add(5 * second)
	r.ticks(1)
	if len(r.samples) != 1 || r.samples[0].TS != 3003*int64(second) || r.samples[0].Reads != 2 {
		t.Errorf("samples %+v", r.samples)
	}
}

func TestTheLibraryIsOpenedAgainWhenTheDriverIsBack(t *testing.T) {
	state := nvml.OK
	lib := &script{gpus: []*scripted{{uuid: "GPU-a", power: func() (uint64, nvml.Status) { return 1000, state }}}}
	r := newRig(t, lib)
	r.ticks(1)
	if r.err != nil {
		t.Fatal(r.err)
	}
	state = nvml.Uninitialized
	r.ticks(1)
	if r.err == nil || lib.inits != 1 {
		t.Fatalf("%v after %d openings", r.err, lib.inits)
	}
	state = nvml.OK
	r.ticks(1)
	if r.err != nil || lib.inits != 2 || r.Counts()["reopened"] != 1 {
		t.Errorf("%v after %d openings", r.err, lib.inits)
	}
	if got := r.state(r.gpus[0]); got != heelerv1.GpuOK {
		t.Errorf("state %s", got)
	}
}

func TestOpeningIsRetriedSlowly(t *testing.T) {
	lib := &script{init: &nvml.InitError{Status: nvml.LibRMVersionMismatch}}
	r := newRig(t, lib, func(o *Options) { o.Retry = time.Hour })
	r.ticks(5)
	if r.err == nil || errors.Is(r.err, collector.ErrAbsent) || !strings.Contains(r.err.Error(), "driver_mismatch") || lib.inits != 1 {
		t.Errorf("%v after %d openings", r.err, lib.inits)
	}
	if len(r.samples) != 0 {
		t.Error("a sample without a driver")
	}
	absent := newRig(t, &script{init: &nvml.InitError{Status: nvml.DriverNotLoaded}})
	absent.ticks(1)
	if !errors.Is(absent.err, collector.ErrAbsent) {
		t.Errorf("got %v", absent.err)
	}
}

func TestANodeWithoutGPUsIsAbsent(t *testing.T) {
	r := newRig(t, &script{})
	r.ticks(4)
	if !errors.Is(r.err, collector.ErrAbsent) || len(r.samples) != 0 {
		t.Errorf("%v, %d samples", r.err, len(r.samples))
	}
}

func TestALostGPUIsRememberedOverARestart(t *testing.T) {
	path := t.TempDir() + "/gpus.json"
	remember := func(boot string) func(*Options) {
		return func(o *Options) { o.MemoryPath, o.Boot = path, boot }
	}
	both := &script{gpus: []*scripted{{uuid: "GPU-a"}, {uuid: "GPU-b"}}}
	newRig(t, both, remember("b")).window(t)
	one := &script{gpus: []*scripted{{uuid: "GPU-b"}}}
	s := newRig(t, one, remember("b")).window(t)
	if len(s.GPU.UUID) != 2 || *s.State[0] != heelerv1.GpuLost || *s.State[1] != heelerv1.GpuOK || s.GPU.Index[0] != nil {
		t.Errorf("got %v, index %v", s.GPU.UUID, s.GPU.Index)
	}
	if s := newRig(t, one, remember("next")).window(t); len(s.GPU.UUID) != 1 {
		t.Errorf("after a reboot: %v", s.GPU.UUID)
	}
}

func TestRecheck(t *testing.T) {
	status := nvml.OK
	hang := make(chan struct{})
	var hanging bool
	d := &scripted{uuid: "GPU-a", power: func() (uint64, nvml.Status) {
		if hanging {
			<-hang
		}
		return 1000, status
	}}
	r := newRig(t, &script{gpus: []*scripted{d}})
	r.ticks(1)
	const address = "0000:3b:00"
	if got := r.Recheck(address, second); got != heelerv1.GpuOK {
		t.Errorf("well: %s", got)
	}
	status = nvml.Lost
	if got := r.Recheck(address, second); got != heelerv1.GpuLost {
		t.Errorf("lost: %s", got)
	}
	if got := r.state(r.gpus[0]); got != heelerv1.GpuLost {
		t.Errorf("state %s", got)
	}
	hanging = true
	start := time.Now()
	if got := r.Recheck(address, 100*time.Millisecond); got != heelerv1.GpuHung || time.Since(start) > second {
		t.Errorf("hangs: %s after %s", got, time.Since(start))
	}
	close(hang)
	if got := r.Recheck("0000:99:00", second); got != heelerv1.GpuUnknown {
		t.Errorf("elsewhere: %s", got)
	}
	if r.ByPCI(address) != "GPU-a" || r.ByPCI("") != "" {
		t.Error("UUID by address")
	}
}
