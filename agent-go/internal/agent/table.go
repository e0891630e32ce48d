package agent

import (
	"log/slog"
	"path/filepath"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/gpu"
	"heeler.dev/agent-go/internal/host"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/agent-go/internal/ib"
	"heeler.dev/agent-go/internal/kmsg"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/nvmlevents"
	"heeler.dev/agent-go/internal/outbox"
	"heeler.dev/agent-go/internal/witness"
	"heeler.dev/schemas/go/heelerv1"
)

// parts are the collectors of one agent.
type parts struct {
	gpu  *gpu.Collector
	kmsg *kmsg.Source
	nvml *nvml.Shared
	book *nvmlevents.Book
	// events hears of XIDs by another way than the kernel log.
	events *nvmlevents.Source
	ib     *ib.Collector
	host   *host.Collector
	inv    *inventory
	jobs   *hostfs.Jobs
	dcgm   dcgmParts
	outbox *outbox.Source
}

const (
	shortestPatience = 500 * time.Millisecond
	gpuDeadline      = 30 * time.Second // eight GPUs may each take their time once, before they are left alone
)

func newParts(c *config.Config, lib nvml.Library, log *slog.Logger) *parts {
	node := hostfs.Host{Proc: c.Proc, Sys: c.Sys}
	p := &parts{
		inv: newInventory(node.KernelRelease(), c.Collectors.NVML), jobs: hostfs.NewJobs(node),
		nvml: nvml.Share(lib), book: witness.New[*heelerv1.KernelEvent](),
	}
	s := gpuSettings(c)
	p.gpu = gpu.New(gpu.Options{
		Library: p.nvml.Owner(), Window: s.Window, HangAfter: s.HangAfter, Patience: s.Patience, Retry: s.Retry, Profile: s.Profile,
		JobOf: p.jobs.Of, PIDMax: node.PIDMax(), MemoryPath: stateFile(c, "gpus.json"), Boot: c.BootID,
		OnInventory: p.inv.setGPUs, Profiles: &p.dcgm, Log: log,
	})
	p.events = nvmlevents.New(nvmlevents.Options{
		Library: p.nvml.Guest(), Book: p.book, FloodInterval: c.Kmsg.FloodInterval.Duration, Log: log,
	})
	p.host = host.New(host.Options{Proc: c.Proc, Sys: c.Sys, Jobs: p.jobs})
	p.renew(c, log)
	return p
}

// gpuSettings are those that a reload may change.
func gpuSettings(c *config.Config) gpu.Settings {
	return gpu.Settings{
		Window: c.Window.Duration, HangAfter: c.NVML.HangAfter.Duration, Retry: c.NVML.Retry.Duration,
		Patience: max(c.Interval.Duration, shortestPatience), Profile: c.NVML.GPM,
	}
}

// renew makes anew what needs to remember nothing over a reload. What may sit in calls that hang lives on: no second
// one may be started into the same GPU or device.
func (p *parts) renew(c *config.Config, log *slog.Logger) {
	p.inv.repeat()
	if p.ib == nil || p.ib.VirtualFunctions != c.IB.VirtualFunctions {
		p.ib = ib.New(ib.Options{
			Sys: c.Sys, VirtualFunctions: c.IB.VirtualFunctions, OnInventory: p.inv.setHCAs,
		})
	}
	p.dcgm.renew(c, p.gpu)
	options := kmsg.Options{
		Path: c.Kmsg.Path, AnyFacility: c.Kmsg.AnyFacility, FloodInterval: c.Kmsg.FloodInterval.Duration,
		StatePath: stateFile(c, "kmsg.json"), Boot: c.BootID, Ready: p.inv.ready, Log: log,
	}
	if c.Collectors.NVML {
		options.GPUs = p.gpu
	}
	if c.Collectors.NVML && c.Collectors.NVMLEvents {
		options.Witnesses = p.book
	}
	p.events.Reconfigure(c.Kmsg.FloodInterval.Duration)
	if !c.Collectors.Kmsg {
		p.book.SetLog(witness.Gone)
	}
	p.kmsg = kmsg.New(options)
	p.outbox = outbox.New(outbox.Options{
		Path: c.Outbox.Path, Self: outbox.Identity{Cluster: c.Cluster, Node: c.Node}, Grace: c.Spool.Grace.Duration,
		MaxFiles: c.Outbox.MaxFiles, MaxBytes: c.Outbox.MaxBytes, Owners: c.Outbox.Owners, Log: log,
	})
}

// table is everything that the agent runs. A new collector gets a row here.
func (p *parts) table(c *config.Config) []collector.Entry {
	return []collector.Entry{
		{
			Name: "nvml", Every: c.Interval.Duration, Align: true, Deadline: gpuDeadline, Collector: p.gpu,
			Off: !c.Collectors.NVML, HoldsGPUs: true,
		},
		{Name: "kmsg", Every: time.Second, Source: p.kmsg, Off: !c.Collectors.Kmsg},
		{
			Name: "nvml_events", Every: time.Second, Source: p.events, HoldsGPUs: true,
			Off: !c.Collectors.NVML || !c.Collectors.NVMLEvents,
		},
		{Name: "ib", Every: c.IB.Interval.Duration, Collector: p.ib, Off: !c.Collectors.IB},
		{Name: "host", Every: c.Host.Interval.Duration, Collector: p.host, Off: !c.Collectors.Host},
		{
			Name: "dcgm", Every: time.Second, Source: p.dcgm.profiler.Load(), Off: !c.DCGM.Enabled || !c.Collectors.NVML,
			HoldsGPUs: true, Profiles: true,
		},
		{Name: "nvswitch", Every: time.Second, Source: p.dcgm.switches, Off: !c.DCGM.Enabled, HoldsGPUs: true},
		{Name: "outbox", Every: time.Second, Source: p.outbox, Off: !c.Collectors.Outbox},
		{Name: "inventory", Every: inventoryEvery, Align: true, Collector: p.inv},
	}
}

// stateFile is where something is kept, or empty when nothing is to be kept.
func stateFile(c *config.Config, name string) string {
	if c.StateDir == "" {
		return ""
	}
	return filepath.Join(c.StateDir, name)
}
