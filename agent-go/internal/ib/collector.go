// Package ib reads the InfiniBand and RoCE ports of the node from /sys/class/infiniband, with their netdevs and bonds.
//
// It needs no privileges. A reading opens about 60 small files for each port, half a millisecond of CPU time; what
// hardly ever changes (firmware, LIDs, which files there are) is read every 30th time. A device without counters, or one
// that goes away while it is read, does not stop the others, and neither does one whose files never return: each is read
// under a guard of its own. Virtual functions are left out unless they are asked for, and counted.
//
// A file that is refused with "invalid argument", or says that there is no PMA, is left alone for hours, since with some
// firmware each try fills the kernel log. That is forgotten when the device is plugged in again.
package ib

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/schemas/go/heelerv1"
)

// Options say what to read.
type Options struct {
	Sys string
	// VirtualFunctions says that the virtual functions of this node's adapters are read too.
	VirtualFunctions bool
	// Patience is how long a device may take to be read before it is called hung; 2 s if zero.
	Patience time.Duration
	// OnInventory hears of the ports with each reading.
	OnInventory func([]heelerv1.Hca)
	Now         func() time.Time
}

// Collector implements [collector.Collector].
type Collector struct {
	Options
	class   string
	devices map[string]*device
	bonds   bonds
	last    time.Time
	had     bool                        // there were ports before
	rates   map[string]*heelerv1.Number // while a port was active, by GUID and port

	virtual, refused, hung atomic.Uint64
}

const (
	defaultPatience = 2 * time.Second
	mostPorts       = 256 // of a sample: a node has 16, or 128 with virtual functions
)

// New returns a collector.
func New(o Options) *Collector {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Patience <= 0 {
		o.Patience = defaultPatience
	}
	return &Collector{
		Options: o, class: filepath.Join(o.Sys, "class", "infiniband"), devices: map[string]*device{},
		bonds: bonds{class: filepath.Join(o.Sys, "class", "net")}, rates: map[string]*heelerv1.Number{},
	}
}

// Counts implements [collector.Counter].
func (c *Collector) Counts() map[string]uint64 {
	return map[string]uint64{
		"virtual_functions_left_out": c.virtual.Load(), "files_refused": c.refused.Load(), "devices_hung": c.hung.Load(),
	}
}

// Collect implements [collector.Collector].
func (c *Collector) Collect(_ context.Context, _ time.Time, emit collector.Emit) error {
	entries, err := os.ReadDir(c.class)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now := c.Now()
	m := &heelerv1.IbSample{Ports: []heelerv1.IbPort{}, Absent: map[string]string{}}
	hcas, hung := c.read(entries, now, m)
	if c.OnInventory != nil {
		c.OnInventory(hcas)
	}
	if len(entries) == 0 && !c.had {
		return fmt.Errorf("%w: no InfiniBand device", collector.ErrAbsent)
	}
	c.had = len(entries) > 0
	onlyOwnGUIDs(m.Ports)
	if m.Bonds, err = c.bonds.of(m.Ports, c.Patience); err != nil {
		m.Absent["bonds"] = "hung"
		hung = errors.Join(hung, fmt.Errorf("%w: bonds", collector.ErrHung))
	}
	if !c.last.IsZero() {
		m.WindowNS = heelerv1.Some(uint64(now.Sub(c.last)))
	}
	c.last = now
	return errors.Join(hung, emit(m))
}

// read reads all devices into the sample.
func (c *Collector) read(entries []os.DirEntry, now time.Time, m *heelerv1.IbSample) ([]heelerv1.Hca, error) {
	var hcas []heelerv1.Hca
	var hung error
	var virtual, refused, stuck uint64
	listed := make(map[string]bool, len(entries))
	for _, e := range entries {
		name := e.Name()
		listed[name] = true
		d, err := c.device(name)
		if err != nil {
			m.Absent[name] = reason(err)
			continue
		}
		if d.virtual && !c.VirtualFunctions {
			virtual++
			continue
		}
		if len(m.Ports) >= mostPorts {
			m.Absent[name] = "too_many_ports"
			continue
		}
		r, err := collector.Guarded(&d.guard, c.Patience, func() reading { return d.read(now) })
		if err != nil {
			m.Absent[name] = "hung"
			stuck++
			hung = errors.Join(hung, fmt.Errorf("%w: %s: %w", collector.ErrHung, name, err))
			continue
		}
		for what, why := range r.absent {
			m.Absent[what] = why
		}
		m.Ports = append(m.Ports, r.ports...)
		refused += r.refused
		for i := range r.ports {
			hcas = append(hcas, c.hca(&r.ports[i], &r))
		}
	}
	for name := range c.devices {
		if !listed[name] {
			delete(c.devices, name)
		}
	}
	c.virtual.Store(virtual)
	c.refused.Store(refused)
	c.hung.Store(stuck)
	return hcas, hung
}

// device is what is known of a device of that name, anew if it is not the one that was there before: a device that was
// plugged in again has another inode in sysfs.
func (c *Collector) device(name string) (*device, error) {
	dir := filepath.Join(c.class, name)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		delete(c.devices, name)
		return nil, err
	}
	d := c.devices[name]
	if d == nil || d.inode != st.Ino {
		d = newDevice(name, dir, c.Sys, st.Ino)
		c.devices[name] = d
	}
	return d, nil
}

// onlyOwnGUIDs takes away GUIDs that do not tell ports apart: all zero, or one for several devices, as planes of one
// adapter have it. Readers then go by the name of the device.
func onlyOwnGUIDs(ports []heelerv1.IbPort) {
	type key struct {
		guid string
		port uint64
	}
	count := make(map[key]int, len(ports))
	for i := range ports {
		count[key{ports[i].GUID, ports[i].Port}]++
	}
	for i := range ports {
		if p := &ports[i]; p.GUID != "" && count[key{p.GUID, p.Port}] > 1 {
			p.GUID = ""
			p.Absent["guid"] = "not_unique"
		}
	}
}

// mostRates bounds what is remembered of ports that come and go.
const mostRates = 4 * mostPorts

// hca describes a port for the inventory.
func (c *Collector) hca(p *heelerv1.IbPort, r *reading) heelerv1.Hca {
	h := heelerv1.Hca{
		Device: p.Device, Port: heelerv1.Some(p.Port), GUID: p.GUID, LinkLayer: string(p.LinkLayer),
		Firmware: r.firmware, Board: r.board, PCI: p.PCI,
	}
	// A port that is down shows a low default; an inventory that changed with each flap would be none.
	key := fmt.Sprintf("%s/%s/%d", p.GUID, p.Device, p.Port)
	if p.RateGbps != nil {
		if len(c.rates) >= mostRates {
			clear(c.rates)
		}
		c.rates[key] = p.RateGbps
	}
	h.RateGbps = c.rates[key]
	return h
}

func sortedNumbers(names []string, parse func(string) (uint64, bool)) []uint64 {
	var numbers []uint64
	for _, name := range names {
		if n, ok := parse(name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}
