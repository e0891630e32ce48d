package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"heeler.dev/agent-go/internal/config"
)

var quiet = slog.New(slog.DiscardHandler)

func TestOneReadingOfANodesPortsAndItself(t *testing.T) {
	sys := t.TempDir()
	for path, text := range map[string]string{
		"node_guid": "b83f:d203:0012:3456", "ports/1/state": "4: ACTIVE", "ports/1/rate": "400 Gb/sec (4X NDR)",
		"ports/1/link_layer": "InfiniBand", "ports/1/counters/port_xmit_data": "250",
	} {
		full := filepath.Join(sys, "class/infiniband/mlx5_0", path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := config.Default()
	c.Cluster, c.Node, c.BootID, c.Sys = "c", "n", "b", sys
	c.Collectors = config.Collectors{IB: true, Host: true}
	var out bytes.Buffer
	if err := Once(context.Background(), &c, nil, "test", &out, quiet); err != nil {
		t.Fatal(err)
	}
	var got struct {
		IbSample struct {
			Ports []struct {
				Device   string
				Counters map[string]uint64
			}
		}
		HostSample struct {
			CPUs   uint64            `json:"cpus"`
			Memory map[string]uint64 `json:"memory_bytes"`
			Absent map[string]string
		}
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if p := got.IbSample.Ports; len(p) != 1 || p[0].Device != "mlx5_0" || p[0].Counters["port_xmit_data"] != 1000 {
		t.Errorf("ports %+v", p)
	}
	if h := got.HostSample; h.CPUs == 0 || h.Memory["total"] == 0 || h.Absent["aer"] != "not_present" {
		t.Errorf("host %+v", h)
	}
}
