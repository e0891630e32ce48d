package gpu

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/pci"
	"heeler.dev/schemas/go/heelerv1"
)

// found is a GPU that the library shows now.
type found struct {
	dev      nvml.Device // nil when the GPU was not asked since it hangs
	identity heelerv1.Gpu
}

// list asks the library for its GPUs. It runs under the library's guard. Known GPUs are not asked for what cannot
// change, and those that hang, by index, are not asked at all.
func list(lib nvml.Library, known map[string]heelerv1.Gpu, hanging map[int]heelerv1.Gpu) ([]found, nvml.Status) {
	count, s := lib.Count()
	if s != nvml.OK {
		return nil, s
	}
	var all []found
	for index := range count {
		if identity, hangs := hanging[index]; hangs {
			all = append(all, found{nil, identity})
			continue
		}
		dev, s := lib.Device(index)
		if s != nvml.OK {
			continue // lost GPUs may keep their index and refuse the handle
		}
		uuid, s := dev.UUID()
		if s != nvml.OK || uuid == "" {
			continue
		}
		identity, ok := known[uuid]
		if !ok {
			identity = identify(dev, uuid)
		}
		identity.Index = heelerv1.Some(uint64(index))
		if mig, s := dev.MIG(); s == nvml.OK {
			identity.MIG = &mig
		}
		all = append(all, found{dev, identity})
	}
	return all, nvml.OK
}

// identify reads what does not change.
func identify(d nvml.Device, uuid string) heelerv1.Gpu {
	g := heelerv1.Gpu{UUID: uuid}
	g.Model, _ = d.Name()
	g.Serial, _ = d.Serial()
	g.VBIOS, _ = d.VBIOS()
	if address, s := d.PCI(); s == nvml.OK {
		g.PCI, _ = pci.Normalise(address)
	}
	if minor, s := d.Minor(); s == nvml.OK {
		g.Minor = heelerv1.Some(uint64(minor))
	}
	if node, s := d.NUMANode(); s == nvml.OK {
		g.NUMA = heelerv1.Some(int64(node))
	}
	if total, _, s := d.MemoryBytes(); s == nvml.OK && total > 0 {
		g.FBTotalBytes = &total
	}
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
	if m.path == "" {
		return nil
	}
	data, err := json.Marshal(remembered{m.boot, gpus})
	if err != nil {
		return err
	}
	temporary := m.path + ".new"
	err = errors.Join(os.MkdirAll(filepath.Dir(m.path), 0o755), os.WriteFile(temporary, data, 0o600))
	if err != nil {
		return err
	}
	return os.Rename(temporary, m.path)
}
