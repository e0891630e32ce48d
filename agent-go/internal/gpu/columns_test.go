//go:build cgo

package gpu

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/fakenvml"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// settle reads two windows, as long apart as the performance monitor wants, and returns the second.
func settle(t *testing.T, r *rig) *heelerv1.GpuSample {
	t.Helper()
	r.window(t)
	time.Sleep(150 * time.Millisecond)
	return r.window(t)
}

// schema are the columns that the contract names.
func schema(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("../../../schemas/gpu_sample.v1.schema.json")
	if err != nil {
		t.Skip("no schemas beside this module")
	}
	var s struct {
		Properties map[string]struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	where := map[string]string{}
	for _, part := range []string{"mean", "last"} {
		for name := range s.Properties[part].Properties {
			where[name] = part
		}
	}
	return where
}

func TestTheColumnsAreThoseOfTheContract(t *testing.T) {
	want := schema(t)
	for c, name := range names {
		part := "last"
		if column(c) < meanColumns {
			part = "mean"
		}
		if want[name] != part {
			t.Errorf("%s is in %s, in the contract in %q", name, part, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("the agent never reads %s", name)
	}
}

// What the boards of each generation lack; everything else they have.
var (
	hopperOnly   = []string{"nvlink_crc_errors", "nvlink_replay_errors", "nvlink_recovery_errors"}
	newLinksOnly = []string{
		"nvlink_malformed_packets", "nvlink_buffer_overruns", "nvlink_receive_errors", "nvlink_remote_errors",
		"nvlink_general_errors", "nvlink_integrity_errors", "nvlink_xmit_discards", "nvlink_recoveries_ok",
		"nvlink_recoveries_failed", "nvlink_recovery_events", "nvlink_effective_errors", "nvlink_symbol_errors",
		"nvlink_effective_ber", "nvlink_symbol_ber",
	}
	monitorOnly = []string{
		"graphics_active_ratio", "sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio",
		"int_active_ratio", "fp64_active_ratio", "fp32_active_ratio", "fp16_active_ratio", "pcie_tx_bytes_per_s",
		"pcie_rx_bytes_per_s",
	}
	pages   = []string{"retired_pages_sbe", "retired_pages_dbe", "retired_pages_pending"}
	rows    = []string{"remapped_rows_correctable", "remapped_rows_uncorrectable", "remap_pending", "remap_failed"}
	noLinks = []string{
		"nvlink_links", "nvlink_links_up", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "fabric_state", "fabric_status",
	}
)

func TestWhatEachBoardHasAndLacks(t *testing.T) {
	for model, lacks := range map[string][][]string{
		"NVIDIA H100 80GB HBM3": {newLinksOnly, pages, {"fan_ratio"}},
		"NVIDIA B200":           {hopperOnly, pages, {"fan_ratio"}},
		"NVIDIA A100-SXM4-80GB": {newLinksOnly, pages, monitorOnly, {"fan_ratio"}},
		"NVIDIA L40S":           {newLinksOnly, hopperOnly, noLinks, monitorOnly, pages, {"mig_mode"}},
		"Tesla V100-SXM2-32GB":  {newLinksOnly, monitorOnly, rows, {"fan_ratio", "mig_mode"}},
	} {
		t.Run(model, func(t *testing.T) {
			r, _ := fakeRig(t, "model "+model+"\ngpus 2\nall busy")
			s := settle(t, r)
			missing := slices.Concat(lacks...)
			for c, name := range names {
				columns := s.Last
				if column(c) < meanColumns {
					columns = s.Mean
				}
				_, has := value(t, columns, name, 1)
				switch lacking := slices.Contains(missing, name); {
				case has == lacking:
					t.Errorf("%s: %v, absent because %q", name, has, s.Absent[name])
				case lacking && s.Absent[name] != "not_supported":
					t.Errorf("%s is absent because %q", name, s.Absent[name])
				case has && s.Absent[name] != "":
					t.Errorf("%s is there and absent because %q", name, s.Absent[name])
				}
			}
			if r.err != nil {
				t.Errorf("that is no fault: %v", r.err)
			}
		})
	}
}

func TestValuesAreInTheUnitsOfTheirNames(t *testing.T) {
	r, _ := fakeRig(t, `gpus 1
all busy
0 power_average_w 651
0 power_instant_w 672
0 temp_margin_c -3
0 encoder_util_pct 25
0 decoder_util_pct 50
0 bar1_used_bytes 4096
0 fb_reserved_bytes 8192
0 graphics_active_pct 97
0 integer_active_pct 12.5
0 fp64_active_pct 6.25
0 fp32_active_pct 3.125
0 fp16_active_pct 1.5625
0 pcie_tx_mib_s 100
0 nvlink_rx_mib_s 2000
0 energy_mj 5000
0 power_limit_min_w 210
0 power_limit_max_w 690
0 temp_shutdown_c 93
0 temp_slowdown_c 90
0 temp_gpu_max_c 88
0 temp_mem_max_c 96
0 event_hw_thermal_ns 7000000001
0 violation_reliability_ns 8000000002
0 pcie_correctable_errors 3
0 pcie_nonfatal_errors 4
0 pcie_fatal_errors 5
0 pcie_recoveries 6
0 recovery_action 4
0 fabric_state 3
0 fabric_status 999
0 ecc_mode 0
0 retired_pending 1`)
	s := settle(t, r)
	for name, want := range map[string]float64{
		"power_w": 651, "power_instant_w": 672, "temp_margin_c": -3, "encoder_util_ratio": 0.25,
		"decoder_util_ratio": 0.5, "bar1_used_bytes": 4096, "fb_reserved_bytes": 8192, "graphics_active_ratio": 0.97,
		"int_active_ratio": 0.125, "fp64_active_ratio": 0.0625, "fp32_active_ratio": 0.03125,
		"fp16_active_ratio": 0.015625, "pcie_tx_bytes_per_s": 100 << 20, "nvlink_rx_bytes_per_s": 2000 << 20,
		"power_limit_min_w": 210, "power_limit_max_w": 690, "temp_shutdown_c": 93, "temp_slowdown_c": 90,
		"temp_gpu_max_c": 88, "temp_mem_max_c": 96, "clock_event_hw_thermal_ns": 7000000001,
		"violation_reliability_ns": 8000000002, "pcie_correctable_errors": 3, "pcie_nonfatal_errors": 4,
		"pcie_fatal_errors": 5, "pcie_recoveries": 6, "recovery_action": 4, "fabric_state": 3, "fabric_status": 999,
		"ecc_mode": 0, "mig_mode": 0, "retired_pages_pending": 1,
	} {
		columns := s.Last
		if _, ok := s.Mean[name]; ok {
			columns = s.Mean
		}
		got, ok := value(t, columns, name, 0)
		if !ok || got < want-1e-6*max(want, 1) || got > want+1e-6*max(want, 1) {
			t.Errorf("%s is %v (%v), not %v; absent %q", name, got, ok, want, s.Absent[name])
		}
	}
	if energy, _ := value(t, s.Last, "energy_j", 0); energy < 5 || energy > 5000 {
		t.Errorf("energy %v J", energy)
	}
}

func TestDriversThatTellOfTheFabricInAnOlderWay(t *testing.T) {
	path := fakenvml.Build(t, "HIDE=nvmlDeviceGetGpuFabricInfoV nvmlDeviceGetMPSComputeRunningProcesses_v3 "+
		"nvmlDeviceGetMPSComputeRunningProcesses_v2 nvmlDeviceGetMPSComputeRunningProcesses nvmlGpmMigSampleGet")
	text := anotherProcess(t, "TestAnOlderFabricCall", path)
	if text != "" {
		t.Error(text)
	}
}

func TestAnOlderFabricCall(t *testing.T) {
	path := alone(t)
	fakenvml.Follow(t, "gpus 1\nall busy\n0 fabric_state 2")
	s := newRig(t, nvml.Open(path)).window(t)
	if state, ok := value(t, s.Last, "fabric_state", 0); !ok || state != 2 {
		t.Errorf("fabric %v, %v", state, ok)
	}
}

func TestWhatABoardLacksIsNotAskedEachTime(t *testing.T) {
	d := &scripted{uuid: "GPU-a", total: 10}
	asked, support := 0, none
	d.reasons = func() (uint64, nvml.Status) {
		asked++
		return 4, support
	}
	r := newRig(t, &script{gpus: []*scripted{d}})
	r.ticks(lacksAfter + restVisits)
	if asked != lacksAfter {
		t.Errorf("asked %d times", asked)
	}
	if s := r.samples[len(r.samples)-1]; s.Absent["clock_event_reasons"] != "not_supported" {
		t.Errorf("while it is not asked: %q", s.Absent["clock_event_reasons"])
	}
	support = nvml.OK
	s := r.window(t)
	if bits, ok := s.Last["clock_event_reasons"][0].Uint(); !ok || bits != 4 {
		t.Errorf("asked again: %v", s.Last["clock_event_reasons"])
	}
}

func TestAFaultIsAskedEachTime(t *testing.T) {
	asked := 0
	d := &scripted{uuid: "GPU-a", total: 10, reasons: func() (uint64, nvml.Status) {
		asked++
		return 0, nvml.Unknown
	}}
	newRig(t, &script{gpus: []*scripted{d}}).ticks(20)
	if asked != 20 {
		t.Errorf("asked %d times", asked)
	}
}
