package ib

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/agent-go/internal/pci"
	"heeler.dev/schemas/go/heelerv1"
)

// device is one adapter function with what is known of it. After a reading that hangs it is touched by nobody else.
type device struct {
	name, dir, net string
	inode          uint64
	virtual        bool
	guard          collector.Guard

	reader hostfs.Reader
	ports  []*port
	// What hardly ever changes.
	guid, firmware, board, pci string
	readings                   uint64
	stale                      bool // read it anew at the next reading
}

// describeEvery is after how many readings what hardly ever changes is read again.
const describeEvery = 30

// reading is what one reading of a device gave.
type reading struct {
	ports           []heelerv1.IbPort
	absent          map[string]string
	refused         uint64
	firmware, board string
}

func newDevice(name, dir, sys string, inode uint64) *device {
	_, err := os.Lstat(filepath.Join(dir, "device", "physfn"))
	return &device{
		name: name, dir: dir, net: filepath.Join(sys, "class", "net"), inode: inode, virtual: err == nil, stale: true,
	}
}

func (d *device) read(now time.Time) reading {
	r := reading{absent: map[string]string{}}
	if d.stale || d.readings%describeEvery == 0 {
		d.stale = false
		if err := d.describe(); err != nil {
			r.absent[d.name] = reason(err)
			d.stale = true
			return r
		}
	}
	d.readings++
	if len(d.ports) == 0 {
		r.absent[d.name] = "no_ports"
		d.stale = true
	}
	for _, p := range d.ports {
		m, refused, err := p.read(d, now)
		if err != nil {
			r.absent[d.name+"/"+strconv.FormatUint(p.number, 10)] = reason(err)
			d.stale = true
			continue
		}
		r.ports = append(r.ports, m)
		r.refused += refused
	}
	r.firmware, r.board = d.firmware, d.board
	return r
}

// describe reads what hardly ever changes, and which ports and files there are.
func (d *device) describe() error {
	dir, err := os.Open(filepath.Join(d.dir, "ports"))
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close()
	if err != nil {
		return err
	}
	guid, _ := d.reader.Line(filepath.Join(d.dir, "node_guid"))
	d.guid = parseGUID(guid)
	d.firmware, d.board = d.text("fw_ver"), d.text("board_id")
	d.pci = d.address()
	known := map[uint64]*port{}
	for _, p := range d.ports {
		known[p.number] = p
	}
	d.ports = nil
	for _, n := range sortedNumbers(names, parsePort) {
		p := known[n]
		if p == nil {
			p = &port{number: n, dir: filepath.Join(d.dir, "ports", strconv.FormatUint(n, 10))}
		}
		d.ports = append(d.ports, p)
	}
	for _, p := range d.ports {
		p.describe(d, len(d.ports) == 1)
	}
	return nil
}

// text reads a file that may be missing.
func (d *device) text(name string) string {
	text, err := d.reader.Line(filepath.Join(d.dir, name))
	if err != nil {
		return ""
	}
	return string(text)
}

// address is where the device sits: its own address, or, for a sub-function, that of the adapter.
func (d *device) address() string {
	target, err := filepath.EvalSymlinks(filepath.Join(d.dir, "device"))
	if err != nil {
		return ""
	}
	parts := strings.Split(target, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if address, ok := pci.Normalise(parts[i]); ok {
			return address
		}
	}
	return ""
}

// port is one port with what is known of it.
type port struct {
	number     uint64
	dir        string
	layer      heelerv1.LinkLayer
	lid, smLID *uint64
	absent     map[string]string // of the description
	counters   counters
	netdev     netdev
}

func (p *port) describe(d *device, only bool) {
	p.absent = map[string]string{}
	p.layer = ""
	if text, err := d.reader.Line(filepath.Join(p.dir, "link_layer")); err != nil {
		p.absent["link_layer"] = reason(err)
	} else {
		p.layer = layerName(text)
	}
	p.lid, p.smLID = nil, nil
	if p.layer != "ethernet" { // which has no LIDs, and shows zeros
		p.lid, p.smLID = p.id(d, "lid"), p.id(d, "sm_lid")
	}
	device := ""
	if only {
		device = d.dir
	}
	p.counters.list(p.dir, device)
	p.netdev.find(d, p, only)
}

func (p *port) id(d *device, name string) *uint64 {
	text, err := d.reader.Line(filepath.Join(p.dir, name))
	if err != nil {
		p.absent[name] = reason(err)
		return nil
	}
	n, ok := parseID(text)
	if !ok {
		p.absent[name] = reason(errNotNumber)
		return nil
	}
	return &n
}

// read reads the port. It fails only when the port is gone.
func (p *port) read(d *device, now time.Time) (heelerv1.IbPort, uint64, error) {
	m := heelerv1.IbPort{
		Device: d.name, Port: p.number, GUID: d.guid, PCI: d.pci, LinkLayer: p.layer, LID: p.lid, SMLID: p.smLID,
		State: "unknown", Absent: make(map[string]string, len(p.absent)+2),
	}
	for name, why := range p.absent {
		m.Absent[name] = why
	}
	text, err := d.reader.Line(filepath.Join(p.dir, "state"))
	switch {
	case err == nil:
		m.State = stateName(text)
	case gone(err):
		return m, 0, err
	default:
		m.Absent["state"] = reason(err)
	}
	if text, err := d.reader.Line(filepath.Join(p.dir, "phys_state")); err != nil {
		m.Absent["phys_state"] = reason(err)
	} else {
		m.PhysState = physName(text)
	}
	p.rate(d, &m)
	refused, err := p.counters.read(&m, &d.reader, now)
	if err != nil {
		return m, refused, err
	}
	if !p.netdev.read(d, &m) {
		d.stale = true
	}
	return m, refused, nil
}

// rate reads the rate of a port that is active. One that is down shows the lowest that there is.
func (p *port) rate(d *device, m *heelerv1.IbPort) {
	if m.State != "active" && m.State != "active_defer" {
		m.Absent["rate"] = "not_active"
		return
	}
	text, err := d.reader.Line(filepath.Join(p.dir, "rate"))
	if err != nil {
		m.Absent["rate"] = reason(err)
		return
	}
	rate, ok := parseRate(text)
	if !ok {
		m.Absent["rate"] = reason(errNotNumber)
		return
	}
	m.RateGbps = heelerv1.Some(heelerv1.Number(rate))
}
