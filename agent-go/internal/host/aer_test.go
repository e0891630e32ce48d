package host

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"heeler.dev/schemas/go/heelerv1"
)

const (
	gpuAddress  = "0000:3b:00.0"
	portAddress = "0000:3a:01.0"
)

// device adds a PCI device below a port; counters are the texts of the correctable, nonfatal and fatal file.
func (n *node) device(path, class string, counters ...string) {
	n.t.Helper()
	n.put(n.sys, "devices/"+path+"/class", class+"\n")
	for i, name := range []string{"correctable", "nonfatal", "fatal"} {
		if i < len(counters) {
			n.put(n.sys, "devices/"+path+"/aer_dev_"+name, counters[i])
		}
	}
	link := filepath.Join(n.sys, "bus/pci/devices", filepath.Base(path))
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		n.t.Fatal(err)
	}
	_ = os.Remove(link)
	if err := os.Symlink(filepath.Join(n.sys, "devices", path), link); err != nil {
		n.t.Fatal(err)
	}
}

const (
	noNonfatal = "Undefined 0\nDLP 0\nCmpltTO 0\nTOTAL_ERR_NONFATAL 0\n"
	noFatal    = "Undefined 0\nDLP 0\nCmpltTO 0\nTOTAL_ERR_FATAL 0\n"
	gpuPath    = "pci0000:3a/" + portAddress + "/" + gpuAddress
	portPath   = "pci0000:3a/" + portAddress
)

func TestErrorCountersOfDevices(t *testing.T) {
	n := newNode(t)
	n.device(portPath, "0x060400", noErrors, noNonfatal, noFatal)
	for _, kind := range []string{"cor", "nonfatal", "fatal"} {
		n.put(n.sys, "devices/"+portPath+"/aer_rootport_total_err_"+kind, "0\n")
	}
	n.device(gpuPath, "0x030200", strings.NewReplacer("RxErr 0", "RxErr 12", "BadTLP 0", "BadTLP 3", "ERR_COR 0", "ERR_COR 13").Replace(noErrors),
		strings.NewReplacer("CmpltTO 0", "CmpltTO 2", "NONFATAL 0", "NONFATAL 2").Replace(noNonfatal),
		strings.NewReplacer("CmpltTO 0", "CmpltTO 1", "_FATAL 0", "_FATAL 1").Replace(noFatal))
	n.device("pci0000:5d/0000:5d:00.0", "0x010802", noErrors, noNonfatal, noFatal)
	n.device("pci0000:00/0000:00:1f.0", "0x060100") // without the counters
	n.device("pci0000:00/0000:00:14.0", "0x0c0330", noErrors, noNonfatal, noFatal)
	number := func(v uint64) *uint64 { return &v }
	want := []heelerv1.AerCounters{
		{
			PCI: gpuAddress, Class: "gpu", Parent: portAddress, Correctable: number(13), Nonfatal: number(2), Fatal: number(1),
			Errors: map[string]uint64{"RxErr": 12, "BadTLP": 3, "CmpltTO": 3},
		},
		{PCI: "0000:5d:00.0", Class: "nvme", Correctable: number(0), Nonfatal: number(0), Fatal: number(0)},
	}
	if m := n.read(); !reflect.DeepEqual(m.Aer, want) {
		t.Errorf("got %+v", m.Aer)
	}
	// The port above a GPU is looked at each time, and reported once it has counted something.
	n.put(n.sys, "devices/"+portPath+"/aer_rootport_total_err_cor", "7\n")
	n.put(n.sys, "devices/pci0000:00/0000:00:14.0/aer_dev_correctable", strings.Replace(noErrors, "ERR_COR 0", "ERR_COR 1", 1))
	m := n.read()
	if len(m.Aer) != 3 || m.Aer[0].PCI != portAddress || m.Aer[0].Class != "bridge" || m.Aer[0].Errors["rootport_total_err_cor"] != 7 {
		t.Errorf("got %+v", m.Aer)
	}
	// Any other device is found before long, and then stays.
	for range lookEvery {
		m = n.read()
	}
	if len(m.Aer) != 4 || m.Aer[0].PCI != "0000:00:14.0" || m.Aer[0].Class != "other" || *m.Aer[0].Correctable != 1 {
		t.Errorf("then %+v", m.Aer)
	}
}

func TestADeviceThatGoesAway(t *testing.T) {
	n := newNode(t)
	n.device(gpuPath, "0x030200", noErrors, noNonfatal, noFatal)
	n.device("pci0000:5d/0000:5d:00.0", "0x010802", noErrors, noNonfatal, noFatal)
	n.read()
	_ = os.RemoveAll(filepath.Join(n.sys, "devices", gpuPath))
	_ = os.Remove(filepath.Join(n.sys, "bus/pci/devices", gpuAddress))
	if m := n.read(); len(m.Aer) != 1 || m.Absent["aer/"+gpuAddress] != "not_present" {
		t.Errorf("got %+v, absent %v", m.Aer, m.Absent)
	}
	if m := n.read(); len(m.Aer) != 1 || m.Absent["aer/"+gpuAddress] != "" {
		t.Errorf("then %+v, absent %v", m.Aer, m.Absent)
	}
	n.device(gpuPath, "0x030200", noErrors, noNonfatal, noFatal)
	for range lookEvery {
		n.read()
	}
	if m := n.read(); len(m.Aer) != 2 {
		t.Errorf("back: %+v", m.Aer)
	}
}

func TestHalfAFileIsNoCounters(t *testing.T) {
	n := newNode(t)
	n.device(gpuPath, "0x030200", noErrors, "Undefined 0\nDLP", noFatal)
	if m := n.read(); len(m.Aer) != 0 || m.Absent["aer/"+gpuAddress] != "not_understood" {
		t.Errorf("got %+v, absent %v", m.Aer, m.Absent)
	}
}

func TestManyVirtualFunctionsAreNotListed(t *testing.T) {
	n := newNode(t)
	n.device("pci0000:5d/0000:5d:00.0", "0x020700", noErrors, noNonfatal, noFatal)
	for _, f := range "1234567" {
		path := "pci0000:5d/0000:5d:00." + string(f)
		n.device(path, "0x020700", noErrors, noNonfatal, noFatal)
		n.put(n.sys, "devices/"+path+"/physfn", "")
	}
	if m := n.read(); len(m.Aer) != 1 || m.Aer[0].Class != "infiniband" {
		t.Errorf("got %+v", m.Aer)
	}
}

func TestClasses(t *testing.T) {
	for in, want := range map[[2]string]string{
		{"0x030200", "0x10de"}: "gpu+", {"0x030000", ""}: "gpu+", {"0x020000", ""}: "network+", {"0x020700", ""}: "infiniband+",
		{"0x010802", ""}: "nvme+", {"0x068000", "0x10de"}: "bridge+", {"0x068000", "0x8086"}: "bridge", {"0x060400", ""}: "bridge",
		{"0x0c0330", ""}: "other", {"", ""}: "other", {"0x03", ""}: "other",
	} {
		name, always := className(in[0], in[1])
		if always {
			name += "+"
		}
		if name != want {
			t.Errorf("%s of %s is %s, want %s", in[0], in[1], name, want)
		}
	}
}
