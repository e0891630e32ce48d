package heelerv1

// Finding says that something is wrong, with evidence, impact and advice.
type Finding struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	// ID is stable over the life of the finding.
	ID         string       `msg:"id"`
	Kind       string       `msg:"kind"`
	State      FindingState `msg:"state"`
	Severity   Severity     `msg:"severity"`
	Confidence Number       `msg:"confidence"`
	Entity     Entity       `msg:"entity"`
	Node       string       `msg:"node,omitempty"`
	JobID      string       `msg:"job_id,omitempty"`
	Jobs       []string     `msg:"jobs,omitempty,allownil"`
	Cause      string       `msg:"cause,omitempty"`
	FirstTS    int64        `msg:"first_ts"`
	TS         int64        `msg:"ts"`
	DataTS     *int64       `msg:"data_ts,omitempty"`
	Evidence   []Evidence   `msg:"evidence"`
	Impact     *Impact      `msg:"impact,omitempty"`
	Advice     Advice       `msg:"advice"`
	// Summary is one sentence.
	Summary     string  `msg:"summary"`
	Code        *uint64 `msg:"code,omitempty"`
	Count       *uint64 `msg:"count,omitempty"`
	CloseReason string  `msg:"close_reason,omitempty"`
	// Incident is the id of the finding of kind incident that it is a part of.
	Incident string `msg:"incident,omitempty"`
}

// FindingState is open, update, closed or unknown.
type FindingState string

// Severity is info, warning, critical or unknown.
type Severity string

// Advice is none, observe, drain_after_job, drain_now, reset, reboot, rma, person or unknown.
type Advice string

// Entity is what a finding is about.
type Entity struct {
	Type     EntityType `msg:"type"`
	Node     string     `msg:"node,omitempty"`
	GpuUUID  string     `msg:"gpu_uuid,omitempty"`
	GpuIndex *uint64    `msg:"gpu_index,omitempty"`
	PCI      string     `msg:"pci,omitempty"`
	Port     string     `msg:"port,omitempty"`
	JobID    string     `msg:"job_id,omitempty"`
}

// EntityType is gpu, node, link, port, switch, job, agent or unknown.
type EntityType string

// Evidence is one thing that was seen.
type Evidence struct {
	Metric string `msg:"metric"`
	// Value is a number or a string.
	Value          any     `msg:"value,omitempty"`
	Unit           string  `msg:"unit,omitempty"`
	PeersMedian    *Number `msg:"peers_median,omitempty"`
	PeersMAD       *Number `msg:"peers_mad,omitempty"`
	Peers          *uint64 `msg:"peers,omitempty"`
	DeviationRatio *Number `msg:"deviation_ratio,omitempty"`
	Windows        *uint64 `msg:"windows,omitempty"`
	OfWindows      *uint64 `msg:"of_windows,omitempty"`
	Text           string  `msg:"text,omitempty"`
}

// Impact is what a finding costs.
type Impact struct {
	// JobSlowdownRatio is nil without a baseline of the job's own.
	JobSlowdownRatio *Number `msg:"job_slowdown_ratio,omitempty"`
}

// DrainAction is what the drainer did, or why it did not.
type DrainAction struct {
	V         int     `msg:"v"`
	Cluster   string  `msg:"cluster"`
	ID        string  `msg:"id"`
	FindingID string  `msg:"finding_id,omitempty"`
	Node      string  `msg:"node"`
	TS        int64   `msg:"ts"`
	Verdict   Verdict `msg:"verdict"`
	DryRun    bool    `msg:"dry_run"`
	// Reason is what Slurm shows.
	Reason    string         `msg:"reason,omitempty"`
	Why       string         `msg:"why"`
	Rule      string         `msg:"rule,omitempty"`
	Actor     string         `msg:"actor"`
	FindingTS *int64         `msg:"finding_ts,omitempty"`
	Kind      string         `msg:"kind,omitempty"`
	JobID     string         `msg:"job_id,omitempty"`
	Before    map[string]any `msg:"before,omitempty,allownil"`
	After     map[string]any `msg:"after,omitempty,allownil"`
	// Command is the operator's command that this answers.
	Command Command     `msg:"command,omitempty"`
	Breaker BreakerName `msg:"breaker,omitempty"`
	// UntilTS: until when a pause lasts.
	UntilTS *int64 `msg:"until_ts,omitempty"`
	// Step is what it is about; empty: the drain itself.
	Step DrainStep `msg:"step,omitempty"`
	// Next is what has to come after it.
	Next string `msg:"next,omitempty"`
	// Round is which try it is of a step that is done more than once.
	Round  *uint64        `msg:"round,omitempty"`
	Action string         `msg:"action,omitempty"`
	Advice string         `msg:"advice,omitempty"`
	Jobs   []string       `msg:"jobs,omitempty,allownil"`
	Answer map[string]any `msg:"answer,omitempty,allownil"`
}

// DrainStep is drain, wait, requeue, reset, reboot, check, undrain, person or unknown.
type DrainStep string

// Verdict is proposed, refused, approved, done, verified, failed, undrained, ordered, tripped, waiting, held or
// unknown.
type Verdict string

// DeadLetter is a message that could not be used.
type DeadLetter struct {
	V       int    `msg:"v"`
	Cluster string `msg:"cluster"`
	TS      int64  `msg:"ts"`
	// Origin is the subject that the message came on.
	Origin    string  `msg:"subject"`
	Stream    string  `msg:"stream,omitempty"`
	StreamSeq *uint64 `msg:"stream_seq,omitempty"`
	// OfType is the type that the message claimed.
	OfType  string  `msg:"type,omitempty"`
	Why     DeadWhy `msg:"why"`
	Error   string  `msg:"error"`
	By      string  `msg:"by"`
	Payload []byte  `msg:"payload,omitempty,allownil"`
}

// DeadWhy is undecodable, invalid, poison, hostile_subject or unknown.
type DeadWhy string
