package ib

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/schemas/go/heelerv1"
)

func TestAPortInFull(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	s.interfaceOf(slot, "ib0", map[string]string{"type": "32"})
	var hcas []heelerv1.Hca
	c := New(Options{Sys: s.root, OnInventory: func(h []heelerv1.Hca) { hcas = h }})
	p := onePort(t, c)
	if p.State != "active" || p.PhysState != "link_up" || *p.RateGbps != 400 || p.LinkLayer != "infiniband" ||
		p.GUID != "b83f:d203:0012:3456" || p.PCI != "0000:3b:00" || *p.LID != 0x1a || *p.SMLID != 1 {
		t.Errorf("got %+v", p)
	}
	want := map[string]uint64{
		"port_xmit_data": 4000, "port_xmit_packets": 7, "link_downed": 3, "symbol_error": 0, "port_xmit_wait": 12,
		"VL15_dropped": 0, "unicast_xmit_packets": 7, "out_of_sequence": 18446744073709551614, "np_cnp_sent": 5,
		"rx_write_requests": 4294967295, "local_ack_time_err": 65535,
	}
	if !maps.Equal(p.Counters, want) {
		t.Errorf("counters %v", p.Counters)
	}
	if len(p.Saturated) != 0 || len(p.Absent) != 0 {
		t.Errorf("saturated %v, absent %v", p.Saturated, p.Absent)
	}
	if p.Netdev != "ib0" || p.Operstate != "up" || !*p.Carrier || *p.CarrierChanges != 2 || *p.CarrierDownCount != 1 ||
		*p.SpeedMbps != 400000 || p.Bond != "" {
		t.Errorf("interface %+v", p)
	}
	if len(hcas) != 1 || hcas[0].Firmware != "28.39.1002" || hcas[0].Board != "MT_0000000838" || *hcas[0].RateGbps != 400 ||
		hcas[0].PCI != "0000:3b:00" {
		t.Errorf("inventory %+v", hcas)
	}
}

func TestADeviceThatLacksSomethingStopsNobody(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	s.plug("irdma0", "0000:5e:00.0", map[string]string{"ports/1/state": "1: DOWN", "ports/1/link_layer": "Ethernet"})
	s.plug("hfi1_0", "0000:5f:00.0", map[string]string{
		"node_guid": "0011:7501:0101:2345", "board_id": "Intel OPA", "hw_rev": "11",
		"ports/1/state": "4: ACTIVE", "ports/1/phys_state": "5: LinkUp", "ports/1/link_layer": "InfiniBand",
		"ports/1/rate": "100 Gb/sec (4X EDR)", "ports/1/counters/port_xmit_data": "5",
		"hw_counters/RcvHdrOvr": "9", "hw_counters/lifespan": "10",
	})
	s.plug("nothing_0", "0000:60:00.0", map[string]string{"node_guid": "0000:0000:0000:0000"})
	s.plug("portless_0", "0000:61:00.0", map[string]string{"ports/README": "none"})
	m := well(t, New(Options{Sys: s.root}))
	if len(m.Ports) != 3 || m.Absent["nothing_0"] != "not_present" || m.Absent["portless_0"] != "no_ports" {
		t.Fatalf("%d ports, absent %v", len(m.Ports), m.Absent)
	}
	hfi, irdma, mlx := &m.Ports[0], &m.Ports[1], &m.Ports[2]
	if mlx.Device != "mlx5_0" || len(mlx.Counters) < 10 {
		t.Errorf("got %+v", mlx)
	}
	if irdma.Device != "irdma0" || irdma.State != "down" || irdma.RateGbps != nil || irdma.GUID != "" {
		t.Errorf("got %+v", irdma)
	}
	for name, why := range map[string]string{
		"counters": "not_present", "hw_counters": "not_present", "phys_state": "not_present", "rate": "not_active",
	} {
		if irdma.Absent[name] != why {
			t.Errorf("%s: %q", name, irdma.Absent[name])
		}
	}
	if irdma.LID != nil || irdma.Absent["lid"] != "" {
		t.Errorf("Ethernet has a LID: %v, %v", irdma.LID, irdma.Absent)
	}
	// Counters of the device are those of its only port.
	if hfi.Device != "hfi1_0" || hfi.Counters["port_xmit_data"] != 20 || hfi.Counters["RcvHdrOvr"] != 9 || *hfi.RateGbps != 100 {
		t.Errorf("got %+v", hfi)
	}
}

func TestTrafficIsInBytesWhateverTheLanes(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, with(full(), "ports/1/rate", "200 Gb/sec (2X NDR)"))
	c := New(Options{Sys: s.root})
	before := onePort(t, c)
	counters := function(slot) + "/infiniband/mlx5_0/ports/1/counters/"
	s.put(counters+"port_xmit_data", "251000")
	s.put(counters+"port_xmit_packets", "107")
	after := onePort(t, c)
	if got := after.Counters["port_xmit_data"] - before.Counters["port_xmit_data"]; got != 1_000_000 {
		t.Errorf("%d bytes", got)
	}
	if got := after.Counters["port_xmit_packets"] - before.Counters["port_xmit_packets"]; got != 100 {
		t.Errorf("%d packets", got)
	}
}

func TestCountersAtTheTopOfTheirWidth(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, with(full(),
		"ports/1/counters/unicast_xmit_packets", "", // no sign of the extended set
		"ports/1/counters/port_xmit_data", "4294967295", "ports/1/counters/symbol_error", "65535",
		"ports/1/counters/link_downed", "255", "ports/1/counters/excessive_buffer_overrun_errors", "15",
		"ports/1/counters/port_xmit_wait", "4294967295", "ports/1/counters/port_rcv_errors", "65534",
	))
	c := New(Options{Sys: s.root})
	for range 2 {
		p := onePort(t, c)
		slices.Sort(p.Saturated)
		want := []string{
			"excessive_buffer_overrun_errors", "link_downed", "port_xmit_data", "port_xmit_wait", "symbol_error",
		}
		if !slices.Equal(p.Saturated, want) {
			t.Errorf("saturated %v", p.Saturated)
		}
	}
}

func TestAWideCounterThatPassesTheClassicTopIsNotSaturated(t *testing.T) {
	for name, sign := range map[string]string{"the extended set": "7", "nothing known": ""} {
		s := newTree(t)
		s.plug("mlx5_0", slot, with(full(), "ports/1/counters/unicast_xmit_packets", sign))
		c := New(Options{Sys: s.root})
		path := function(slot) + "/infiniband/mlx5_0/ports/1/counters/port_xmit_data"
		var before uint64
		for _, value := range []string{"4294967290", "4294967300"} {
			s.put(path, value)
			p := onePort(t, c)
			if len(p.Saturated) != 0 {
				t.Errorf("%s: at %s: saturated %v", name, value, p.Saturated)
			}
			if now := p.Counters["port_xmit_data"]; before != 0 && now-before != 4*10 {
				t.Errorf("%s: grew by %d", name, now-before)
			}
			before = p.Counters["port_xmit_data"]
		}
		// Once known to be wide, it may stand where it likes, and so may the others of the set.
		s.put(path, "4294967295")
		s.put(function(slot)+"/infiniband/mlx5_0/ports/1/counters/port_xmit_packets", "4294967295")
		if p := onePort(t, c); len(p.Saturated) != 0 {
			t.Errorf("%s: then saturated %v", name, p.Saturated)
		}
	}
}

func TestACounterOfTheExtendedSetIsFullOnlyIfItStaysAtTheClassicTop(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	c := New(Options{Sys: s.root})
	dir := function(slot) + "/infiniband/mlx5_0/ports/1/counters/"
	for _, step := range []struct {
		data, wait string
		want       []string
	}{
		{"4294967290", "4294967290", nil},
		{"4294967295", "4294967295", []string{"port_xmit_wait"}}, // which is no part of the set
		{"4294967300", "4294967295", []string{"port_xmit_wait"}}, // it passed
		{"4294967295", "0", nil},
	} {
		s.put(dir+"port_xmit_data", step.data)
		s.put(dir+"port_xmit_wait", step.wait)
		if p := onePort(t, c); !slices.Equal(p.Saturated, step.want) {
			t.Errorf("at %+v: saturated %v", step, p.Saturated)
		}
	}
	c = New(Options{Sys: s.root}) // firmware that stops there all the same
	if p := onePort(t, c); p.Saturated != nil {
		t.Errorf("at first %v", p.Saturated)
	}
	if p := onePort(t, c); !slices.Equal(p.Saturated, []string{"port_xmit_data"}) {
		t.Errorf("then %v", p.Saturated)
	}
}

func TestACounterThatMovesOnFromTheClassicTopWasNotSaturated(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, with(full(), "ports/1/counters/link_downed", "255"))
	c := New(Options{Sys: s.root})
	if p := onePort(t, c); !slices.Equal(p.Saturated, []string{"link_downed"}) {
		t.Errorf("saturated %v", p.Saturated)
	}
	for _, value := range []string{"256", "255"} { // past it, then reset and at that value again
		s.put(function(slot)+"/infiniband/mlx5_0/ports/1/counters/link_downed", value)
		if p := onePort(t, c); len(p.Saturated) != 0 {
			t.Errorf("at %s: saturated %v", value, p.Saturated)
		}
	}
}

func TestBytesThatDoNotFitAreNotKnown(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, with(full(), "ports/1/counters/port_xmit_data", "4611686018427387904"))
	p := onePort(t, New(Options{Sys: s.root}))
	if _, ok := p.Counters["port_xmit_data"]; ok || p.Absent["port_xmit_data"] != "overflow" ||
		!slices.Equal(p.Saturated, []string{"port_xmit_data"}) {
		t.Errorf("got %+v", p)
	}
}

func TestSparePortsAreStatedAsTheyAre(t *testing.T) {
	s := newTree(t)
	for i := range 18 {
		files := with(full(), "node_guid", "b83f:d203:0012:34"+string(rune('a'+i/10))+string(rune('0'+i%10)))
		if i >= 8 {
			states := [...][2]string{{"1: DOWN", "2: Polling"}, {"1: DOWN", "3: Disabled"}}
			with(files, "ports/1/state", states[i%2][0], "ports/1/phys_state", states[i%2][1],
				"ports/1/rate", "10 Gb/sec (4X SDR)")
		}
		s.plug("mlx5_"+string(rune('a'+i)), "0000:3b:00."+string(rune('a'+i)), files)
	}
	m := well(t, New(Options{Sys: s.root}))
	states := map[string]int{}
	for i := range m.Ports {
		p := &m.Ports[i]
		states[string(p.State)+" "+string(p.PhysState)]++
		if (p.RateGbps != nil) != (p.State == "active") {
			t.Errorf("%s is %s and has rate %v", p.Device, p.State, p.RateGbps)
		}
	}
	if !maps.Equal(states, map[string]int{"active link_up": 8, "down polling": 5, "down disabled": 5}) {
		t.Errorf("got %v", states)
	}
}

func TestNoCounterIsMadeUp(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, map[string]string{"ports/1/state": "4: ACTIVE", "ports/1/counters/symbol_error": "x"})
	p := onePort(t, New(Options{Sys: s.root}))
	if len(p.Counters) != 0 || p.Absent["symbol_error"] != "not_a_number" || p.PhysState != "" {
		t.Errorf("got %+v", p)
	}
}

func TestNoDeviceIsAbsentNotWell(t *testing.T) {
	empty := newTree(t)
	empty.must(makeDir(empty, "class/infiniband"))
	for _, sys := range []string{t.TempDir(), empty.root} {
		if m, err := collect(t, New(Options{Sys: sys})); m != nil || !errors.Is(err, collector.ErrAbsent) {
			t.Errorf("got %+v, %v", m, err)
		}
	}
}

func TestTheRateOfADownPortIsNotItsOwn(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	var hcas []heelerv1.Hca
	c := New(Options{Sys: s.root, OnInventory: func(h []heelerv1.Hca) { hcas = h }})
	onePort(t, c)
	dir := function(slot) + "/infiniband/mlx5_0/ports/1/"
	s.put(dir+"state", "1: DOWN")
	s.put(dir+"rate", "10 Gb/sec (4X SDR)")
	if p := onePort(t, c); p.RateGbps != nil || p.Absent["rate"] != "not_active" {
		t.Errorf("got %+v", p)
	}
	if *hcas[0].RateGbps != 400 {
		t.Errorf("the inventory changes with a flap: %+v", hcas)
	}
	fresh := New(Options{Sys: s.root, OnInventory: func(h []heelerv1.Hca) { hcas = h }})
	if onePort(t, fresh); hcas[0].RateGbps != nil {
		t.Errorf("a rate from nowhere: %+v", hcas)
	}
}

func TestGUIDsThatTellNothingApart(t *testing.T) {
	s := newTree(t)
	for i, address := range []string{"0000:3b:00.0", "0000:5b:00.0"} { // as EFA has them
		s.plug("efa_"+string(rune('0'+i)), address, with(full(), "node_guid", "0000:0000:0000:0000"))
		s.plug("plane_"+string(rune('0'+i)), address, full()) // planes of one adapter
	}
	for _, p := range well(t, New(Options{Sys: s.root})).Ports {
		if p.GUID != "" {
			t.Errorf("%s has GUID %s", p.Device, p.GUID)
		}
		if planes := p.Device[0] == 'p'; (p.Absent["guid"] == "not_unique") != planes {
			t.Errorf("%s: absent %v", p.Device, p.Absent)
		}
	}
}

func TestARenamedDeviceKeepsItsGUID(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	c := New(Options{Sys: s.root})
	before := onePort(t, c)
	s.unplug("mlx5_0", slot)
	s.plug("ibp59s0", slot, full())
	if after := onePort(t, c); after.Device != "ibp59s0" || after.GUID != before.GUID || after.Port != before.Port {
		t.Errorf("got %+v", after)
	}
}

func TestVirtualFunctionsAreLeftOutAndCounted(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	for i := range 16 {
		address := "0000:3b:01." + string(rune('a'+i))
		s.plug("vf_"+string(rune('a'+i)), address, with(full(), "node_guid", "0000:0000:0000:0000"))
		s.link(function(address)+"/physfn", function(slot))
	}
	c := New(Options{Sys: s.root})
	if m := well(t, c); len(m.Ports) != 1 || len(m.Absent) != 0 || c.Counts()["virtual_functions_left_out"] != 16 {
		t.Errorf("%d ports, absent %v, counts %v", len(m.Ports), m.Absent, c.Counts())
	}
	if m := well(t, New(Options{Sys: s.root, VirtualFunctions: true})); len(m.Ports) != 17 {
		t.Errorf("%d ports", len(m.Ports))
	}
}

func TestASampleIsBounded(t *testing.T) {
	s := newTree(t)
	for i := range mostPorts + 3 {
		name := "d" + string(rune('a'+i/26)) + string(rune('a'+i%26))
		s.plug(name, slot, map[string]string{"ports/1/state": "4: ACTIVE"})
	}
	m := well(t, New(Options{Sys: s.root}))
	if len(m.Ports) != mostPorts || len(m.Absent) != 3 {
		t.Errorf("%d ports, absent %v", len(m.Ports), m.Absent)
	}
}

func TestWindows(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	now := time.Unix(1000, 0)
	c := New(Options{Sys: s.root, Now: func() time.Time { return now }})
	if m := well(t, c); m.WindowNS != nil {
		t.Error("a window before the first reading")
	}
	now = now.Add(10 * time.Second)
	if m := well(t, c); *m.WindowNS != uint64(10*time.Second) {
		t.Errorf("window %d", *m.WindowNS)
	}
}

func FuzzIBFiles(f *testing.F) {
	for _, s := range []string{
		"4: ACTIVE", "400 Gb/sec (4X NDR)", "N/A (no PMA)", "0x10", "-1", "1e9 Gb/sec", ": x", "", "0000:0000:0000:0000",
		"NaN Gb/sec", "18446744073709551615", "5: LinkUp", "InfiniBand",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, s []byte) {
		if stateName(s) == "" || physName(s) == "" || layerName(s) == "" {
			t.Error("no name")
		}
		if rate, ok := parseRate(s); ok && !(rate > 0 && rate <= 1e6) {
			t.Errorf("rate %v of %q", rate, s)
		}
		if n, err := parseCounter(s); err != nil && n != 0 {
			t.Errorf("half a result: %d, %v", n, err)
		}
		_, _ = parseID(s)
		_ = parseGUID(s)
	})
}
