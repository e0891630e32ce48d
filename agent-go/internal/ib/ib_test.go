package ib

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/schemas/go/heelerv1"
)

// tree writes files below a fresh /sys.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, "class", "infiniband", path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func collect(t *testing.T, c *Collector) (*heelerv1.IbSample, error) {
	t.Helper()
	var got *heelerv1.IbSample
	err := c.Collect(context.Background(), time.Now(), func(m heelerv1.Message) error {
		got = m.(*heelerv1.IbSample)
		got.Header = heelerv1.Header{V: 1, Cluster: "c", Node: "n", Boot: "b"}
		_, err := heelerv1.Encode(got)
		return err
	})
	return got, err
}

func full() map[string]string {
	return map[string]string{
		"mlx5_0/node_guid": "b83f:d203:0012:3456", "mlx5_0/fw_ver": "28.39.1002", "mlx5_0/board_id": "MT_0000000838",
		"mlx5_0/ports/1/state": "4: ACTIVE", "mlx5_0/ports/1/phys_state": "5: LinkUp",
		"mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)", "mlx5_0/ports/1/link_layer": "InfiniBand",
		"mlx5_0/ports/1/counters/port_xmit_data": "1000", "mlx5_0/ports/1/counters/port_xmit_packets": "7",
		"mlx5_0/ports/1/counters/link_downed": "255", "mlx5_0/ports/1/counters/symbol_error": "65535",
		"mlx5_0/ports/1/counters/port_xmit_wait": "4294967295", "mlx5_0/ports/1/counters/VL15_dropped": "3",
		"mlx5_0/ports/1/counters/port_rcv_errors":    "N/A (no PMA)",
		"mlx5_0/ports/1/hw_counters/out_of_sequence": "18446744073709551614", "mlx5_0/ports/1/hw_counters/lifespan": "10",
		"mlx5_0/ports/1/gid_attrs/ndevs/0": "ib0",
	}
}

func TestAPortInFull(t *testing.T) {
	var hcas []heelerv1.Hca
	c := New(Options{Sys: tree(t, full()), OnInventory: func(h []heelerv1.Hca) { hcas = h }})
	m, err := collect(t, c)
	if err != nil || len(m.Ports) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	p := m.Ports[0]
	if p.State != "active" || p.PhysState != "link_up" || *p.RateGbps != 400 || p.LinkLayer != "infiniband" ||
		p.GUID != "b83f:d203:0012:3456" || p.Netdev != "ib0" {
		t.Errorf("got %+v", p)
	}
	for name, want := range map[string]uint64{
		"port_xmit_data": 4000, "port_xmit_packets": 7, "link_downed": 255, "out_of_sequence": 18446744073709551614,
	} {
		if got, ok := p.Counters[name]; !ok || got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	slices.Sort(p.Saturated)
	if want := []string{"link_downed", "port_xmit_wait", "symbol_error"}; !slices.Equal(p.Saturated, want) {
		t.Errorf("saturated %v", p.Saturated)
	}
	if _, ok := p.Counters["port_rcv_errors"]; ok || p.Absent["port_rcv_errors"] != "no_pma" {
		t.Errorf("absent %v", p.Absent)
	}
	if _, ok := p.Counters["lifespan"]; ok {
		t.Error("a setting is taken for a counter")
	}
	if len(hcas) != 1 || hcas[0].Firmware != "28.39.1002" || *hcas[0].RateGbps != 400 {
		t.Errorf("inventory %+v", hcas)
	}
}

func TestADeviceWithoutCountersStopsNobody(t *testing.T) {
	files := full()
	files["irdma0/ports/1/state"] = "1: DOWN"
	files["hfi1_0/node_guid"] = "x"
	c := New(Options{Sys: tree(t, files)})
	m, err := collect(t, c)
	if err != nil || len(m.Ports) != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	if p := m.Ports[0]; p.Device != "irdma0" || p.State != "down" || p.Absent["counters"] != "not_present" || p.RateGbps != nil {
		t.Errorf("got %+v", p)
	}
	if m.Absent["hfi1_0"] != "not_present" {
		t.Errorf("absent %v", m.Absent)
	}
}

func TestNoDeviceIsAbsentNotWell(t *testing.T) {
	for _, sys := range []string{t.TempDir(), tree(t, nil)} {
		if m, err := collect(t, New(Options{Sys: sys})); m != nil || !errors.Is(err, collector.ErrAbsent) {
			t.Errorf("got %+v, %v", m, err)
		}
	}
}

func TestDevicesThatGoAwayAreMissed(t *testing.T) {
	sys := tree(t, full())
	c := New(Options{Sys: sys})
	if _, err := collect(t, c); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(sys, "class", "infiniband", "mlx5_0")); err != nil {
		t.Fatal(err)
	}
	m, err := collect(t, c)
	if err != nil || m == nil || len(m.Ports) != 0 {
		t.Errorf("got %+v, %v", m, err)
	}
	if _, err := collect(t, c); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("then %v", err)
	}
}

func TestAPortThatGoesAwayBetweenListAndRead(t *testing.T) {
	files := full()
	delete(files, "mlx5_0/ports/1/state") // as if it were gone
	c := New(Options{Sys: tree(t, files)})
	m, err := collect(t, c)
	if err != nil || len(m.Ports) != 0 || m.Absent["mlx5_0/1"] != "not_present" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestARefusedFileIsLeftAlone(t *testing.T) {
	now := time.Unix(1000, 0)
	c := New(Options{Sys: tree(t, full()), Now: func() time.Time { return now }})
	path := filepath.Join(c.class, "mlx5_0/ports/1/counters/port_xmit_data")
	c.refused[path] = now.Add(refusedTime)
	if _, err := c.read(path); !errors.Is(err, syscall.EINVAL) || reason(err) != "invalid" {
		t.Errorf("got %v", err)
	}
	now = now.Add(refusedTime)
	if text, err := c.read(path); err != nil || text != "1000" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestTheRateOfADownPortIsNotItsOwn(t *testing.T) {
	files := full()
	files["mlx5_0/ports/1/state"], files["mlx5_0/ports/1/rate"] = "1: DOWN", "10 Gb/sec (4X SDR)"
	var hcas []heelerv1.Hca
	c := New(Options{Sys: tree(t, files), OnInventory: func(h []heelerv1.Hca) { hcas = h }})
	if _, err := collect(t, c); err != nil || hcas[0].RateGbps != nil {
		t.Errorf("inventory %+v, %v", hcas, err)
	}
}

func TestWidths(t *testing.T) {
	for _, c := range []struct {
		name  string
		value uint64
		full  bool
	}{
		{"port_xmit_data", 4294967295, true}, {"port_xmit_data", 4294967294, false}, {"port_xmit_data", 4294967300, false},
		{"port_rcv_errors", 65535, true}, {"link_error_recovery", 255, true}, {"link_error_recovery", 256, false},
		{"local_link_integrity_errors", 15, true}, {"out_of_buffer", 65535, false},
	} {
		if got := saturated(c.name, c.value); got != c.full {
			t.Errorf("%s at %d: %v", c.name, c.value, got)
		}
	}
	if _, ok := inBytes(1 << 62); ok {
		t.Error("bytes overflow")
	}
}

func FuzzIBFiles(f *testing.F) {
	for _, s := range []string{"4: ACTIVE", "400 Gb/sec (4X NDR)", "N/A (no PMA)", "0x10", "-1", "1e9 Gb/sec", ": x", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_ = stateName(s, nil)
		_ = physName(s)
		_ = layerName(s)
		if rate, ok := parseRate(s); ok && !(rate >= 0) {
			t.Errorf("rate %v of %q", rate, s)
		}
		_, _ = parseCounter(s)
	})
}
