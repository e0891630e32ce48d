package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// inventory gathers what the collectors find and publishes it when it changes, and now and then. It is a collector.
type inventory struct {
	kernel string

	mu        sync.Mutex
	gpus      []heelerv1.Gpu
	versions  nvml.Versions
	hcas      []heelerv1.Hca
	gpusKnown bool
	digest    string
	sent      string
	sentAt    time.Time
	started   time.Time
	ready     chan struct{} // closed when the GPUs are known, or known to be unknown
}

const (
	inventoryEvery  = time.Second
	inventoryRepeat = time.Hour
	inventoryWait   = 5 * time.Second // for the GPUs, before a node without them is described
)

func newInventory(kernel string, expectGPUs bool) *inventory {
	inv := &inventory{kernel: kernel, started: time.Now(), ready: make(chan struct{})}
	if !expectGPUs {
		inv.gpusKnown = true
		close(inv.ready)
	}
	return inv
}

// setGPUs takes the GPUs.
func (i *inventory) setGPUs(gpus []heelerv1.Gpu, versions nvml.Versions) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gpus, i.versions = gpus, versions
	if !i.gpusKnown {
		i.gpusKnown = true
		close(i.ready)
	}
}

// setHCAs takes the ports of host channel adapters.
func (i *inventory) setHCAs(hcas []heelerv1.Hca) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hcas = hcas
}

func (i *inventory) message() *heelerv1.Inventory {
	m := &heelerv1.Inventory{
		Driver: i.versions.Driver, NVML: i.versions.NVML, CUDA: i.versions.CUDA, Kernel: i.kernel,
		GPUs: append([]heelerv1.Gpu{}, i.gpus...), HCAs: append([]heelerv1.Hca{}, i.hcas...),
	}
	m.Digest = digest(m)
	return m
}

// digest is that of everything but the header.
func digest(m *heelerv1.Inventory) string {
	data, err := m.MarshalMsg(nil)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Collect implements [collector.Collector].
func (i *inventory) Collect(_ context.Context, _ time.Time, emit collector.Emit) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if !i.gpusKnown && now.Sub(i.started) < inventoryWait {
		return nil
	}
	m := i.message()
	i.digest = m.Digest
	if m.Digest == i.sent && now.Sub(i.sentAt) < inventoryRepeat {
		return nil
	}
	if err := emit(m); err != nil {
		return err
	}
	i.sent, i.sentAt = m.Digest, now
	return nil
}

// repeat makes it publish once more: the bus may not have had the last one.
func (i *inventory) repeat() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sent = ""
}

// currentDigest is that of the newest inventory.
func (i *inventory) currentDigest() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.digest
}
