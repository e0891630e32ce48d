package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// aer reads the error counters that the kernel keeps of PCIe devices. GPUs, network adapters and NVMe drives are always
// reported, other devices once they have counted something. The ports above the former are read as often, since they see
// the errors of the link; all others are looked at every 30th time.
type aer struct {
	dir      string
	devices  []*aerDevice
	readings int
	stale    bool
	any      bool // a device has the counters
	why      string
}

type aerDevice struct {
	address, dir  string
	class, parent string
	always        bool // reported even while it has counted nothing
	often         bool // read each time
	rootPort      bool
}

const (
	lookEvery   = 30
	mostDevices = 1024 // reported in one sample
)

func (a *aer) read(m *heelerv1.HostSample, r *hostfs.Reader) {
	all := a.stale || a.readings%lookEvery == 0
	if all {
		a.stale = false
		a.list(r)
	}
	a.readings++
	if !a.any {
		m.Absent["aer"] = a.why
		return
	}
	for _, d := range a.devices {
		if !d.often && !all {
			continue
		}
		counters, err := d.read(r)
		if err != nil {
			m.Absent["aer/"+d.address] = hostfs.Reason(err)
			a.stale = true
			continue
		}
		if counted(&counters) {
			d.often = true
		} else if !d.always {
			continue
		}
		if len(m.Aer) == mostDevices {
			m.Absent["aer/"+d.address] = "too_many"
			continue
		}
		m.Aer = append(m.Aer, counters)
	}
}

func counted(c *heelerv1.AerCounters) bool {
	return *c.Correctable > 0 || *c.Nonfatal > 0 || *c.Fatal > 0 || len(c.Errors) > 0
}

// list finds the devices that have the counters.
func (a *aer) list(r *hostfs.Reader) {
	known := make(map[string]*aerDevice, len(a.devices))
	for _, d := range a.devices {
		known[d.address] = d
	}
	a.devices, a.any, a.why = nil, false, "not_present"
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		a.why = hostfs.Reason(err)
		return
	}
	parents := map[string]bool{}
	for _, e := range entries {
		d := newAerDevice(filepath.Join(a.dir, e.Name()), e.Name(), r)
		if d == nil {
			continue
		}
		if before := known[d.address]; before != nil && before.class == d.class {
			d.often = before.often
		}
		d.often = d.often || d.always
		if d.always {
			parents[d.parent] = true
		}
		a.devices = append(a.devices, d)
	}
	for _, d := range a.devices {
		d.often = d.often || parents[d.address]
	}
	a.any = len(a.devices) > 0
}

// function is the address of a PCI function.
var function = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// newAerDevice is nil for a device without the counters.
func newAerDevice(dir, address string, r *hostfs.Reader) *aerDevice {
	if _, err := os.Stat(filepath.Join(dir, "aer_dev_correctable")); err != nil || !function.MatchString(address) {
		return nil
	}
	d := &aerDevice{address: address, dir: dir}
	d.class, d.always = className(line(r, dir, "class"), line(r, dir, "vendor"))
	if _, err := os.Lstat(filepath.Join(dir, "physfn")); err == nil {
		d.always = false // there may be hundreds of virtual functions
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		if parent := filepath.Base(filepath.Dir(target)); function.MatchString(parent) {
			d.parent = parent
		}
	}
	_, err := os.Stat(filepath.Join(dir, "aer_rootport_total_err_cor"))
	d.rootPort = err == nil
	return d
}

func line(r *hostfs.Reader, dir, name string) string {
	text, err := r.Line(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return string(text)
}

const nvidia = "0x10de"

// className says what a device is by its class as the kernel writes it, 0x030200, and whether it is always reported.
func className(class, vendor string) (string, bool) {
	if len(class) < len("0x0302") {
		return "other", false
	}
	switch class[:len("0x0302")] {
	case "0x0300", "0x0302":
		return "gpu", true
	case "0x0200", "0x0280":
		return "network", true
	case "0x0207":
		return "infiniband", true
	case "0x0108":
		return "nvme", true
	case "0x0680": // as an NVSwitch has it
		return "bridge", vendor == nvidia
	}
	if strings.HasPrefix(class, "0x06") {
		return "bridge", false
	}
	return "other", false
}

func (d *aerDevice) read(r *hostfs.Reader) (heelerv1.AerCounters, error) {
	c := heelerv1.AerCounters{PCI: d.address, Class: d.class, Parent: d.parent}
	for _, file := range [...]struct {
		name string
		to   **uint64
	}{{"aer_dev_correctable", &c.Correctable}, {"aer_dev_nonfatal", &c.Nonfatal}, {"aer_dev_fatal", &c.Fatal}} {
		text, err := r.Read(d.dir + "/" + file.name)
		if err != nil {
			return heelerv1.AerCounters{}, err
		}
		total, kinds, err := parseAer(text)
		if err != nil {
			return heelerv1.AerCounters{}, fmt.Errorf("%s of %s: %w", file.name, d.address, err)
		}
		*file.to = &total
		for kind, n := range kinds {
			addError(&c, kind, n)
		}
	}
	if !d.rootPort {
		return c, nil
	}
	for _, kind := range [...]string{"cor", "nonfatal", "fatal"} {
		text, err := r.Read(d.dir + "/aer_rootport_total_err_" + kind)
		if err != nil {
			return heelerv1.AerCounters{}, err
		}
		n, err := number(text)
		if err != nil {
			return heelerv1.AerCounters{}, err
		}
		addError(&c, "rootport_total_err_"+kind, *n)
	}
	return c, nil
}

// addError adds what was counted of a kind. Nonfatal and fatal errors have the same kinds; how many were fatal stands in
// the totals.
func addError(c *heelerv1.AerCounters, kind string, n uint64) {
	if n == 0 {
		return
	}
	if c.Errors == nil {
		c.Errors = map[string]uint64{}
	}
	c.Errors[kind] += n
}

// parseAer reads lines like "RxErr 0", of which the last is "TOTAL_ERR_COR 0": how often the device reported, each time
// with one kind or several. A text without the last line is not whole.
func parseAer(text []byte) (total uint64, kinds map[string]uint64, err error) {
	whole := false
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		space := bytes.LastIndexByte(line, ' ')
		if space <= 0 {
			return 0, nil, fmt.Errorf("%w: AER counter %.40q", hostfs.ErrFormat, line)
		}
		n, err := strconv.ParseUint(string(line[space+1:]), 10, 64)
		if err != nil {
			return 0, nil, fmt.Errorf("%w: AER counter %.40q", hostfs.ErrFormat, line)
		}
		switch {
		case bytes.HasPrefix(line, []byte("TOTAL_")):
			total, whole = n, true
		case n > 0:
			if kinds == nil {
				kinds = map[string]uint64{}
			}
			kinds[string(line[:space])] += n
		}
	}
	if !whole {
		return 0, nil, fmt.Errorf("%w: no total of AER counters", hostfs.ErrFormat)
	}
	return total, kinds, nil
}
