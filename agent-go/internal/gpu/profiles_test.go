package gpu

import (
	"reflect"
	"sync/atomic"
	"testing"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// told gives the same values whenever it is asked, by GPU or by GPU and instance.
type told map[string]map[string]float64

func (p told) Window(uuid string, gi *int64) map[string]float64 {
	if gi != nil {
		uuid += "/" + string(rune('0'+*gi))
	}
	return p[uuid]
}

func TestAnotherSourceFillsOnlyWhatTheMonitorLacks(t *testing.T) {
	lib := &script{gpus: []*scripted{{uuid: "GPU-a"}, {uuid: "GPU-b"}}}
	r := newRig(t, lib, func(o *Options) {
		o.Profiles = told{"GPU-b": {"sm_active_ratio": 0.25, "fp64_active_ratio": 0.5}}
	})
	r.ticks(3)
	s := r.samples[len(r.samples)-1]
	if v, ok := s.Mean["sm_active_ratio"][1].Float(); !ok || v != 0.25 {
		t.Errorf("got %v", s.Mean["sm_active_ratio"])
	}
	if s.Mean["sm_active_ratio"][0].Known() || s.Absent["sm_active_ratio"] != "not_supported" {
		t.Errorf("the other GPU has %v, because %q", s.Mean["sm_active_ratio"][0], s.Absent["sm_active_ratio"])
	}
	if got := r.Unprofiled(); !reflect.DeepEqual(got, []string{"GPU-a", "GPU-b"}) {
		t.Errorf("unprofiled: %v", got)
	}
}

func TestAFilledColumnIsNoLongerAbsent(t *testing.T) {
	ok, lost := heelerv1.GpuOK, heelerv1.GpuLost
	s := &heelerv1.GpuSample{
		GPU:   heelerv1.GpuColumns{UUID: []string{"a", "b"}},
		Mean:  map[string]heelerv1.Column{"sm_active_ratio": {heelerv1.FloatValue(0.75), heelerv1.Value{}}},
		State: []*heelerv1.GpuState{&ok, &lost}, Absent: map[string]string{
			"sm_active_ratio": "not_supported", "dram_active_ratio": "not_supported",
		},
	}
	fill(s, told{"a": {"sm_active_ratio": 0.1}})
	if v, _ := s.Mean["sm_active_ratio"][0].Float(); v != 0.75 {
		t.Errorf("the monitor's own value became %v", v)
	}
	if !reflect.DeepEqual(s.Absent, map[string]string{"dram_active_ratio": "not_supported"}) {
		t.Errorf("absent %v", s.Absent)
	}
}

func TestWholeGPUsAndInstancesAreFilledAlike(t *testing.T) {
	ok, parent := heelerv1.GpuOK, "a"
	one, two := int64(1), int64(2)
	s := &heelerv1.GpuSample{
		GPU: heelerv1.GpuColumns{
			UUID:   []string{"a", "MIG-1", "MIG-2", "MIG-2b", "b"},
			Parent: []*string{nil, &parent, &parent, &parent, nil}, GI: []*int64{nil, &one, &two, &two, nil},
		},
		State: []*heelerv1.GpuState{&ok, &ok, &ok, &ok, &ok}, Mean: map[string]heelerv1.Column{},
	}
	fill(s, told{
		"a": {"sm_active_ratio": 0.5}, "a/1": {"sm_active_ratio": 0.25}, "a/2": {"sm_active_ratio": 0.125},
		"b": {"sm_active_ratio": 1},
	})
	want := []float64{0.5, 0.25, -1, -1, 1}
	for i, v := range s.Mean["sm_active_ratio"] {
		if f, known := v.Float(); known != (want[i] >= 0) || known && f != want[i] {
			t.Errorf("%s has %v, not %v", s.GPU.UUID[i], v, want[i])
		}
	}
}

func TestOneProfilerPerGPU(t *testing.T) {
	var c claims
	for range 2 { // who has it may take it again
		if !c.take("GPU-a", lent) {
			t.Fatal("not lent")
		}
	}
	if c.take("GPU-a", monitor) {
		t.Fatal("the monitor got a GPU that is lent")
	}
	allowed := new(atomic.Int32)
	p := perfMonitor{allowed: allowed, uuid: "GPU-a", claims: &c}
	if s := p.sample(); s != nvml.NotSupported {
		t.Errorf("got %s", s)
	}
	c.free("GPU-a", monitor) // not its own
	if c.take("GPU-a", monitor) {
		t.Error("freed by another")
	}
	c.free("GPU-a", lent)
	if !c.take("GPU-a", monitor) || c.take("GPU-a", lent) {
		t.Error("lent while the monitor works")
	}
}

func TestAMonitorAtWorkIsNotLent(t *testing.T) {
	r := newRig(t, &script{gpus: []*scripted{{uuid: "GPU-a"}, {uuid: "GPU-b"}}})
	r.claims.take("GPU-b", monitor)
	got := r.LendProfiling([]string{"GPU-a", "GPU-b"})
	if !reflect.DeepEqual(got, []string{"GPU-a"}) {
		t.Errorf("lent %v", got)
	}
	r.ReturnProfiling(got)
	if !r.claims.take("GPU-a", monitor) {
		t.Error("not returned")
	}
}
