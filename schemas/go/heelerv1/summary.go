package heelerv1

// JobSummary is what the GPUs of one run of a job did. The newest of a subject counts.
type JobSummary struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	// TS: when this was written, nanoseconds since the epoch, UTC.
	TS int64 `msg:"ts"`
	// JobID: id as Slurm has it inside: an array task's own number.
	JobID string `msg:"job_id"`
	// Run: which run of that id: its start in seconds since the epoch, as in JobRecord.
	Run string `msg:"run"`
	// Final: the run has ended and all of it is counted; else more will follow.
	Final bool `msg:"final"`
	// UntilTS: up to when the run is counted: now and then while it runs, at last to its end.
	UntilTS int64 `msg:"until_ts"`
	// State: Slurm's state when last heard.
	State string `msg:"state,omitempty"`
	// StartTS: start of the run.
	StartTS *int64 `msg:"start_ts,omitempty"`
	// EndTS: end of the run; absent while it runs.
	EndTS *int64 `msg:"end_ts,omitempty"`
	// User: user.
	User string `msg:"user,omitempty"`
	// Account: account.
	Account string `msg:"account,omitempty"`
	// Partition: partition.
	Partition string `msg:"partition,omitempty"`
	// QOS: QOS.
	QOS string `msg:"qos,omitempty"`
	// Name: job name.
	Name string `msg:"name,omitempty"`
	// NodeCount: nodes when last heard.
	NodeCount *uint64 `msg:"node_count,omitempty"`
	// GPUs: GPUs that Slurm gave when last heard; absent where that is not known.
	GPUs *uint64 `msg:"gpus,omitempty"`
	// AllocatedGPUS: GPU seconds that Slurm gave: active, idle and unknown together. Absent where the number of GPUs is not known.
	AllocatedGPUS *Number `msg:"allocated_gpu_s,omitempty"`
	// ActiveGPUS: GPU seconds in windows with a utilisation of 5 % or more.
	ActiveGPUS Number `msg:"active_gpu_s"`
	// BusyGPUS: of the active ones, those in windows with 50 % or more.
	BusyGPUS *Number `msg:"busy_gpu_s,omitempty"`
	// IdleGPUS: GPU seconds in windows with a utilisation below 5 %.
	IdleGPUS Number `msg:"idle_gpu_s"`
	// UnknownGPUS: GPU seconds that nobody observed, or whose utilisation could not be read: never counted as idle. Absent where allocated_gpu_s is.
	UnknownGPUS *Number `msg:"unknown_gpu_s,omitempty"`
	// LostGPUS: GPU seconds in which a GPU of the run was lost or hung; part of the unknown ones.
	LostGPUS *Number `msg:"lost_gpu_s,omitempty"`
	// BeyondGPUS: GPU seconds observed beyond what Slurm gave: a job on GPUs that are not its own. In none of the others.
	BeyondGPUS *Number `msg:"beyond_gpu_s,omitempty"`
	// EnergyJ: energy, from the mean power of each window, over energy_gpu_s alone.
	EnergyJ *Number `msg:"energy_j,omitempty"`
	// EnergyGPUS: GPU seconds whose power could be read.
	EnergyGPUS *Number `msg:"energy_gpu_s,omitempty"`
	// Means: means over the GPU seconds in which a column of GpuSample.mean could be read.
	Means map[string]Number `msg:"means,omitempty,allownil"`
	// MeanGPUS: those GPU seconds, by column.
	MeanGPUS map[string]Number `msg:"mean_gpu_s,omitempty,allownil"`
	// Max: largest mean of a window of one GPU, by column.
	Max map[string]Number `msg:"max,omitempty,allownil"`
}
