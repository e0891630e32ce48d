package gpu

import (
	"encoding/json"
	"os"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/pci"
	"heeler.dev/agent-go/internal/statefile"
	"heeler.dev/schemas/go/heelerv1"
)

// identify reads what does not change.
func identify(d nvml.Device, uuid string) heelerv1.Gpu {
	g := heelerv1.Gpu{UUID: uuid}
	g.Model, _ = d.Name()
	g.Serial, _ = d.Serial()
	g.VBIOS, _ = d.VBIOS()
	g.BoardPart, _ = d.BoardPart()
	g.Architecture, _ = d.Architecture()
	if address, s := d.PCI(); s == nvml.OK {
		g.PCI, _ = pci.Normalise(address)
	}
	if minor, s := d.Minor(); s == nvml.OK {
		g.Minor = heelerv1.Some(uint64(minor))
	}
	if node, s := d.NUMANode(); s == nvml.OK {
		g.NUMA = heelerv1.Some(int64(node))
	}
	if m, s := d.Memory(); s == nvml.OK && m.Total > 0 {
		g.FBTotalBytes = &m.Total
	}
	if on, s := d.MIG(); s == nvml.OK {
		g.MIG = &on
	}
	if g.MIG == nil || *g.MIG {
		parts, _ := listParts(d, func(string) *heelerv1.MIGDevice { return nil })
		for _, p := range parts {
			g.MIGDevices = append(g.MIGDevices, p.device)
		}
	}
	g.NVLinks = linkEnds(d)
	return g
}

// memory keeps which GPUs this boot has had, so that one that was lost before the agent was restarted still has its
// name. A GPU that was replaced came with a reboot, and so is not missed.
type memory struct {
	path string
	boot string
}

type remembered struct {
	Boot string
	GPUs []heelerv1.Gpu
}

func (m memory) load() []heelerv1.Gpu {
	data, err := os.ReadFile(m.path)
	if err != nil {
		return nil
	}
	var r remembered
	if json.Unmarshal(data, &r) != nil || r.Boot != m.boot {
		return nil
	}
	return r.GPUs
}

func (m memory) save(gpus []heelerv1.Gpu) error {
	return statefile.Save(m.path, remembered{m.boot, gpus})
}
