package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// mostPlaces bounds what a driver may say of the number of MIG devices.
const mostPlaces = 64

// partReading is what a visit to a GPU gave of one of its MIG devices.
type partReading struct {
	device heelerv1.MIGDevice
	values values
	procs  processList
}

// partMeter reads one MIG device, under the guard of its GPU.
type partMeter struct {
	device heelerv1.MIGDevice
	dev    nvml.Device
	fast   []*reader
	slow   []*reader
	perf   perfMonitor
	alone  bool // in its GPU instance
}

func newPartMeter(f partFound, parent nvml.Device, uuid string, profiling *atomic.Int32, claims *claims) *partMeter {
	p := &partMeter{
		device: f.device, dev: f.dev,
		fast: []*reader{{name: "memory of a MIG device", columns: memoryColumns, read: readMemory}},
		slow: append(everyECC(), whole("BAR1 memory of a MIG device", bar1UsedBytes, nvml.Device.BAR1UsedBytes)),
		perf: perfMonitor{allowed: profiling, uuid: uuid, claims: claims, shares: true},
	}
	p.perf.open = func() (nvml.Profiler, nvml.Status) {
		if f.device.GI == nil {
			return nil, nvml.NotFound
		}
		return parent.InstanceProfiler(*f.device.GI)
	}
	return p
}

// partFound is a MIG device that the library shows now.
type partFound struct {
	device heelerv1.MIGDevice
	dev    nvml.Device
}

// listParts asks a GPU for its MIG devices. It says no where that could not be learned, which is not the same as none.
func listParts(d nvml.Device, known func(uuid string) *heelerv1.MIGDevice) ([]partFound, bool) {
	places, s := d.MIGPlaces()
	if s != nvml.OK {
		return nil, s.Lacking()
	}
	var all []partFound
	for place := range min(places, mostPlaces) {
		dev, s := d.MIGDevice(place)
		switch s {
		case nvml.OK:
		case nvml.NotFound, nvml.InvalidArgument, nvml.NotSupported:
			continue
		default:
			return nil, false
		}
		uuid, s := dev.UUID()
		if s != nvml.OK || uuid == "" {
			return nil, false
		}
		if device := known(uuid); device != nil {
			all = append(all, partFound{*device, dev})
		} else {
			all = append(all, partFound{identifyPart(dev, uuid), dev})
		}
	}
	slices.SortStableFunc(all, func(a, b partFound) int { return compareParts(&a.device, &b.device) })
	return all, true
}

func compareParts(a, b *heelerv1.MIGDevice) int {
	return cmp.Or(compareIDs(a.GI, b.GI), compareIDs(a.CI, b.CI), cmp.Compare(a.UUID, b.UUID))
}

func compareIDs(a, b *uint64) int {
	if a == nil || b == nil {
		return 0
	}
	return cmp.Compare(*a, *b)
}

// identifyPart reads what does not change.
func identifyPart(d nvml.Device, uuid string) heelerv1.MIGDevice {
	device := heelerv1.MIGDevice{UUID: uuid}
	if gi, ci, s := d.Instance(); s == nvml.OK {
		device.GI, device.CI = &gi, &ci
	}
	if m, s := d.Memory(); s == nvml.OK && m.Total > 0 {
		device.FBTotalBytes = &m.Total
	}
	device.Profile = profileOf(d)
	return device
}

const bytesOfGiB = 1 << 30

// profileOf is the profile of a MIG device: the last word of its name, or what its slices say.
func profileOf(d nvml.Device) string {
	if name, s := d.Name(); s == nvml.OK {
		if _, profile, ok := strings.Cut(name, " MIG "); ok {
			return profile
		}
	}
	a, s := d.Slices()
	if s != nvml.OK || a.GPU == 0 || a.MemoryBytes == 0 {
		return ""
	}
	size := fmt.Sprintf("%dg.%dgb", a.GPU, (a.MemoryBytes+bytesOfGiB-1)/bytesOfGiB)
	if a.Compute != 0 && a.Compute != a.GPU {
		return fmt.Sprintf("%dc.%s", a.Compute, size)
	}
	return size
}

// readMIG reads the mode, and at the end of a window which MIG devices there are.
func (m *meter) readMIG(r *reading) {
	m.enter("MIG mode")
	on, s := m.dev.MIG()
	m.take(r, migMode, flag(on), s)
	if s == nvml.OK && on != m.divided {
		m.divided = on
		m.askAnew() // what a divided GPU lacks a whole one has
	}
	switch {
	case s == nvml.OK && !on, s.Lacking():
		m.adoptParts(nil)
		r.partsListed, m.listed = true, true
	default:
		m.enter("MIG devices")
		found, ok := listParts(m.dev, m.knownPart)
		if ok {
			m.adoptParts(found)
			r.partsListed, m.listed = true, true
		}
	}
}

func (m *meter) knownPart(uuid string) *heelerv1.MIGDevice {
	for _, p := range m.parts {
		if p.device.UUID == uuid {
			return &p.device
		}
	}
	return nil
}

// adoptParts makes the meters fit the MIG devices that there are. One that was made anew has a new UUID.
func (m *meter) adoptParts(found []partFound) {
	var parts []*partMeter
	for _, f := range found {
		part := m.partWith(f.device.UUID)
		if part == nil {
			part = newPartMeter(f, m.dev, m.uuid, m.perf.allowed, m.perf.claims)
		}
		part.dev = f.dev
		parts = append(parts, part)
	}
	for _, old := range m.parts {
		if !slices.Contains(parts, old) {
			old.perf.close()
		}
	}
	m.parts = parts
	for _, p := range parts {
		p.alone = true
		for _, other := range parts {
			if p != other && p.device.GI != nil && other.device.GI != nil && *p.device.GI == *other.device.GI {
				p.alone = false
			}
		}
	}
}

func (m *meter) partWith(uuid string) *partMeter {
	for _, p := range m.parts {
		if p.device.UUID == uuid {
			return p
		}
	}
	return nil
}

// visitParts reads the MIG devices.
func (m *meter) visitParts(v visit, r *reading) {
	for _, p := range m.parts {
		r.parts = append(r.parts, partReading{device: p.device})
		got := &r.parts[len(r.parts)-1]
		got.values.clear()
		put := func(c column, v heelerv1.Value, s nvml.Status) { m.set(r, &got.values, c, v, s) }
		m.askAll(p.fast, p.dev, put)
		if !v.end {
			continue
		}
		m.askAll(p.slow, p.dev, put)
		m.enter("processes of a MIG device")
		got.procs.add(p.dev.Processes())
		m.enter("performance monitor of a MIG device")
		if p.alone {
			p.perf.read(v, put)
		}
	}
}
