//go:build cgo

package gpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/fakenvml"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// noticed is how long the fake library may take to see that its scenario changed.
const noticed = 20 * time.Millisecond

func fakeRig(t *testing.T, scenario string, change ...func(*Options)) (*rig, *fakenvml.Scenario) {
	t.Helper()
	path := fakenvml.Build(t)
	s := fakenvml.Follow(t, scenario)
	lib := nvml.Open(path)
	r := newRig(t, lib, change...)
	t.Cleanup(func() {
		s.Set("gpus 8") // lets go what hangs
		time.Sleep(noticed)
		lib.Shutdown()
	})
	return r, s
}

func states(s *heelerv1.GpuSample) string {
	var all []string
	for _, state := range s.State {
		all = append(all, string(*state))
	}
	return strings.Join(all, " ")
}

func TestEightGPUs(t *testing.T) {
	r, _ := fakeRig(t, "all busy\n3 sm_clock_mhz 1155\n3 clock_event_reasons 0x40\n1 process 77 51539607552")
	r.window(t)
	time.Sleep(150 * time.Millisecond) // the performance monitor wants 100 between its samples
	s := r.window(t)
	if r.err != nil || states(s) != "ok ok ok ok ok ok ok ok" {
		t.Fatalf("%s, %v", states(s), r.err)
	}
	for _, column := range []string{
		"power_w", "temp_c", "mem_temp_c", "sm_clock_mhz", "mem_clock_mhz", "util_ratio", "mem_util_ratio",
		"sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio", "fb_used_bytes",
		"fb_total_bytes", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s",
	} {
		if _, ok := value(t, s.Mean, column, 7); !ok {
			t.Errorf("no %s: %s", column, s.Absent[column])
		}
	}
	for _, column := range []string{
		"energy_j", "power_limit_w", "power_limit_default_w", "sm_clock_max_mhz", "mem_clock_max_mhz", "temp_slowdown_c",
		"ecc_corrected_volatile", "ecc_uncorrected_aggregate", "remapped_rows_correctable", "remap_pending",
		"remap_failed", "pcie_gen", "pcie_width", "pcie_gen_max", "pcie_width_max", "pcie_replays", "nvlink_crc_errors",
		"nvlink_replay_errors", "nvlink_recovery_errors", "nvlink_links_up", "clock_event_reasons",
		"violation_thermal_ns", "violation_power_ns", "recovery_action", "pstate", "persistence",
	} {
		if _, ok := value(t, s.Last, column, 7); !ok {
			t.Errorf("no %s: %s", column, s.Absent[column])
		}
	}
	if clock, _ := value(t, s.Mean, "sm_clock_mhz", 3); clock != 1155 {
		t.Errorf("clock %v", clock)
	}
	if active, _ := value(t, s.Mean, "sm_active_ratio", 0); active <= 0.5 || active > 1 {
		t.Errorf("active %v is no ratio", active)
	}
	if rate, _ := value(t, s.Mean, "nvlink_tx_bytes_per_s", 0); rate < 1e9 {
		t.Errorf("NVLink %v are no bytes", rate)
	}
	if s.Absent["fan_ratio"] != "not_supported" {
		t.Errorf("absent %v", s.Absent)
	}
	if len(s.Procs) != 1 || s.Procs[0].GPU != 1 || *s.Procs[0].JobID != "job" {
		t.Errorf("processes %+v", s.Procs)
	}
	if *s.GPU.PCI[0] == "" || *s.GPU.Minor[7] != 7 || !strings.Contains(*s.GPU.Model[0], "H100") {
		t.Errorf("identity %+v", s.GPU)
	}
}

func TestALostGPUKeepsItsRowAndComesBack(t *testing.T) {
	r, scenario := fakeRig(t, "all busy")
	before := r.window(t)
	scenario.Set("all busy\n2 lost")
	time.Sleep(noticed)
	s := r.window(t)
	if states(s) != "ok ok lost ok ok ok ok ok" || s.GPU.UUID[2] != before.GPU.UUID[2] {
		t.Fatalf("%s", states(s))
	}
	s = r.window(t)
	if _, ok := value(t, s.Mean, "power_w", 2); ok || states(s) != "ok ok lost ok ok ok ok ok" {
		t.Errorf("%s with power", states(s))
	}
	if _, ok := value(t, s.Mean, "power_w", 3); !ok {
		t.Error("the others have no power")
	}
	if r.err == nil || !strings.Contains(r.err.Error(), "lost: "+s.GPU.UUID[2]) {
		t.Errorf("error %v", r.err)
	}
	scenario.Set("all busy")
	time.Sleep(noticed)
	r.window(t)
	if s = r.window(t); states(s) != "ok ok ok ok ok ok ok ok" || r.err != nil {
		t.Errorf("%s, %v", states(s), r.err)
	}
}

func TestAGPUThatHangsIsLeftAlone(t *testing.T) {
	r, scenario := fakeRig(t, "all busy")
	r.window(t)
	scenario.Set("all busy\n3 hang power")
	time.Sleep(noticed)
	before := runtime.NumGoroutine()
	r.ticks(1)
	time.Sleep(2 * r.HangAfter)
	start := time.Now()
	for range 20 {
		r.ticks(1)
	}
	if per := time.Since(start) / 20; per > r.Patience {
		t.Errorf("a tick takes %s", per)
	}
	s := r.window(t)
	if states(s) != "ok ok ok hung ok ok ok ok" {
		t.Errorf("%s", states(s))
	}
	if _, ok := value(t, s.Mean, "power_w", 4); !ok {
		t.Error("the others are not read")
	}
	if _, ok := value(t, s.Mean, "power_w", 3); ok {
		t.Error("the one that hangs has power")
	}
	if !errors.Is(r.err, collector.ErrHung) || !strings.Contains(r.err.Error(), "power") {
		t.Errorf("error %v", r.err)
	}
	stays(t, before+1)
	if got := r.Recheck(*s.GPU.PCI[3], 200*time.Millisecond); got != heelerv1.GpuHung {
		t.Errorf("recheck says %s", got)
	}
	scenario.Set("all busy")
	time.Sleep(10 * noticed)
	r.window(t)
	if s = r.window(t); states(s) != "ok ok ok ok ok ok ok ok" || r.err != nil {
		t.Errorf("afterwards %s, %v", states(s), r.err)
	}
}

// stays fails when more goroutines than these do not end.
func stays(t *testing.T, most int) {
	t.Helper()
	for range 100 {
		if runtime.NumGoroutine() <= most {
			return
		}
		time.Sleep(noticed)
	}
	t.Errorf("%d goroutines, not %d", runtime.NumGoroutine(), most)
}

func TestAGPUThatGoesAwayShiftsNobody(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 4\nall busy\n3 sm_clock_mhz 1155")
	before := r.window(t)
	scenario.Set("gpus 4\norder 0 2 3\nall busy\n3 sm_clock_mhz 1155")
	time.Sleep(noticed)
	r.window(t)
	s := r.window(t)
	if states(s) != "ok lost ok ok" {
		t.Errorf("%s", states(s))
	}
	for i, uuid := range before.GPU.UUID {
		if s.GPU.UUID[i] != uuid {
			t.Errorf("row %d is another GPU", i)
		}
	}
	if clock, _ := value(t, s.Mean, "sm_clock_mhz", 3); clock != 1155 {
		t.Errorf("clock %v", clock)
	}
	if clock, _ := value(t, s.Mean, "sm_clock_mhz", 2); clock == 1155 {
		t.Error("the neighbour has its clock")
	}
	if s.GPU.Index[1] != nil || *s.GPU.Index[3] != 2 {
		t.Errorf("index %v", s.GPU.Index)
	}
}

func TestTheOrderChanges(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 2\nall busy\n1 sm_clock_mhz 1155")
	before := r.window(t)
	scenario.Set("gpus 2\norder 1 0\nall busy\n1 sm_clock_mhz 1155")
	time.Sleep(noticed)
	r.window(t)
	s := r.window(t)
	if s.GPU.UUID[1] != before.GPU.UUID[1] || *s.GPU.Index[1] != 0 {
		t.Errorf("index %d", *s.GPU.Index[1])
	}
	if clock, _ := value(t, s.Mean, "sm_clock_mhz", 1); clock != 1155 {
		t.Errorf("clock %v", clock)
	}
}

func TestFewerGPUs(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 8\nall busy")
	r.window(t)
	scenario.Set("gpus 6\nall busy")
	time.Sleep(noticed)
	r.window(t)
	if s := r.window(t); states(s) != "ok ok ok ok ok ok lost lost" {
		t.Errorf("%s", states(s))
	}
}

func TestUnsupportedAndForbidden(t *testing.T) {
	r, _ := fakeRig(t, "all busy\nall unsupported temp\n5 unsupported util\n4 error processes 4\nall error mem_temp 4\n6 error memory 999")
	r.window(t)
	s := r.window(t)
	if s.Absent["temp_c"] != "not_supported" || s.Absent["mem_temp_c"] != "no_permission" {
		t.Errorf("absent %v", s.Absent)
	}
	if _, ok := value(t, s.Mean, "util_ratio", 5); ok || s.Absent["util_ratio"] != "not_supported" {
		t.Errorf("utilisation of a GPU without, absent %v", s.Absent)
	}
	if _, ok := value(t, s.Mean, "util_ratio", 4); !ok {
		t.Error("the others have no utilisation")
	}
	if _, ok := value(t, s.Mean, "fb_used_bytes", 6); ok || s.Absent["fb_used_bytes"] != "error_999" {
		t.Errorf("absent %v", s.Absent)
	}
	if r.err != nil {
		t.Errorf("that is no fault: %v", r.err)
	}
}

func TestAMIGParentHasNoUtilisation(t *testing.T) {
	r, _ := fakeRig(t, "gpus 2\nall busy\n0 mig 1g.10gb 7 0")
	r.window(t)
	s := r.window(t)
	if _, ok := value(t, s.Mean, "util_ratio", 0); ok {
		t.Error("it has")
	}
	if _, ok := value(t, s.Mean, "util_ratio", 2); !ok {
		t.Error("the whole GPU has none")
	}
}

func TestInitFailuresAndRecovery(t *testing.T) {
	r, scenario := fakeRig(t, "lib_mismatch")
	r.ticks(1)
	if r.err == nil || !strings.Contains(r.err.Error(), "driver_mismatch") || errors.Is(r.err, collector.ErrAbsent) {
		t.Errorf("got %v", r.err)
	}
	scenario.Set("init_error 9")
	time.Sleep(noticed + r.Retry)
	r.ticks(1)
	if !errors.Is(r.err, collector.ErrAbsent) {
		t.Errorf("got %v", r.err)
	}
	scenario.Set("gpus 8")
	time.Sleep(noticed + r.Retry)
	if s := r.window(t); r.err != nil || len(s.GPU.UUID) != 8 {
		t.Errorf("got %v", r.err)
	}
}

func TestNoLibraryIsAbsent(t *testing.T) {
	r := newRig(t, nvml.Open("/nowhere/libnvidia-ml.so.1"))
	r.ticks(1)
	if !errors.Is(r.err, collector.ErrAbsent) {
		t.Errorf("got %v", r.err)
	}
}

// hidden are calls that an old driver lacks. A call of one of them would end the process, so it is another process.
const hidden = "HIDE=nvmlDeviceGetMarginTemperature nvmlDeviceGetArchitecture nvmlDeviceGetMaxMigDeviceCount " +
	"nvmlDeviceGetNvLinkErrorCounter nvmlDeviceGetGpuFabricInfoV nvmlDeviceGetGpuFabricInfo " +
	"nvmlDeviceGetNvLinkRemoteDeviceType nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetRemappedRows nvmlGpmSampleGet nvmlDeviceGetFieldValues " +
	"nvmlDeviceGetMemoryInfo_v2 nvmlDeviceGetNumaNodeId nvmlDeviceGetTotalEnergyConsumption"

// anotherProcess runs a test with another library: a call of a symbol that a library lacks ends the process. It returns
// what went wrong.
func anotherProcess(t *testing.T, test, library string) string {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	command.Env = append(os.Environ(), "HEELER_TEST_OLD_NVML="+library)
	text, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "--- PASS") {
		return fmt.Sprintf("%v\n%s", err, text)
	}
	return ""
}

// alone is the library of a test that another one runs in a process of its own.
func alone(t *testing.T) string {
	t.Helper()
	path := os.Getenv("HEELER_TEST_OLD_NVML")
	if path == "" {
		t.Skip("run by another test")
	}
	return path
}

func TestSymbolsThatAnOldDriverLacks(t *testing.T) {
	if text := anotherProcess(t, "TestInAProcessOfItsOwn", fakenvml.Build(t, hidden)); text != "" {
		t.Error(text)
	}
}

func TestInAProcessOfItsOwn(t *testing.T) {
	path := alone(t)
	fakenvml.Follow(t, "gpus 2\nall busy")
	r := newRig(t, nvml.Open(path))
	r.window(t)
	s := r.window(t)
	if r.err != nil {
		t.Fatal(r.err)
	}
	for _, column := range []string{"remapped_rows_correctable", "energy_j", "mem_temp_c", "sm_active_ratio"} {
		if s.Absent[column] != "not_supported" {
			t.Errorf("%s: %q", column, s.Absent[column])
		}
	}
	if _, ok := value(t, s.Mean, "fb_used_bytes", 0); !ok {
		t.Error("no memory through the older call")
	}
}

func TestManyCyclesCostNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	r, _ := fakeRig(t, "all busy\n0 error power 999\n5 error clocks 4\nnoise 0.01")
	r.ticks(300)
	r.samples = nil
	goroutines, heap, rss := runtime.NumGoroutine(), heapInUse(), residentSet(t)
	for range 10 {
		r.ticks(200)
		r.samples = nil
	}
	stays(t, goroutines)
	if now := heapInUse(); now > heap+heap/10 {
		t.Errorf("the heap grew from %d to %d", heap, now)
	}
	if now := residentSet(t); now > rss+16<<20 { // what the driver takes is seen only here
		t.Errorf("memory grew from %d to %d", rss, now)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func residentSet(t *testing.T) uint64 {
	t.Helper()
	rss, err := hostfs.RSS()
	if err != nil {
		t.Fatal(err)
	}
	return rss
}
