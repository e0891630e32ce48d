// Package ib reads the InfiniBand and RoCE ports of the node from /sys/class/infiniband.
//
// It needs no privileges. A device without counters, or one that goes away while it is read, does not stop the others.
// A file that the driver refuses with "invalid argument" is left alone for a while, since with some firmware each try
// fills the kernel log.
package ib

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/pci"
	"heeler.dev/schemas/go/heelerv1"
)

// Options say what to read.
type Options struct {
	Sys string
	// OnInventory hears of the ports with each reading.
	OnInventory func([]heelerv1.Hca)
	Now         func() time.Time
}

// Collector implements [collector.Collector].
type Collector struct {
	Options
	class   string
	refused map[string]time.Time // files not to be read until then
	last    time.Time
	had     bool                        // there were ports before
	rates   map[string]*heelerv1.Number // while a port was active, by device and port
}

// refusedTime is how long a file that was refused is left alone.
const refusedTime = time.Hour

// New returns a collector.
func New(o Options) *Collector {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Collector{
		Options: o, class: filepath.Join(o.Sys, "class", "infiniband"), refused: map[string]time.Time{},
		rates: map[string]*heelerv1.Number{},
	}
}

// Collect implements [collector.Collector].
func (c *Collector) Collect(_ context.Context, _ time.Time, emit collector.Emit) error {
	devices, err := os.ReadDir(c.class)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m := &heelerv1.IbSample{Ports: []heelerv1.IbPort{}, Absent: map[string]string{}}
	var hcas []heelerv1.Hca
	for _, d := range devices {
		ports, inventory := c.device(d.Name(), m.Absent)
		m.Ports = append(m.Ports, ports...)
		hcas = append(hcas, inventory...)
	}
	if c.OnInventory != nil {
		c.OnInventory(hcas)
	}
	if len(devices) == 0 && !c.had {
		return fmt.Errorf("%w: no InfiniBand device", collector.ErrAbsent)
	}
	c.had = len(devices) > 0
	now := c.Now()
	if !c.last.IsZero() {
		m.WindowNS = heelerv1.Some(uint64(now.Sub(c.last)))
	}
	c.last = now
	return emit(m)
}

// device reads the ports of a device; what went wrong with the device as a whole goes to absent.
func (c *Collector) device(name string, absent map[string]string) ([]heelerv1.IbPort, []heelerv1.Hca) {
	dir := filepath.Join(c.class, name)
	entries, err := os.ReadDir(filepath.Join(dir, "ports"))
	if err != nil {
		absent[name] = reason(err)
		return nil, nil
	}
	guid := c.text(filepath.Join(dir, "node_guid"))
	var ports []heelerv1.IbPort
	var hcas []heelerv1.Hca
	for _, number := range portNumbers(entries) {
		p, err := c.port(dir, name, guid, number)
		if err != nil {
			absent[fmt.Sprintf("%s/%d", name, number)] = reason(err)
			continue
		}
		ports = append(ports, p)
		hcas = append(hcas, c.hca(dir, &p))
	}
	return ports, hcas
}

func portNumbers(entries []os.DirEntry) []uint64 {
	var numbers []uint64
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 16); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// port reads one port. It fails only when the port is gone.
func (c *Collector) port(device, name, guid string, number uint64) (heelerv1.IbPort, error) {
	dir := filepath.Join(device, "ports", strconv.FormatUint(number, 10))
	p := heelerv1.IbPort{Device: name, Port: number, GUID: guid, Absent: map[string]string{}}
	state, err := readLine(filepath.Join(dir, "state"))
	if gone(err) {
		return p, err
	}
	p.State = stateName(state, err)
	c.field(&p, dir, "phys_state", func(text string) bool {
		p.PhysState = physName(text)
		return true
	})
	c.field(&p, dir, "rate", func(text string) bool {
		rate, ok := parseRate(text)
		if ok {
			p.RateGbps = heelerv1.Some(heelerv1.Number(rate))
		}
		return ok
	})
	c.field(&p, dir, "link_layer", func(text string) bool {
		p.LinkLayer = layerName(text)
		return true
	})
	p.Netdev = c.text(filepath.Join(dir, "gid_attrs", "ndevs", "0"))
	c.counters(&p, filepath.Join(dir, "counters"), "counters")
	c.counters(&p, filepath.Join(dir, "hw_counters"), "hw_counters")
	return p, nil
}

// gone tells whether a port went away between listing and reading.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) ||
		errors.Is(err, syscall.EIO)
}

// field reads a file of the port; why it could not goes to absent.
func (c *Collector) field(p *heelerv1.IbPort, dir, name string, use func(string) bool) {
	text, err := c.read(filepath.Join(dir, name))
	if err == nil && !use(text) {
		err = errNotNumber
	}
	if err != nil {
		p.Absent[name] = reason(err)
	}
}

// counters reads a folder of counters.
func (c *Collector) counters(p *heelerv1.IbPort, dir, name string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		p.Absent[name] = reason(err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() && !notCounter(e.Name()) {
			c.counter(p, filepath.Join(dir, e.Name()), e.Name())
		}
	}
}

func (c *Collector) counter(p *heelerv1.IbPort, path, name string) {
	text, err := c.read(path)
	var value uint64
	if err == nil {
		value, err = parseCounter(text)
	}
	if err != nil {
		p.Absent[name] = reason(err)
		return
	}
	full := saturated(name, value)
	if inWords(name) {
		var ok bool
		if value, ok = inBytes(value); !ok {
			p.Absent[name], full = "overflow", true
			p.Saturated = append(p.Saturated, name)
			return
		}
	}
	if full {
		p.Saturated = append(p.Saturated, name)
	}
	if p.Counters == nil {
		p.Counters = map[string]uint64{}
	}
	p.Counters[name] = value
}

var errRefused = fmt.Errorf("refused before: %w", syscall.EINVAL)

// read reads a file unless it was refused not long ago.
func (c *Collector) read(path string) (string, error) {
	if until, ok := c.refused[path]; ok {
		if c.Now().Before(until) {
			return "", errRefused
		}
		delete(c.refused, path)
	}
	text, err := readLine(path)
	if errors.Is(err, syscall.EINVAL) {
		c.refused[path] = c.Now().Add(refusedTime)
	}
	return text, err
}

// text reads a file that may be missing.
func (c *Collector) text(path string) string {
	text, err := c.read(path)
	if err != nil {
		return ""
	}
	return text
}

// hca describes a port for the inventory.
func (c *Collector) hca(dir string, p *heelerv1.IbPort) heelerv1.Hca {
	h := heelerv1.Hca{
		Device: p.Device, Port: heelerv1.Some(p.Port), GUID: p.GUID, LinkLayer: string(p.LinkLayer),
		Firmware: c.text(filepath.Join(dir, "fw_ver")), Board: c.text(filepath.Join(dir, "board_id")),
	}
	if target, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil {
		h.PCI, _ = pci.Normalise(filepath.Base(target))
	}
	// A port that is down shows a low default; an inventory that changed with each flap would be none.
	key := fmt.Sprintf("%s/%d", p.GUID, p.Port)
	if p.State == "active" && p.RateGbps != nil {
		c.rates[key] = p.RateGbps
	}
	h.RateGbps = c.rates[key]
	return h
}

func stateName(text string, err error) heelerv1.IbState {
	names := [...]heelerv1.IbState{"nop", "down", "init", "armed", "active", "active_defer"}
	if n, ok := parseState(text); err == nil && ok && n < uint64(len(names)) {
		return names[n]
	}
	return "unknown"
}

func physName(text string) heelerv1.IbPhysState {
	names := [...]heelerv1.IbPhysState{
		"unknown", "sleep", "polling", "disabled", "training", "link_up", "link_error_recovery", "phy_test",
	}
	if n, ok := parseState(text); ok && n < uint64(len(names)) {
		return names[n]
	}
	return "unknown"
}

func layerName(text string) heelerv1.LinkLayer {
	switch layer := strings.ToLower(text); layer {
	case "infiniband", "ethernet":
		return heelerv1.LinkLayer(layer)
	default:
		return "unknown"
	}
}
