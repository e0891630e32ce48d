package heelerv1

// SlurmTable is a part of a table that Slurm was asked for, as columns.
type SlurmTable struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	// Feed: which feed.
	Feed string `msg:"feed"`
	// Table: name of the table, such as jobs.
	Table string `msg:"table"`
	TS    int64  `msg:"ts"`
	// Snapshot: id of the whole table; the same in all its parts.
	Snapshot string `msg:"snapshot"`
	// Part: number of this part, from 0.
	Part uint64 `msg:"part"`
	// Parts: how many parts there are.
	Parts uint64 `msg:"parts"`
	// Rows: rows in this part.
	Rows uint64 `msg:"rows"`
	// Columns: one entry a row in every column; null is not known.
	Columns map[string][]any `msg:"columns"`
	// Absent: columns that this source or version of Slurm does not tell.
	Absent map[string]string `msg:"absent,omitempty,allownil"`
	// TotalRows: rows in all parts.
	TotalRows *uint64 `msg:"total_rows,omitempty"`
	// Unreadable: rows that could not be read, in all parts: they are not in the table.
	Unreadable *uint64 `msg:"unreadable,omitempty"`
	// Source: how Slurm was asked, such as squeue --json=v0.0.42.
	Source string `msg:"source,omitempty"`
	// SlurmVersion: version of Slurm.
	SlurmVersion string `msg:"slurm_version,omitempty"`
	// DurationNS: time that the question took.
	DurationNS *uint64 `msg:"duration_ns,omitempty"`
}

// JobRecord is what Slurm's accounting has of one run of a job.
type JobRecord struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	TS      int64  `msg:"ts"`
	// JobID: id as Slurm has it inside: an array task's own number.
	JobID string `msg:"job_id"`
	// Run: which run of that id: its start in seconds since the epoch, or s and its submission where it never started.
	Run string `msg:"run"`
	// ShownID: id as Slurm prints it, such as 123_4 or 4+1.
	ShownID string `msg:"shown_id,omitempty"`
	// ArrayJobID: array.
	ArrayJobID string `msg:"array_job_id,omitempty"`
	// ArrayTaskID: task; a range where the record stands for several tasks.
	ArrayTaskID string `msg:"array_task_id,omitempty"`
	// HetJobID: first job of a het job.
	HetJobID string `msg:"het_job_id,omitempty"`
	// HetOffset: component.
	HetOffset *uint64 `msg:"het_offset,omitempty"`
	// SlurmCluster: cluster in accounting.
	SlurmCluster string `msg:"slurm_cluster,omitempty"`
	// State: state, such as COMPLETED.
	State string `msg:"state"`
	// StateRaw: as Slurm wrote it.
	StateRaw string `msg:"state_raw,omitempty"`
	// CancelledBy: user or uid that cancelled it.
	CancelledBy string `msg:"cancelled_by,omitempty"`
	// Reason: why it waited last.
	Reason string `msg:"reason,omitempty"`
	// Flags: how it was scheduled.
	Flags []string `msg:"flags,omitempty,allownil"`
	// User: user.
	User string `msg:"user,omitempty"`
	// UID: user id.
	UID *uint64 `msg:"uid,omitempty"`
	// Group: group.
	Group string `msg:"group,omitempty"`
	// GID: group id.
	GID *uint64 `msg:"gid,omitempty"`
	// Account: account.
	Account string `msg:"account,omitempty"`
	// Partition: partition.
	Partition string `msg:"partition,omitempty"`
	// QOS: QOS.
	QOS string `msg:"qos,omitempty"`
	// Name: job name.
	Name string `msg:"name,omitempty"`
	// WorkDir: working directory.
	WorkDir string `msg:"work_dir,omitempty"`
	// SubmitLine: command line.
	SubmitLine string `msg:"submit_line,omitempty"`
	// Comment: comment.
	Comment string `msg:"comment,omitempty"`
	// AdminComment: comment of operators.
	AdminComment string `msg:"admin_comment,omitempty"`
	// SystemComment: comment of the system.
	SystemComment string `msg:"system_comment,omitempty"`
	// WCKey: workload key.
	WCKey string `msg:"wckey,omitempty"`
	// Container: container.
	Container string `msg:"container,omitempty"`
	// Constraints: features asked for.
	Constraints string `msg:"constraints,omitempty"`
	// Reservation: reservation.
	Reservation string `msg:"reservation,omitempty"`
	// SubmitTS: submission.
	SubmitTS *int64 `msg:"submit_ts,omitempty"`
	// EligibleTS: could run from.
	EligibleTS *int64 `msg:"eligible_ts,omitempty"`
	// StartTS: start.
	StartTS *int64 `msg:"start_ts,omitempty"`
	// EndTS: end.
	EndTS *int64 `msg:"end_ts,omitempty"`
	// ElapsedS: run time, suspension not counted; of a part of a run that was resized its own alone.
	ElapsedS *Number `msg:"elapsed_s,omitempty"`
	// PartStartTS: when this part of a run that was resized before began; StartTS is that of the run.
	PartStartTS *int64 `msg:"part_start_ts,omitempty"`
	// SuspendedS: time suspended.
	SuspendedS *Number `msg:"suspended_s,omitempty"`
	// WaitS: from when it could run to its start; of a run after a requeue from its own submission.
	WaitS *Number `msg:"wait_s,omitempty"`
	// TimeLimitS: limit.
	TimeLimitS *Number `msg:"time_limit_s,omitempty"`
	// TimeUnlimited: there is none.
	TimeUnlimited *bool `msg:"time_unlimited,omitempty"`
	// ExitCode: exit status; nil before its end.
	ExitCode *uint64 `msg:"exit_code,omitempty"`
	// Signal: signal that ended it, 0 for none; nil before its end.
	Signal *uint64 `msg:"signal,omitempty"`
	// DerivedExitCode: highest exit status of its steps; nil before its end.
	DerivedExitCode *uint64 `msg:"derived_exit_code,omitempty"`
	// Nodes: host list.
	Nodes string `msg:"nodes,omitempty"`
	// NodeCount: nodes allocated.
	NodeCount *uint64 `msg:"node_count,omitempty"`
	// CPUs: processors allocated.
	CPUs *uint64 `msg:"cpus,omitempty"`
	// ReqTRES: asked for. Amounts by name: cpu, mem (bytes), node, billing, energy (J), gres/gpu, gres/gpu:h100.
	ReqTRES map[string]Number `msg:"req_tres,omitempty,allownil"`
	// AllocTRES: allocated. Amounts by name: cpu, mem (bytes), node, billing, energy (J), gres/gpu, gres/gpu:h100.
	AllocTRES map[string]Number `msg:"alloc_tres,omitempty,allownil"`
	// GPUs: GPUs allocated.
	GPUs *uint64 `msg:"gpus,omitempty"`
	// GPUsRequested: GPUs asked for.
	GPUsRequested *uint64 `msg:"gpus_requested,omitempty"`
	// GPUsByType: allocated by type.
	GPUsByType map[string]uint64 `msg:"gpus_by_type,omitempty,allownil"`
	// Priority: priority.
	Priority *Number `msg:"priority,omitempty"`
	// Restarts: restarts.
	Restarts *uint64 `msg:"restarts,omitempty"`
	// EnergyJ: energy.
	EnergyJ *Number `msg:"energy_j,omitempty"`
	// UserCPUS: processor time, user.
	UserCPUS *Number `msg:"user_cpu_s,omitempty"`
	// SystemCPUS: processor time, system.
	SystemCPUS *Number `msg:"system_cpu_s,omitempty"`
	// Steps: steps.
	Steps []JobStep `msg:"steps,omitempty,allownil"`
	// StepsLeftOut: steps that the record leaves out.
	StepsLeftOut *uint64 `msg:"steps_left_out,omitempty"`
	// Fields: further fields of sacct, verbatim, by their names.
	Fields map[string]string `msg:"fields,omitempty,allownil"`
	// Source: how accounting was asked.
	Source string `msg:"source,omitempty"`
	// SlurmVersion: version of Slurm.
	SlurmVersion string `msg:"slurm_version,omitempty"`
}

// JobStep is a step.
type JobStep struct {
	// Step: batch, extern, interactive or a number; 1+0 is component 0 of het step 1.
	Step string `msg:"step"`
	// Name: name.
	Name string `msg:"name,omitempty"`
	// State: slurm's state.
	State string `msg:"state,omitempty"`
	// ExitCode: exit status; nil before its end.
	ExitCode *uint64 `msg:"exit_code,omitempty"`
	// Signal: signal that ended it, 0 for none; nil before its end.
	Signal *uint64 `msg:"signal,omitempty"`
	// StartTS: start.
	StartTS *int64 `msg:"start_ts,omitempty"`
	// EndTS: end.
	EndTS *int64 `msg:"end_ts,omitempty"`
	// ElapsedS: run time.
	ElapsedS *Number `msg:"elapsed_s,omitempty"`
	// SuspendedS: time suspended.
	SuspendedS *Number `msg:"suspended_s,omitempty"`
	// Tasks: tasks.
	Tasks *uint64 `msg:"tasks,omitempty"`
	// Nodes: host list.
	Nodes string `msg:"nodes,omitempty"`
	// NodeCount: nodes.
	NodeCount *uint64 `msg:"node_count,omitempty"`
	// CPUs: processors.
	CPUs *uint64 `msg:"cpus,omitempty"`
	// AllocTRES: allocated. Amounts by name: cpu, mem (bytes), node, billing, energy (J), gres/gpu, gres/gpu:h100.
	AllocTRES map[string]Number `msg:"alloc_tres,omitempty,allownil"`
	// UserCPUS: processor time, user.
	UserCPUS *Number `msg:"user_cpu_s,omitempty"`
	// SystemCPUS: processor time, system.
	SystemCPUS *Number `msg:"system_cpu_s,omitempty"`
	// MaxRSSBytes: largest resident set of a task.
	MaxRSSBytes *uint64 `msg:"max_rss_bytes,omitempty"`
	// MaxVmsizeBytes: largest virtual memory of a task.
	MaxVmsizeBytes *uint64 `msg:"max_vmsize_bytes,omitempty"`
	// EnergyJ: energy.
	EnergyJ *Number `msg:"energy_j,omitempty"`
	// UsageInTot: used in all, incoming. Amounts by name: cpu, mem (bytes), node, billing, energy (J), gres/gpu, gres/gpu:h100.
	UsageInTot map[string]Number `msg:"usage_in_tot,omitempty,allownil"`
	// UsageOutTot: used in all, outgoing. Amounts by name: cpu, mem (bytes), node, billing, energy (J), gres/gpu, gres/gpu:h100.
	UsageOutTot map[string]Number `msg:"usage_out_tot,omitempty,allownil"`
	// Fields: further fields of sacct, verbatim, by their names.
	Fields map[string]string `msg:"fields,omitempty,allownil"`
}
