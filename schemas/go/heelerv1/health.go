package heelerv1

// HealthResult is what one check says of a node.
type HealthResult struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	Node    string `msg:"node"`
	TS      int64  `msg:"ts"`
	// Boot: boot id of the node.
	Boot string `msg:"boot"`
	// Seq: counts this writer's messages since boot; (node, boot, seq) names a message.
	Seq uint64 `msg:"seq"`
	// Run: id of the run, the same for all checks of it.
	Run string `msg:"run"`
	// Phase: what it was run for.
	Phase HealthPhase `msg:"phase"`
	// Check: name of the check, such as gpu_count.
	Check string `msg:"check"`
	// Outcome: ok, warn, bad; unknown: could not tell; off: not run, by policy.
	Outcome Outcome `msg:"outcome"`
	// Why: one sentence for people.
	Why string `msg:"why"`
	// DurationNS: how long it took, from the start of the run to its word.
	DurationNS *uint64 `msg:"duration_ns,omitempty"`
	// Evidence: what was seen.
	Evidence []HealthEvidence `msg:"evidence,omitempty,allownil"`
	// GPUs: the GPUs that it concerns.
	GPUs []string `msg:"gpus,omitempty,allownil"`
	// Perf: numbers for graphs, by name with unit, such as temp_max_c.
	Perf map[string]Number `msg:"perf,omitempty,allownil"`
	// Fails: by policy this outcome fails the run.
	Fails *bool `msg:"fails,omitempty"`
	// TimedOut: it was ended at its deadline.
	TimedOut *bool `msg:"timed_out,omitempty"`
	// Hung: it could not even be killed: a process waits in the kernel.
	Hung *bool `msg:"hung,omitempty"`
	// JobID: the job that begins or ends.
	JobID string `msg:"job_id,omitempty"`
	// User: its user.
	User string `msg:"user,omitempty"`
	// Partition: its partition.
	Partition string `msg:"partition,omitempty"`
	// SlurmState: the node's state in Slurm as last heard, such as IDLE+DRAIN.
	SlurmState string `msg:"slurm_state,omitempty"`
	// SlurmReason: the reason of a drain as last heard.
	SlurmReason string `msg:"slurm_reason,omitempty"`
	// SlurmStateAgeS: how old that is.
	SlurmStateAgeS *Number `msg:"slurm_state_age_s,omitempty"`
}

// HealthEvidence is one thing that was seen.
type HealthEvidence struct {
	// What: what was looked at, such as pcie_width.
	What string `msg:"what"`
	// Value: what was found.
	Value any `msg:"value,omitempty"`
	// Limit: what it was held against.
	Limit any `msg:"limit,omitempty"`
	// Unit: unit of both, such as ratio or bytes.
	Unit string `msg:"unit,omitempty"`
	// GPUUUID: the GPU.
	GPUUUID string `msg:"gpu_uuid,omitempty"`
	// GPUIndex: its NVML index.
	GPUIndex *uint64 `msg:"gpu_index,omitempty"`
	// PCI: PCI address.
	PCI string `msg:"pci,omitempty"`
	// Device: another device: port, disk, mount, process, service.
	Device string `msg:"device,omitempty"`
	// Text: the line or words that it was read from, at most 500 characters.
	Text string `msg:"text,omitempty"`
}

// HealthRun is what a run of checks came to.
type HealthRun struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	Node    string `msg:"node"`
	TS      int64  `msg:"ts"`
	// Boot: boot id of the node.
	Boot string `msg:"boot"`
	// Seq: counts this writer's messages since boot; (node, boot, seq) names a message.
	Seq uint64 `msg:"seq"`
	// Run: id of the run.
	Run string `msg:"run"`
	// Phase: what it was run for.
	Phase HealthPhase `msg:"phase"`
	// Verdict: fail: the exit status said so; would_fail: it would have, but enforcement is off; refused: nothing was run.
	Verdict HealthVerdict `msg:"verdict"`
	// Why: one sentence for people.
	Why string `msg:"why"`
	// Enforcement: why a bad outcome did or did not fail the run.
	Enforcement Enforcement `msg:"enforcement,omitempty"`
	// ExitCode: exit status given to the caller.
	ExitCode *int64 `msg:"exit_code,omitempty"`
	// Reason: what Slurm shows as the reason of a drain, where the run set one.
	Reason string `msg:"reason,omitempty"`
	// Counts: checks by outcome.
	Counts map[string]uint64 `msg:"counts,omitempty,allownil"`
	// Failed: checks whose outcome fails a run by policy.
	Failed []string `msg:"failed,omitempty,allownil"`
	// DurationNS: from start to verdict.
	DurationNS *uint64 `msg:"duration_ns,omitempty"`
	// JobID: the job that begins or ends.
	JobID string `msg:"job_id,omitempty"`
	// User: its user.
	User string `msg:"user,omitempty"`
	// Partition: its partition.
	Partition string `msg:"partition,omitempty"`
	// GPUs: the GPUs that the run was about.
	GPUs []string `msg:"gpus,omitempty,allownil"`
	// Killed: leftover processes that were ended.
	Killed []KilledProcess `msg:"killed,omitempty,allownil"`
	// Version: version of heeler-health.
	Version string `msg:"version,omitempty"`
	// Policy: digest of the policy in force.
	Policy string `msg:"policy,omitempty"`
	// Results: the results, in an answer to a request only.
	Results []HealthRunResult `msg:"results,omitempty,allownil"`
}

// KilledProcess is a process.
type KilledProcess struct {
	// PID: process.
	PID uint64 `msg:"pid"`
	// Comm: its name.
	Comm string `msg:"comm,omitempty"`
	// JobID: the ended job that its cgroup belongs to.
	JobID string `msg:"job_id,omitempty"`
	// Gone: it is gone.
	Gone *bool `msg:"gone,omitempty"`
}

// HealthRunResult is a result.
type HealthRunResult struct {
	// Check: name of the check, such as gpu_count.
	Check string `msg:"check"`
	// Outcome: ok, warn, bad; unknown: could not tell; off: not run, by policy.
	Outcome Outcome `msg:"outcome"`
	// Why: one sentence for people.
	Why string `msg:"why"`
	// DurationNS: how long it took, from the start of the run to its word.
	DurationNS *uint64 `msg:"duration_ns,omitempty"`
	// Evidence: what was seen.
	Evidence []HealthEvidence `msg:"evidence,omitempty,allownil"`
	// GPUs: the GPUs that it concerns.
	GPUs []string `msg:"gpus,omitempty,allownil"`
	// Perf: numbers for graphs, by name with unit, such as temp_max_c.
	Perf map[string]Number `msg:"perf,omitempty,allownil"`
	// Fails: by policy this outcome fails the run.
	Fails *bool `msg:"fails,omitempty"`
	// TimedOut: it was ended at its deadline.
	TimedOut *bool `msg:"timed_out,omitempty"`
	// Hung: it could not even be killed: a process waits in the kernel.
	Hung *bool `msg:"hung,omitempty"`
}

// HealthRequest asks a node to run checks now. The answer is a HealthRun with results.
type HealthRequest struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	Node    string `msg:"node"`
	TS      int64  `msg:"ts"`
	// ID: chosen by who asks; comes back as the run's id.
	ID string `msg:"id,omitempty"`
	// Checks: what to run. Names that the node's policy does not allow are refused, never commands.
	Checks []string `msg:"checks"`
	// Why: what for.
	Why string `msg:"why,omitempty"`
	// DeadlineTS: an answer after this is of no use: nothing is run.
	DeadlineTS *int64 `msg:"deadline_ts,omitempty"`
}

// Outcome is ok, warn, bad, unknown (it could not tell) or off (not run).
type Outcome string

// HealthPhase is what checks are run for: prolog, epilog, task_prolog, periodic, nagios, app, request or unknown.
type HealthPhase string

// HealthVerdict is pass, fail, would_fail, refused or unknown.
type HealthVerdict string

// Enforcement is on, off, breaker_open, breaker_unknown, not_ours or unknown.
type Enforcement string
