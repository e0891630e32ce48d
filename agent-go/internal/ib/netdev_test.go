package ib

import (
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"heeler.dev/schemas/go/heelerv1"
)

// roce is a port of RoCE whose GID table names an interface.
func roce(netdev string) map[string]string {
	files := with(full(), "ports/1/link_layer", "Ethernet", "ports/1/lid", "0x0", "ports/1/sm_lid", "0x0")
	if netdev != "" {
		files["ports/1/gid_attrs/ndevs/0"] = netdev
	}
	return files
}

func TestAFlapBetweenTwoReadingsShows(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, roce("eth2"))
	s.interfaceOf(slot, "eth2", nil)
	c := New(Options{Sys: s.root})
	before := onePort(t, c)
	dir := function(slot) + "/net/eth2/"
	s.put(dir+"carrier_changes", "4")
	s.put(dir+"carrier_down_count", "2")
	s.put(dir+"speed", "200000") // it came back slower
	after := onePort(t, c)
	if before.State != "active" || after.State != "active" || *after.CarrierDownCount-*before.CarrierDownCount != 1 ||
		*before.SpeedMbps != 400000 || *after.SpeedMbps != 200000 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestWhichInterfaceIsThePortsOwn(t *testing.T) {
	s := newTree(t)
	// An adapter with two ports, and one with representors of its virtual functions.
	two := with(full(), "ports/2/state", "4: ACTIVE", "ports/2/link_layer", "InfiniBand")
	s.plug("mlx4_0", slot, two)
	s.interfaceOf(slot, "ib0", map[string]string{"type": "32", "dev_id": "0x0"})
	s.interfaceOf(slot, "ib1", map[string]string{"type": "32", "dev_port": "1", "dev_id": "0x1"})
	s.interfaceOf(slot, "ib0.8001", map[string]string{"type": "32"})
	s.plug("mlx5_0", slot2, roce(""))
	s.interfaceOf(slot2, "eth3_0", map[string]string{"phys_port_name": "pf0vf0"})
	s.interfaceOf(slot2, "eth4", map[string]string{"phys_port_name": "p1", "dev_port": "1"})
	want := map[string]string{"mlx4_01": "ib0", "mlx4_02": "ib1", "mlx5_01": "eth4"}
	for _, p := range well(t, New(Options{Sys: s.root})).Ports {
		if name := p.Device + string(rune('0'+p.Port)); p.Netdev != want[name] {
			t.Errorf("%s has %q, want %q", name, p.Netdev, want[name])
		}
	}
}

func TestAnInterfaceThatIsSwitchedOffHasNoCarrierToTell(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, roce("eth2"))
	s.interfaceOf(slot, "eth2", map[string]string{"operstate": "down"})
	carrier := filepath.Join(s.root, function(slot), "net/eth2/carrier")
	s.refuse(carrier, syscall.EINVAL)
	c := New(Options{Sys: s.root})
	if p := onePort(t, c); p.Carrier != nil || p.Operstate != "down" || p.SpeedMbps != nil || p.Absent["carrier"] != "invalid" {
		t.Errorf("got %+v", p)
	}
	s.must(os.Remove(carrier)) // switched on, it is read at once
	s.put(function(slot)+"/net/eth2/carrier", "1")
	if p := onePort(t, c); p.Carrier == nil || !*p.Carrier || *p.SpeedMbps != 400000 {
		t.Errorf("got %+v", p)
	}
	s.put(function(slot)+"/net/eth2/carrier", "0")
	s.put(function(slot)+"/net/eth2/speed", "-1")
	if p := onePort(t, c); *p.Carrier || p.SpeedMbps != nil {
		t.Errorf("got %+v", p)
	}
}

func TestASpeedThatIsNotKnownIsNoNumber(t *testing.T) {
	for _, speed := range []string{"-1", "4294967295", "0", ""} {
		s := newTree(t)
		s.plug("mlx5_0", slot, roce("eth2"))
		s.interfaceOf(slot, "eth2", map[string]string{"speed": speed})
		if p := onePort(t, New(Options{Sys: s.root})); p.SpeedMbps != nil || p.Absent["speed"] != "not_known" {
			t.Errorf("speed %q: %+v", speed, p)
		}
	}
}

func TestAnInterfaceThatIsRenamedIsFoundAgain(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, roce("eth2"))
	s.interfaceOf(slot, "eth2", nil)
	c := New(Options{Sys: s.root})
	onePort(t, c)
	s.must(os.Remove(filepath.Join(s.root, "class/net/eth2")))
	s.must(os.RemoveAll(filepath.Join(s.root, function(slot), "net/eth2")))
	s.put(function(slot)+"/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "ens2np0")
	s.interfaceOf(slot, "ens2np0", nil)
	if p := onePort(t, c); p.Absent["operstate"] != "not_present" {
		t.Errorf("got %+v", p)
	}
	if p := onePort(t, c); p.Netdev != "ens2np0" || p.Operstate != "up" {
		t.Errorf("got %+v", p)
	}
}

// bonded adds a bond of two interfaces.
func (s *tree) bonded(mode string) {
	for path, text := range map[string]string{
		"bonding/mode": mode, "bonding/mii_status": "up", "bonding/slaves": "eth2 eth3", "operstate": "up", "carrier": "1",
		"carrier_changes": "1", "carrier_down_count": "0", "speed": "800000",
	} {
		s.put("devices/virtual/net/bond0/"+path, text)
	}
	s.link("class/net/bond0", "devices/virtual/net/bond0")
	for name, address := range map[string]string{"eth2": slot, "eth3": slot2} {
		s.interfaceOf(address, name, map[string]string{
			"bonding_slave/mii_status": "up", "bonding_slave/link_failure_count": "0",
		})
		s.link(function(address)+"/net/"+name+"/master", "devices/virtual/net/bond0")
	}
	s.put(function(slot2)+"/net/eth3/bonding_slave/mii_status", "going back")
	s.put(function(slot2)+"/net/eth3/bonding_slave/link_failure_count", "17")
}

func TestABondWithItsMembers(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_bond_0", slot, roce("bond0"))
	s.bonded("802.3ad 4")
	m := well(t, New(Options{Sys: s.root}))
	if p := m.Ports[0]; p.Netdev != "eth2" || p.Bond != "bond0" || *p.CarrierDownCount != 1 {
		t.Errorf("got %+v", p)
	}
	want := []heelerv1.Bond{{Name: "bond0", Mode: "802.3ad", MIIStatus: "up", Slaves: []heelerv1.BondSlave{
		{Netdev: "eth2", MIIStatus: "up", LinkFailures: heelerv1.Some(uint64(0))},
		{Netdev: "eth3", MIIStatus: "going back", LinkFailures: heelerv1.Some(uint64(17))},
	}}}
	if !reflect.DeepEqual(m.Bonds, want) {
		t.Errorf("bonds %+v", m.Bonds)
	}
}

func TestABondWhoseMembersHidesTheInterface(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_bond_0", "0000:77:00.0", roce("bond0")) // no interface of its own
	s.bonded("active-backup 1")
	m := well(t, New(Options{Sys: s.root}))
	if p := m.Ports[0]; p.Netdev != "bond0" || p.Bond != "bond0" || *p.SpeedMbps != 800000 || m.Bonds[0].Mode != "active-backup" {
		t.Errorf("got %+v, %+v", p, m.Bonds)
	}
}

func TestABridgeIsNoBond(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, roce("eth2"))
	s.interfaceOf(slot, "eth2", nil)
	s.put("devices/virtual/net/br0/bridge/bridge_id", "x")
	s.link("class/net/br0", "devices/virtual/net/br0")
	s.link(function(slot)+"/net/eth2/master", "devices/virtual/net/br0")
	if m := well(t, New(Options{Sys: s.root})); m.Ports[0].Bond != "" || m.Bonds != nil {
		t.Errorf("got %+v", m)
	}
}
