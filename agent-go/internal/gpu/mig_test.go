//go:build cgo

package gpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// wait until the fake library has seen a new scenario.
func wait() { time.Sleep(noticed) }

const divided = `gpus 2
all busy
0 mig 1g.10gb 7 0
0 mig 3g.40gb 1 0
0/0 fb_used_bytes 1000
0/1 fb_used_bytes 2000
0/0 sm_active_pct 25
0/1 sm_active_pct 75
0 process 500 10
0/0 process 501 11
0/1 process 502 12
0/1 process 77 13
1 process 503 14`

// find is the position of a row.
func find(t *testing.T, s *heelerv1.GpuSample, ok func(i int) bool) int {
	t.Helper()
	for i := range s.GPU.UUID {
		if ok(i) {
			return i
		}
	}
	t.Fatalf("no such row among %v", s.GPU.UUID)
	return 0
}

func instanceRow(t *testing.T, s *heelerv1.GpuSample, gi int64) int {
	t.Helper()
	return find(t, s, func(i int) bool { return len(s.GPU.GI) > 0 && s.GPU.GI[i] != nil && *s.GPU.GI[i] == gi })
}

func TestMIGDevicesHaveRowsOfTheirOwn(t *testing.T) {
	r, _ := fakeRig(t, divided)
	s := settle(t, r)
	if states(s) != "ok ok ok ok" || r.err != nil {
		t.Fatalf("%s, %v", states(s), r.err)
	}
	small, large := instanceRow(t, s, 7), instanceRow(t, s, 1)
	if *s.GPU.Parent[small] != s.GPU.UUID[0] || *s.GPU.CI[small] != 0 || *s.GPU.Profile[small] != "1g.10gb" ||
		*s.GPU.Profile[large] != "3g.40gb" || s.GPU.Index[small] != nil || s.GPU.Minor[small] != nil || s.GPU.PCI[small] != nil ||
		!strings.HasPrefix(s.GPU.UUID[small], "MIG-") || s.GPU.Parent[0] != nil || s.GPU.Parent[3] != nil {
		t.Errorf("identity %+v", s.GPU)
	}
	for i, want := range map[int]float64{small: 1000, large: 2000} {
		if used, ok := value(t, s.Mean, "fb_used_bytes", i); !ok || used != want {
			t.Errorf("memory of row %d: %v, %v", i, used, ok)
		}
	}
	for i, want := range map[int]float64{small: 0.25, large: 0.75, 3: 0.88} {
		if active, ok := value(t, s.Mean, "sm_active_ratio", i); !ok || active < want-1e-3 || active > want+1e-3 {
			t.Errorf("SMs of row %d: %v, %v", i, active, ok)
		}
	}
	for _, column := range []string{"util_ratio", "mem_util_ratio"} {
		for _, i := range []int{0, small, large} {
			if v, ok := value(t, s.Mean, column, i); ok {
				t.Errorf("%s of row %d is %v", column, i, v)
			}
		}
	}
	if _, ok := value(t, s.Mean, "util_ratio", 3); !ok || s.Absent["util_ratio"] != "not_supported" {
		t.Errorf("the whole GPU: %v, absent %v", ok, s.Absent)
	}
	if _, ok := value(t, s.Mean, "power_w", small); ok || s.Absent["power_w"] != "" {
		t.Errorf("power of a part: %v, %q", ok, s.Absent["power_w"])
	}
	if mode, _ := value(t, s.Last, "mig_mode", 0); mode != 1 {
		t.Errorf("mode %v", mode)
	}
}

func TestEachProcessIsListedWhereItRuns(t *testing.T) {
	r, _ := fakeRig(t, divided)
	s := settle(t, r)
	small, large := instanceRow(t, s, 7), instanceRow(t, s, 1)
	want := map[uint64]int{500: 0, 501: small, 502: large, 77: large, 503: 3}
	if len(s.Procs) != len(want) {
		t.Errorf("processes %+v", s.Procs)
	}
	for _, p := range s.Procs {
		if position, ok := want[p.PID]; !ok || p.GPU != position {
			t.Errorf("process %d is on row %d, not %d", p.PID, p.GPU, position)
		}
		if (p.JobID != nil) != (p.PID == 77) {
			t.Errorf("job of %d: %v", p.PID, p.JobID)
		}
	}
}

func TestProcessesThatOnlyTheGPUListsBelongToTheirInstance(t *testing.T) {
	r, _ := fakeRig(t, divided+"\n0/1 error processes 4")
	s := settle(t, r)
	large := instanceRow(t, s, 1)
	for _, p := range s.Procs {
		if p.PID == 502 && p.GPU != large {
			t.Errorf("process on row %d", p.GPU)
		}
	}
	if len(s.Procs) != 5 {
		t.Errorf("processes %+v", s.Procs)
	}
}

func TestAnInstanceThatIsTakenAwayIsNotLost(t *testing.T) {
	r, scenario := fakeRig(t, divided)
	var inventory []heelerv1.Gpu
	r.OnInventory = func(gpus []heelerv1.Gpu, _ nvml.Versions) { inventory = gpus }
	before := settle(t, r)
	if len(inventory[0].MIGDevices) != 2 || *inventory[0].MIGDevices[0].GI != 1 || *inventory[0].MIGDevices[0].FBTotalBytes != 40<<30 {
		t.Errorf("inventory %+v", inventory[0].MIGDevices)
	}
	kept := before.GPU.UUID[instanceRow(t, before, 7)]
	scenario.Set("gpus 2\nall busy\n0 mig 1g.10gb 7 0\n0 mig 2g.20gb 4 1")
	wait()
	s := settle(t, r)
	if len(s.GPU.UUID) != 4 || states(s) != "ok ok ok ok" || r.err != nil {
		t.Fatalf("%v, %s, %v", s.GPU.UUID, states(s), r.err)
	}
	if s.GPU.UUID[instanceRow(t, s, 7)] != kept || *s.GPU.Profile[instanceRow(t, s, 4)] != "2g.20gb" {
		t.Errorf("rows %+v", s.GPU)
	}
	if len(inventory[0].MIGDevices) != 2 || *inventory[0].MIGDevices[1].GI != 7 {
		t.Errorf("inventory %+v", inventory[0].MIGDevices)
	}
	scenario.Set("gpus 2\nall busy")
	wait()
	s = settle(t, r)
	if len(s.GPU.UUID) != 2 || s.GPU.Parent != nil || *inventory[0].MIG {
		t.Errorf("without MIG: %v, inventory %+v", s.GPU.UUID, inventory[0])
	}
	if _, ok := value(t, s.Mean, "util_ratio", 0); ok != true {
		t.Error("the GPU has no utilisation again")
	}
}

func TestALostGPUKeepsItsMIGRowsAsLostEvenOverARestart(t *testing.T) {
	r, scenario := fakeRig(t, divided)
	r.MemoryPath = filepath.Join(t.TempDir(), "gpus.json")
	r.memory.path = r.MemoryPath
	settle(t, r)
	scenario.Set("gpus 2\nall busy\n0 lost")
	wait()
	r.window(t)
	s := r.window(t)
	if states(s) != "lost lost lost ok" {
		t.Errorf("%s", states(s))
	}
	if v, ok := value(t, s.Mean, "fb_used_bytes", 1); ok {
		t.Errorf("a lost part has %v bytes", v)
	}
	if data, err := os.ReadFile(r.MemoryPath); err != nil || !strings.Contains(string(data), "MIG-") {
		t.Fatalf("%s, %v", data, err)
	}
	if err := r.Release(second); err != nil {
		t.Fatal(err)
	}
	again := newRig(t, r.Library, func(o *Options) { o.MemoryPath = r.MemoryPath })
	if s := again.window(t); states(s) != "lost lost lost ok" || *s.GPU.Parent[1] != s.GPU.UUID[0] {
		t.Errorf("after a restart: %s", states(s))
	}
}

func TestPartsAreReadThoughTheGPUMayNotBe(t *testing.T) {
	r, _ := fakeRig(t, divided+"\n0 error all 4\n0 ok handle uuid index mig_mode\n1 error processes 4")
	s := settle(t, r)
	if states(s) != "ok ok ok ok" || r.err != nil {
		t.Fatalf("%s, %v", states(s), r.err)
	}
	if used, ok := value(t, s.Mean, "fb_used_bytes", instanceRow(t, s, 1)); !ok || used != 2000 {
		t.Errorf("memory of a part: %v, %v", used, ok)
	}
	if _, ok := value(t, s.Mean, "fb_used_bytes", 0); ok || s.Absent["fb_used_bytes"] != "no_permission" {
		t.Errorf("memory of the GPU: %v, %q", ok, s.Absent["fb_used_bytes"])
	}
	if _, ok := value(t, s.Mean, "power_w", 3); !ok {
		t.Error("the other GPU has no power")
	}
}

func TestAMIGDeviceThatHangsIsItsGPUsHang(t *testing.T) {
	r, scenario := fakeRig(t, divided)
	settle(t, r)
	scenario.Set(divided + "\n0/1 hang memory")
	wait()
	r.ticks(1)
	time.Sleep(2 * r.HangAfter)
	if s := r.window(t); states(s) != "hung hung hung ok" || !strings.Contains(r.err.Error(), "memory of a MIG device") {
		t.Errorf("%s, %v", states(s), r.err)
	}
}

func TestComputeInstancesOfOneGPUInstanceShareItsMonitor(t *testing.T) {
	r, _ := fakeRig(t, "gpus 1\nall busy\n0 mig 3g.40gb 1 0\n0 mig 3g.40gb 1 1\n0 mig 1g.10gb 7 0")
	s := settle(t, r)
	for _, i := range []int{1, 2} {
		if v, ok := value(t, s.Mean, "sm_active_ratio", i); ok {
			t.Errorf("row %d has %v, which is its neighbour's too", i, v)
		}
	}
	if _, ok := value(t, s.Mean, "sm_active_ratio", 3); !ok {
		t.Error("one that is alone has none")
	}
}
