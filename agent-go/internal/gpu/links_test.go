//go:build cgo

package gpu

import (
	"testing"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// linkRows are the rows of a sample as text-like keys: GPU and link.
func linkRows(s *heelerv1.GpuSample) map[[2]int]heelerv1.NVLinkRow {
	rows := map[[2]int]heelerv1.NVLinkRow{}
	for _, r := range s.NVLinks {
		rows[[2]int{r.GPU, int(r.Link)}] = r
	}
	return rows
}

func counter(t *testing.T, r heelerv1.NVLinkRow, name string) float64 {
	t.Helper()
	f, _ := r.Counters[name].Float()
	return f
}

func TestOldLinksAreCountedAndOnlyTheRemarkableListed(t *testing.T) {
	r, _ := fakeRig(t, `gpus 3
all busy
0 nvlink 5 down
1 nvlink 17 replay 9
1 nvlink 3 crc_flit 2
1 nvlink 3 crc_data 3
1 nvlink 2 recovery 1`)
	s := settle(t, r)
	for name, want := range map[string][]float64{
		"nvlink_links": {18, 18, 18}, "nvlink_links_up": {17, 18, 18}, "nvlink_crc_errors": {0, 5, 0},
		"nvlink_replay_errors": {0, 9, 0}, "nvlink_recovery_errors": {0, 1, 0},
	} {
		for i, w := range want {
			if got, ok := value(t, s.Last, name, i); !ok || got != w {
				t.Errorf("%s of GPU %d: %v, %v", name, i, got, ok)
			}
		}
	}
	rows := linkRows(s)
	if len(rows) != 4 {
		t.Errorf("rows %+v", s.NVLinks)
	}
	if down := rows[[2]int{0, 5}]; down.Up == nil || *down.Up || len(down.Counters) != 0 {
		t.Errorf("down: %+v", down)
	}
	if row := rows[[2]int{1, 3}]; row.Up == nil || !*row.Up || counter(t, row, "crc_errors") != 5 {
		t.Errorf("CRC: %+v", row)
	}
	if row := rows[[2]int{1, 17}]; counter(t, row, "replay_errors") != 9 || len(row.Counters) != 1 {
		t.Errorf("replay: %+v", row)
	}
}

func TestNewLinksAreCountedWithTheirErrorRates(t *testing.T) {
	r, _ := fakeRig(t, `model NVIDIA B200
gpus 2
all busy
0 nvlink all effective_ber 0xFFF
0 nvlink 4 symbol_errors 70000000000
0 nvlink 4 symbol_ber 0x50B
0 nvlink 5 symbol_ber 0x30F
0 nvlink 6 recovery_failed 1
0 nvlink 6 recovery_ok 2
0 nvlink 7 malformed 3
0 nvlink 8 down`)
	s := settle(t, r)
	for name, want := range map[string]float64{
		"nvlink_symbol_errors": 70000000000, "nvlink_symbol_ber": 5e-11, "nvlink_effective_ber": 15e-255,
		"nvlink_recoveries_failed": 1, "nvlink_recoveries_ok": 2, "nvlink_malformed_packets": 3, "nvlink_links_up": 17,
		"nvlink_xmit_discards": 0,
	} {
		if got, ok := value(t, s.Last, name, 0); !ok || got != want {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	rows := linkRows(s)
	if len(rows) != 4 { // a bit error rate alone is no count
		t.Errorf("rows %+v", s.NVLinks)
	}
	if row := rows[[2]int{0, 4}]; counter(t, row, "symbol_ber") != 5e-11 || counter(t, row, "symbol_errors") != 7e10 {
		t.Errorf("row %+v", row)
	}
	if s.Absent["nvlink_crc_errors"] != "not_supported" {
		t.Errorf("old counters: %q", s.Absent["nvlink_crc_errors"])
	}
}

func TestALinkThatCannotBeReadMakesNoSumFall(t *testing.T) {
	r, _ := fakeRig(t, `model NVIDIA B200
gpus 2
all busy
0 nvlink all xmit_discards 5
0 nvlink 2 count_error 999
1 nvlink 3 down
1 nvlink 3 count_error 2
1 nvlink 4 state_error 999
1 nvlink 5 xmit_discards 7`)
	s := settle(t, r)
	if v, ok := value(t, s.Last, "nvlink_xmit_discards", 0); ok {
		t.Errorf("a sum without one link: %v", v)
	}
	if v, ok := value(t, s.Last, "nvlink_xmit_discards", 1); !ok || v != 7 {
		t.Errorf("without the link that is down: %v, %v", v, ok)
	}
	if v, ok := value(t, s.Last, "nvlink_links_up", 1); ok {
		t.Errorf("%v links are up, with one that does not tell", v)
	}
	rows := linkRows(s)
	if row, ok := rows[[2]int{0, 2}]; !ok || row.Up == nil || !*row.Up {
		t.Errorf("the link that was not read: %+v, %v", row, ok)
	}
	if row, ok := rows[[2]int{1, 4}]; !ok || row.Up != nil {
		t.Errorf("the link without a state: %+v, %v", row, ok)
	}
	if s.Absent["nvlink_links_up"] != "error_999" {
		t.Errorf("absent %v", s.Absent)
	}
}

func TestTrafficWithoutThePerformanceMonitor(t *testing.T) {
	for model, generation := range map[string]string{"NVIDIA A100-SXM4-80GB": "old", "NVIDIA B200": "new"} {
		t.Run(generation, func(t *testing.T) {
			r, _ := fakeRig(t, "model "+model+"\ngpus 1\nall busy\n0 error gpm 4")
			first := r.window(t)
			if _, ok := value(t, first.Mean, "nvlink_tx_bytes_per_s", 0); ok {
				t.Error("a rate from one reading")
			}
			s := settle(t, r)
			if rate, ok := value(t, s.Mean, "nvlink_tx_bytes_per_s", 0); !ok || rate < 0.5*90000*mib || rate > 2*90000*mib {
				t.Errorf("rate %v, %v, absent %q", rate, ok, s.Absent["nvlink_tx_bytes_per_s"])
			}
		})
	}
}

func TestTheInventoryTellsWhereLinksLead(t *testing.T) {
	r, scenario := fakeRig(t, "gpus 1\nall busy\n0 nvlink 4 down")
	var told [][]heelerv1.Gpu
	r.OnInventory = func(gpus []heelerv1.Gpu, _ nvml.Versions) { told = append(told, gpus) }
	r.window(t)
	if len(told) != 1 || len(told[0][0].NVLinks) != 18 {
		t.Fatalf("told %+v", told)
	}
	g := told[0][0]
	if l := g.NVLinks[5]; l.Link != 5 || *l.Version != 6 || l.RemotePCI != "0000:08:00" || l.RemoteType != "switch" {
		t.Errorf("link %+v", l)
	}
	if l := g.NVLinks[4]; l.RemotePCI != "" {
		t.Errorf("a link that is down leads to %s", l.RemotePCI)
	}
	if g.Architecture != "hopper" || g.BoardPart != "692-2G520-0200-000" {
		t.Errorf("board %q, %q", g.Architecture, g.BoardPart)
	}
	scenario.Set("gpus 1\nall busy")
	wait()
	r.window(t)
	r.window(t)
	if last := told[len(told)-1][0]; last.NVLinks[4].RemotePCI != "0000:07:00" {
		t.Errorf("once it is up: %+v", last.NVLinks[4])
	}
}

func TestBitErrorRates(t *testing.T) {
	for field, want := range map[uint64]float64{0: 0, 0x100: 1, 0x10C: 1e-12, 0xF0F: 15e-15, 0xFFF: 15e-255} {
		if got := nvml.BER(field); got != want {
			t.Errorf("%#x is %v, not %v", field, got, want)
		}
	}
}
