package heelerv1

// JobEvent says that a Slurm job started, changed or ended.
type JobEvent struct {
	V           int          `msg:"v"`
	Cluster     string       `msg:"cluster"`
	TS          int64        `msg:"ts"`
	Event       JobEventKind `msg:"event"`
	JobID       string       `msg:"job_id"`
	ArrayJobID  string       `msg:"array_job_id,omitempty"`
	ArrayTaskID string       `msg:"array_task_id,omitempty"`
	HetJobID    string       `msg:"het_job_id,omitempty"`
	User        string       `msg:"user,omitempty"`
	Account     string       `msg:"account,omitempty"`
	Partition   string       `msg:"partition,omitempty"`
	QOS         string       `msg:"qos,omitempty"`
	Name        string       `msg:"name,omitempty"`
	// State is Slurm's base state, such as RUNNING.
	State    string  `msg:"state,omitempty"`
	SubmitTS *int64  `msg:"submit_ts,omitempty"`
	StartTS  *int64  `msg:"start_ts,omitempty"`
	EndTS    *int64  `msg:"end_ts,omitempty"`
	Restarts *uint64 `msg:"restarts,omitempty"`
	// Nodes are those that the job holds.
	Nodes []string `msg:"nodes"`
	// Released are the nodes that a run that completes has given back already.
	Released []string `msg:"released,omitempty,allownil"`
	// GPUs are the indices that Slurm names, per node; a node that is missing has no known list.
	GPUs        map[string][]int64 `msg:"gpus,omitempty,allownil"`
	GPUsSource  GPUsSource         `msg:"gpus_source,omitempty"`
	GPUsPerNode *uint64            `msg:"gpus_per_node,omitempty"`
	Exclusive   *bool              `msg:"exclusive,omitempty"`
	Requeueable *bool              `msg:"requeueable,omitempty"`
	Requeued    *bool              `msg:"requeued,omitempty"`
	FailedNode  *string            `msg:"failed_node,omitempty"`
	Batch       *bool              `msg:"batch,omitempty"`
}

// JobEventKind is started, changed, ended or unknown.
type JobEventKind string

// GPUsSource says how a job's GPUs are known: slurm_index, whole_node, none or unknown.
type GPUsSource string

// NodeState is what Slurm says of a node.
type NodeState struct {
	V       int           `msg:"v"`
	Cluster string        `msg:"cluster"`
	Node    string        `msg:"node"`
	TS      int64         `msg:"ts"`
	Event   NodeEventKind `msg:"event,omitempty"`
	State   SlurmState    `msg:"state"`
	// Flags are upper case as Slurm spells them.
	Flags        []string `msg:"flags"`
	UnknownFlags []string `msg:"unknown_flags,omitempty,allownil"`
	Available    *bool    `msg:"available,omitempty"`
	Reason       string   `msg:"reason,omitempty"`
	ReasonUser   string   `msg:"reason_user,omitempty"`
	ReasonTS     *int64   `msg:"reason_ts,omitempty"`
	Partitions   []string `msg:"partitions,omitempty,allownil"`
	Features     []string `msg:"features,omitempty,allownil"`
	Gres         string   `msg:"gres,omitempty"`
	GresUsed     string   `msg:"gres_used,omitempty"`
	GPUsTotal    *uint64  `msg:"gpus_total,omitempty"`
	GPUsUsed     *uint64  `msg:"gpus_used,omitempty"`
	CPULoad      *Number  `msg:"cpu_load,omitempty"`
	BootTS       *int64   `msg:"boot_ts,omitempty"`
	Reservation  string   `msg:"reservation,omitempty"`
}

// NodeEventKind is seen, changed, gone or unknown.
type NodeEventKind string

// SlurmState is a node's base state: idle, allocated, mixed, down, error, future or unknown.
type SlurmState string

// ClusterState says whether the Slurm feed can see the controller.
type ClusterState struct {
	V          int             `msg:"v"`
	Cluster    string          `msg:"cluster"`
	Feed       string          `msg:"feed"`
	TS         int64           `msg:"ts"`
	Controller ControllerState `msg:"controller"`
	Why        string          `msg:"why,omitempty"`
	// LastSuccessTS is the last complete answer: all that was published since is that old.
	LastSuccessTS *int64  `msg:"last_success_ts,omitempty"`
	Jobs          *uint64 `msg:"jobs,omitempty"`
	Nodes         *uint64 `msg:"nodes,omitempty"`
	Source        string  `msg:"source,omitempty"`
	SlurmVersion  string  `msg:"slurm_version,omitempty"`
	DurationNS    *uint64 `msg:"duration_ns,omitempty"`
	// Unreadable counts rows of the last answers that could not be read, by table.
	Unreadable map[string]uint64 `msg:"unreadable,omitempty,allownil"`
	// Outages says why a table's last question was not answered.
	Outages map[string]string `msg:"outages,omitempty,allownil"`
}

// ControllerState is up, down or unknown.
type ControllerState string
