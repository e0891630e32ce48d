package heelerv1

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// need names the keys that a map must have, those of its maps, and those of the maps in its arrays (key "name[]").
type need struct {
	keys []string
	sub  map[string]*need
	// noNull refuses null values, which elsewhere mean absent: a column is a list.
	noNull bool
}

var nodeKeys = []string{"v", "cluster", "node", "ts", "boot", "seq"}

// required mirrors the "required" lists of the schemas; a test compares the two.
func required(messageType string) *need {
	switch messageType {
	case "GpuSample":
		return sampleNeed()
	case "JobSample":
		return sampleNeed("job", "shard")
	case "IbSample":
		return nodeNeed(map[string]*need{"ports[]": {keys: []string{"device", "port"}}, "bonds[]": bondNeed()}, "ports")
	case "HostSample":
		return nodeNeed(map[string]*need{
			"uninterruptible[]": {keys: []string{"pid"}}, "aer[]": {keys: []string{"pci"}},
		})
	case "SwitchSample":
		return nodeNeed(map[string]*need{
			"switches[]": {keys: []string{"switch"}}, "links[]": {keys: []string{"switch", "link"}},
		}, "switches")
	case "KernelEvent":
		return nodeNeed(nil, "kind")
	case "JobKernelEvent":
		return nodeNeed(nil, "kind", "jobs", "shard")
	case "AgentStatus":
		return nodeNeed(nil, "collectors")
	case "Inventory":
		return nodeNeed(map[string]*need{
			"gpus[]": gpuNeed(), "hcas[]": {keys: []string{"device"}},
		}, "gpus")
	case "PrologEvent":
		return nodeNeed(nil, "event", "job_id")
	case "HealthResult":
		return nodeNeed(map[string]*need{"evidence[]": {keys: []string{"what"}}}, "run", "check", "outcome", "why", "phase")
	case "HealthRun":
		result := &need{
			keys: []string{"check", "outcome", "why"}, sub: map[string]*need{"evidence[]": {keys: []string{"what"}}},
		}
		return nodeNeed(map[string]*need{
			"killed[]": {keys: []string{"pid"}}, "results[]": result,
		}, "run", "phase", "verdict", "why")
	case "HealthRequest":
		return &need{keys: []string{"v", "cluster", "node", "ts", "checks"}}
	case "SlurmTable":
		return &need{
			keys: []string{"v", "cluster", "feed", "table", "ts", "snapshot", "part", "parts", "rows", "columns"},
			sub:  map[string]*need{"columns": {noNull: true}},
		}
	case "JobRecord":
		return &need{
			keys: []string{"v", "cluster", "ts", "job_id", "run", "state"},
			sub:  map[string]*need{"steps[]": {keys: []string{"step"}}},
		}
	case "JobSummary":
		return &need{
			keys: []string{"v", "cluster", "ts", "job_id", "run", "final", "until_ts", "active_gpu_s", "idle_gpu_s"},
		}
	case "JobEvent":
		return &need{keys: []string{"v", "cluster", "ts", "event", "job_id", "nodes"}}
	case "NodeState":
		return &need{keys: []string{"v", "cluster", "node", "ts", "state", "flags"}}
	case "ClusterState":
		return &need{keys: []string{"v", "cluster", "feed", "ts", "controller"}}
	case "Finding":
		return findingNeed()
	case "DrainAction":
		return &need{keys: []string{"v", "cluster", "id", "node", "ts", "verdict", "dry_run", "why", "actor"}}
	case "DrainCommand":
		return &need{keys: []string{"v", "cluster", "ts", "id", "command"}}
	case "DrainQuestion":
		return &need{keys: []string{"v", "cluster", "ts", "id", "about"}}
	case "DrainAnswer":
		return &need{keys: []string{"v", "cluster", "ts", "id", "by", "outcome", "why"}}
	case "DeadLetter":
		return &need{keys: []string{"v", "cluster", "ts", "subject", "why", "error", "by"}}
	default:
		return nil
	}
}

func nodeNeed(sub map[string]*need, more ...string) *need {
	return &need{keys: append(slices.Clone(nodeKeys), more...), sub: sub}
}

func bondNeed() *need {
	slaves := &need{keys: []string{"netdev"}}
	return &need{keys: []string{"name"}, sub: map[string]*need{"slaves[]": slaves}}
}

func gpuNeed() *need {
	return &need{keys: []string{"uuid"}, sub: map[string]*need{
		"mig_devices[]": {keys: []string{"uuid"}}, "nvlinks[]": {keys: []string{"link"}},
	}}
}

func sampleNeed(more ...string) *need {
	keys := append([]string{"window_ns", "reads", "gpu", "mean", "last"}, more...)
	columns := &need{noNull: true}
	return nodeNeed(map[string]*need{
		"gpu": {keys: []string{"uuid"}}, "mean": columns, "min": columns, "max": columns, "last": columns,
	}, keys...)
}

func findingNeed() *need {
	return &need{
		keys: []string{
			"v", "cluster", "id", "kind", "state", "severity", "confidence", "entity", "first_ts", "ts", "evidence",
			"advice", "summary",
		},
		sub: map[string]*need{"entity": {keys: []string{"type"}}, "evidence[]": {keys: []string{"metric"}}},
	}
}

func oneOf[T ~string](v *T, known ...T) {
	if !slices.Contains(known, *v) {
		*v = "unknown"
	}
}

// optionalOneOf is oneOf for a field that may be absent.
func optionalOneOf[T ~string](v *T, known ...T) {
	if *v != "" {
		oneOf(v, known...)
	}
}

func (m *GpuSample) settle() {
	for _, state := range m.State {
		if state != nil {
			oneOf(state, GpuOK, GpuLost, GpuHung)
		}
	}
}

func (m *IbSample) settle() {
	for i := range m.Ports {
		p := &m.Ports[i]
		optionalOneOf(&p.LinkLayer, "infiniband", "ethernet")
		optionalOneOf(&p.State, "nop", "down", "init", "armed", "active", "active_defer")
		optionalOneOf(&p.PhysState, "sleep", "polling", "disabled", "training", "link_up", "link_error_recovery",
			"phy_test")
	}
}

func (m *KernelEvent) settle() {
	oneOf(&m.Kind, KindXid, KindSxid, KindGpuLost, KindGpuUUID, KindAer, KindMce, KindEdac, KindOom, KindHungTask,
		KindSoftLockup, KindLink, KindMlx5, KindNvme, KindFsReadonly, KindRmInit, KindPeermem,
		KindGpuEvent, KindThermal, KindRaid, KindNvlink, KindGap, KindFlood)
	optionalOneOf(&m.GpuState, GpuOK, GpuLost, GpuHung)
}

func (m *AgentStatus) settle() {
	for name, c := range m.Collectors {
		optionalOneOf(&c.State, CollectorOK, CollectorAbsent, CollectorFailing, CollectorHung, CollectorOff)
		m.Collectors[name] = c
	}
}

func (m *Inventory) settle() {}

func (m *HostSample) settle() {}

func (m *SwitchSample) settle() {}

func (m *PrologEvent) settle() { oneOf(&m.Event, "started", "ended") }

func (m *JobEvent) settle() {
	oneOf(&m.Event, "started", "changed", "ended")
	optionalOneOf(&m.GPUsSource, "slurm_index", "whole_node", "none")
}

func (m *NodeState) settle() {
	optionalOneOf(&m.Event, "seen", "changed", "gone")
	oneOf(&m.State, "idle", "allocated", "mixed", "down", "error", "future")
}

func (m *ClusterState) settle() { oneOf(&m.Controller, "up", "down") }

func (m *Finding) settle() {
	oneOf(&m.State, "open", "update", "closed")
	oneOf(&m.Severity, "info", "warning", "critical")
	oneOf(&m.Advice, "none", "observe", "drain_after_job", "drain_now", "reset", "reboot", "rma", "person")
	oneOf(&m.Entity.Type, "gpu", "node", "link", "port", "switch", "job", "agent")
}

func (m *DrainAction) settle() {
	oneOf(&m.Verdict, "proposed", "refused", "approved", "done", "verified", "failed", "undrained",
		"ordered", "tripped", "waiting", "held")
	optionalOneOf(&m.Command, commands...)
	optionalOneOf(&m.Breaker, breakers...)
	optionalOneOf(&m.Step, "drain", "wait", "requeue", "reset", "reboot", "check", "undrain", "person")
}

func (m *DeadLetter) settle() { oneOf(&m.Why, "undecodable", "invalid", "poison", "hostile_subject") }

// name refuses empty names, which would make a subject that nobody can subscribe to.
func name(what, value string) error {
	if value == "" {
		return fmt.Errorf("%s is empty", what)
	}
	return nil
}

// after1970 refuses times before the epoch.
func after1970(ts int64) error {
	if ts < 0 {
		return errors.New("ts is negative")
	}
	return nil
}

func (h *Header) check() error {
	if err := after1970(h.TS); err != nil {
		return err
	}
	if err := name("cluster", h.Cluster); err != nil {
		return err
	}
	return name("node", h.Node)
}

func (m *GpuSample) check() error {
	if err := m.Header.check(); err != nil {
		return err
	}
	n := len(m.GPU.UUID)
	if twin, ok := repeated(m.GPU.UUID); ok {
		return fmt.Errorf("two GPUs have the UUID %s", twin)
	}
	for part, columns := range map[string]map[string]Column{
		"mean": m.Mean, "min": m.Min, "max": m.Max, "last": m.Last,
	} {
		for column, values := range columns {
			if len(values) != n {
				return lengthError(part+"."+column, len(values), n)
			}
		}
	}
	for what, have := range map[string]int{
		"gpu.index": lengthOr(m.GPU.Index, n), "gpu.pci": lengthOr(m.GPU.PCI, n),
		"gpu.minor": lengthOr(m.GPU.Minor, n), "gpu.model": lengthOr(m.GPU.Model, n),
		"gpu.parent": lengthOr(m.GPU.Parent, n), "gpu.gi": lengthOr(m.GPU.GI, n), "gpu.ci": lengthOr(m.GPU.CI, n),
		"gpu.profile": lengthOr(m.GPU.Profile, n), "gpu.power_kind": lengthOr(m.GPU.PowerKind, n), "state": lengthOr(m.State, n),
	} {
		if have != n {
			return lengthError(what, have, n)
		}
	}
	for _, p := range m.Procs {
		if p.GPU < 0 || p.GPU >= n {
			return fmt.Errorf("process %d is on GPU %d of %d", p.PID, p.GPU, n)
		}
	}
	for _, l := range m.NVLinks {
		if l.GPU < 0 || l.GPU >= n {
			return fmt.Errorf("NVLink %d is on GPU %d of %d", l.Link, l.GPU, n)
		}
	}
	return nil
}

func repeated(names []string) (string, bool) {
	seen := make(map[string]bool, len(names))
	for _, n := range names {
		if seen[n] {
			return n, true
		}
		seen[n] = true
	}
	return "", false
}

// lengthOr is the length of a column, or n where there is none.
func lengthOr[T any](column []T, n int) int {
	if column == nil {
		return n
	}
	return len(column)
}

func lengthError(what string, have, want int) error {
	return fmt.Errorf("%s has %d entries for %d GPUs", what, have, want)
}

func (m *JobSample) check() error {
	if err := m.GpuSample.check(); err != nil {
		return err
	}
	n := len(m.GPU.UUID)
	if len(m.Job) != n {
		return lengthError("job", len(m.Job), n)
	}
	if have := lengthOr(m.JobSource, n); have != n {
		return lengthError("job_source", have, n)
	}
	return nil
}

func (m *JobEvent) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("job_id", m.JobID))
}

func (m *NodeState) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("node", m.Node))
}

func (m *ClusterState) check() error { return errors.Join(after1970(m.TS), name("cluster", m.Cluster)) }

func (m *Finding) check() error {
	if f := float64(m.Confidence); math.IsNaN(f) || f < 0 || f > 1 {
		return fmt.Errorf("confidence %v is not between 0 and 1", f)
	}
	for _, e := range m.Evidence {
		switch e.Value.(type) {
		case []any, map[string]any, []byte, bool:
			return fmt.Errorf("value of %s is neither a number nor text", e.Metric)
		}
	}
	return errors.Join(after1970(m.TS), after1970(m.FirstTS), name("cluster", m.Cluster))
}

func (m *DrainAction) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("node", m.Node))
}

func (m *DeadLetter) check() error { return errors.Join(after1970(m.TS), name("cluster", m.Cluster)) }

func (m *HealthResult) settle() {
	oneOf(&m.Outcome, outcomes...)
	oneOf(&m.Phase, phases...)
}

func (m *HealthRun) settle() {
	oneOf(&m.Phase, phases...)
	oneOf(&m.Verdict, "pass", "fail", "would_fail", "refused")
	optionalOneOf(&m.Enforcement, "on", "off", "breaker_open", "breaker_unknown", "not_ours")
	for i := range m.Results {
		oneOf(&m.Results[i].Outcome, outcomes...)
	}
}

func (m *HealthRequest) settle() {}

func (m *SlurmTable) settle() {}

func (m *JobRecord) settle() {}

var (
	outcomes = []Outcome{"ok", "warn", "bad", "off"}
	phases   = []HealthPhase{"prolog", "epilog", "task_prolog", "periodic", "nagios", "app", "request"}
)

func (m *HealthResult) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("node", m.Node), name("run", m.Run),
		name("check", m.Check), seen(m.Evidence))
}

// seen refuses evidence whose values are no plain ones.
func seen(evidence []HealthEvidence) error {
	for _, e := range evidence {
		for _, value := range []any{e.Value, e.Limit} {
			switch value.(type) {
			case []any, map[string]any, []byte:
				return fmt.Errorf("value of %s is neither a number, a truth nor text", e.What)
			}
		}
	}
	return nil
}

func (m *HealthRun) check() error {
	errs := []error{after1970(m.TS), name("cluster", m.Cluster), name("node", m.Node), name("run", m.Run)}
	for _, result := range m.Results {
		errs = append(errs, seen(result.Evidence))
	}
	return errors.Join(errs...)
}

func (m *HealthRequest) check() error {
	errs := []error{after1970(m.TS), name("cluster", m.Cluster), name("node", m.Node)}
	for _, check := range m.Checks {
		errs = append(errs, name("a check", check))
	}
	return errors.Join(errs...)
}

func (m *SlurmTable) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("table", m.Table), name("feed", m.Feed),
		name("snapshot", m.Snapshot))
}

func (m *JobRecord) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("job_id", m.JobID), name("run", m.Run),
		name("state", m.State))
}

func (m *JobSummary) settle() {}

func (m *JobSummary) check() error {
	return errors.Join(after1970(m.TS), name("cluster", m.Cluster), name("job_id", m.JobID), name("run", m.Run),
		notNegative(&m.ActiveGPUS, m.BusyGPUS, &m.IdleGPUS, m.UnknownGPUS, m.LostGPUS, m.AllocatedGPUS, m.BeyondGPUS,
			m.EnergyJ, m.EnergyGPUS))
}

// notNegative refuses amounts below nothing.
func notNegative(amounts ...*Number) error {
	for _, amount := range amounts {
		if amount != nil && *amount < 0 {
			return fmt.Errorf("an amount is negative: %v", *amount)
		}
	}
	return nil
}
