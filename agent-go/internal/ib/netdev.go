package ib

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"heeler.dev/schemas/go/heelerv1"
)

// netdev is the network interface of a port: the Ethernet one of RoCE, or that of IP over InfiniBand.
type netdev struct {
	name, dir string
	bond      string
	changes   uint64 // when the speed was read
	speed     *uint64
	slow      bool // the speed is to be read anew
	seen      bool
}

// find finds the interface. The GID table names it for RoCE, though with a bond it names the bond. For InfiniBand there
// is none in the table, so the interfaces of the same PCI function are looked through.
func (n *netdev) find(d *device, p *port, only bool) {
	name := ""
	if text, err := d.reader.Line(filepath.Join(p.dir, "gid_attrs", "ndevs", "0")); err == nil {
		name = string(text)
	}
	if name == "" || isBond(filepath.Join(d.net, name)) {
		if own := d.netdevOf(p, only); own != "" {
			name = own
		}
	}
	*n = netdev{name: name, slow: true}
	if name == "" || name != filepath.Base(name) {
		*n = netdev{}
		return
	}
	n.dir = filepath.Join(d.net, name)
	if isBond(n.dir) {
		n.bond = name
	} else if master, err := os.Readlink(filepath.Join(n.dir, "master")); err == nil {
		if master = filepath.Base(master); isBond(filepath.Join(d.net, master)) {
			n.bond = master
		}
	}
}

func isBond(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "bonding"))
	return err == nil && info.IsDir()
}

// representor is the name of a port that stands for a virtual function or sub-function.
var representor = regexp.MustCompile(`^(c\d+)?pf\d+(vf|sf)\d+$`)

// netdevOf finds the interface of a port among those of its PCI function.
func (d *device) netdevOf(p *port, only bool) string {
	dir := filepath.Join(d.dir, "device", "net")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	kind := "1"
	if p.layer == "infiniband" {
		kind = "32"
	}
	var found []string
	for _, e := range entries {
		one := filepath.Join(dir, e.Name())
		if d.file(one, "type") != kind || strings.Contains(e.Name(), ".") || representor.MatchString(d.file(one, "phys_port_name")) {
			continue
		}
		if p.number == d.portOf(one) {
			return e.Name()
		}
		found = append(found, e.Name())
	}
	if only && len(found) == 1 {
		return found[0]
	}
	return ""
}

// portOf is the number of the port that an interface is of: counted from zero in dev_port, and in dev_id before that.
func (d *device) portOf(dir string) uint64 {
	port, _ := parseID([]byte(d.file(dir, "dev_port")))
	if port == 0 {
		port, _ = parseID([]byte(d.file(dir, "dev_id")))
	}
	return port + 1
}

func (d *device) file(dir, name string) string {
	text, err := d.reader.Line(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return string(text)
}

// read reads the interface into the port; it says no when the interface is no longer there.
func (n *netdev) read(d *device, m *heelerv1.IbPort) bool {
	m.Netdev, m.Bond = n.name, n.bond
	if n.dir == "" {
		return true
	}
	text, err := d.reader.Line(filepath.Join(n.dir, "operstate"))
	if err != nil {
		m.Absent["operstate"] = reason(err)
		// One that was never there is of another network namespace; one that was has another name now.
		return !n.seen || !gone(err)
	}
	n.seen = true
	m.Operstate = string(text)
	m.CarrierChanges = n.number(d, m, "carrier_changes")
	m.CarrierDownCount = n.number(d, m, "carrier_down_count")
	// It is refused, and not for good, while the interface is switched off.
	if text, err := d.reader.Line(filepath.Join(n.dir, "carrier")); err != nil {
		m.Absent["carrier"] = reason(err)
	} else if string(text) == "0" || string(text) == "1" {
		m.Carrier = heelerv1.Some(string(text) == "1")
	} else {
		m.Absent["carrier"] = reason(errNotNumber)
	}
	n.readSpeed(d, m)
	return true
}

func (n *netdev) number(d *device, m *heelerv1.IbPort, name string) *uint64 {
	text, err := d.reader.Line(filepath.Join(n.dir, name))
	if err == nil {
		var value uint64
		if value, err = parseCounter(text); err == nil {
			return &value
		}
	}
	m.Absent[name] = reason(err)
	return nil
}

// readSpeed reads the speed when the carrier came, and now and then: the kernel asks the driver each time.
func (n *netdev) readSpeed(d *device, m *heelerv1.IbPort) {
	if m.Carrier == nil || !*m.Carrier {
		n.slow = true
		return
	}
	if m.CarrierChanges != nil && *m.CarrierChanges != n.changes {
		n.changes, n.slow = *m.CarrierChanges, true
	}
	if n.slow {
		n.slow = false
		n.speed = nil
		// -1 means unknown; IP over InfiniBand has none and is refused.
		if text, err := d.reader.Line(filepath.Join(n.dir, "speed")); err == nil {
			if v, err := strconv.ParseUint(string(text), 10, 64); err == nil && v > 0 && v < math.MaxUint32 {
				n.speed = &v
			}
		}
	}
	if m.SpeedMbps = n.speed; n.speed == nil {
		m.Absent["speed"] = "not_known"
	}
}
