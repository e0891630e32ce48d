package ib

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/schemas/go/heelerv1"
)

// tree is a /sys made by hand, linked as the kernel links it.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) *tree { return &tree{t, t.TempDir()} }

func (s *tree) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// put writes a file below the root.
func (s *tree) put(path, text string) {
	s.t.Helper()
	full := filepath.Join(s.root, path)
	s.must(os.MkdirAll(filepath.Dir(full), 0o755))
	s.must(os.WriteFile(full, []byte(text+"\n"), 0o600))
}

func (s *tree) link(path, target string) {
	s.t.Helper()
	full := filepath.Join(s.root, path)
	s.must(os.MkdirAll(filepath.Dir(full), 0o755))
	_ = os.Remove(full)
	s.must(os.Symlink(filepath.Join(s.root, target), full))
}

// function is the folder of a PCI function.
func function(address string) string { return "devices/pci0000:3a/0000:3a:01.0/" + address }

// plug adds a device with its files.
func (s *tree) plug(name, address string, files map[string]string) {
	s.t.Helper()
	dir := function(address) + "/infiniband/" + name
	s.must(os.MkdirAll(filepath.Join(s.root, dir), 0o755))
	for path, text := range files {
		s.put(dir+"/"+path, text)
	}
	s.link(dir+"/device", function(address))
	s.link("class/infiniband/"+name, dir)
}

// unplug takes it away.
func (s *tree) unplug(name, address string) {
	s.t.Helper()
	s.must(os.Remove(filepath.Join(s.root, "class/infiniband", name)))
	s.must(os.RemoveAll(filepath.Join(s.root, function(address), "infiniband", name)))
}

// file is a file of a plugged device.
func (s *tree) file(address, name, path string) string {
	return filepath.Join(s.root, function(address), "infiniband", name, path)
}

// interfaceOf adds a network interface to a PCI function.
func (s *tree) interfaceOf(address, name string, files map[string]string) {
	s.t.Helper()
	dir := function(address) + "/net/" + name
	for path, text := range map[string]string{
		"type": "1", "dev_port": "0", "dev_id": "0x0", "operstate": "up", "carrier": "1", "carrier_changes": "2",
		"carrier_down_count": "1", "carrier_up_count": "1", "speed": "400000",
	} {
		s.put(dir+"/"+path, text)
	}
	for path, text := range files {
		s.put(dir+"/"+path, text)
	}
	s.link("class/net/"+name, dir)
}

const (
	slot  = "0000:3b:00.0"
	slot2 = "0000:3b:00.1"
)

// full is a port with all that there is.
func full() map[string]string {
	return map[string]string{
		"node_guid": "b83f:d203:0012:3456", "fw_ver": "28.39.1002", "board_id": "MT_0000000838",
		"ports/1/state": "4: ACTIVE", "ports/1/phys_state": "5: LinkUp",
		"ports/1/rate": "400 Gb/sec (4X NDR)", "ports/1/link_layer": "InfiniBand",
		"ports/1/lid": "0x1a", "ports/1/sm_lid": "0x1",
		"ports/1/counters/port_xmit_data": "1000", "ports/1/counters/port_xmit_packets": "7",
		"ports/1/counters/link_downed": "3", "ports/1/counters/symbol_error": "0",
		"ports/1/counters/port_xmit_wait": "12", "ports/1/counters/VL15_dropped": "0",
		"ports/1/counters/unicast_xmit_packets":  "7",
		"ports/1/hw_counters/out_of_sequence":    "18446744073709551614",
		"ports/1/hw_counters/np_cnp_sent":        "5",
		"ports/1/hw_counters/lifespan":           "10",
		"ports/1/hw_counters/rx_write_requests":  "4294967295",
		"ports/1/hw_counters/local_ack_time_err": "65535",
	}
}

// with is a map with changes; an empty text takes a file away.
func with(files map[string]string, changes ...string) map[string]string {
	for i := 0; i < len(changes); i += 2 {
		if files[changes[i]] = changes[i+1]; changes[i+1] == "" {
			delete(files, changes[i])
		}
	}
	return files
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

// well collects without an error.
func well(t *testing.T, c *Collector) *heelerv1.IbSample {
	t.Helper()
	m, err := collect(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// onePort collects a sample of one port.
func onePort(t *testing.T, c *Collector) *heelerv1.IbPort {
	t.Helper()
	m := well(t, c)
	if len(m.Ports) != 1 {
		t.Fatalf("%d ports, absent %v", len(m.Ports), m.Absent)
	}
	return &m.Ports[0]
}

var _ collector.Counter = (*Collector)(nil)
