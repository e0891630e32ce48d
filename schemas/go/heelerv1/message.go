package heelerv1

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// Headers of a message on the bus.
const (
	ContentType       = "application/msgpack"
	HeaderContentType = "Content-Type"
	HeaderType        = "Heeler-Type"
	HeaderMsgID       = "Nats-Msg-Id"
)

var errNotFinite = errors.New("number is not finite")

// Message is any message of this package.
type Message interface {
	msgp.Marshaler
	msgp.Unmarshaler
	msgp.Sizer
	// Type is the name of the type, such as GpuSample.
	Type() string
	// Subject is where the message goes.
	Subject() (string, error)
	version() int
	// settle turns enum values of a newer writer into "unknown".
	settle()
	// check refuses what the schema cannot say in the types.
	check() error
}

// TypeHeader is the value of the Heeler-Type header of m.
func TypeHeader(m Message) string { return m.Type() + "/" + strconv.Itoa(Version) }

// New returns an empty message of the named type, or nil when there is no such type.
func New(messageType string) Message {
	switch messageType {
	case "GpuSample":
		return &GpuSample{}
	case "IbSample":
		return &IbSample{}
	case "HostSample":
		return &HostSample{}
	case "SwitchSample":
		return &SwitchSample{}
	case "KernelEvent":
		return &KernelEvent{}
	case "AgentStatus":
		return &AgentStatus{}
	case "Inventory":
		return &Inventory{}
	case "PrologEvent":
		return &PrologEvent{}
	case "HealthResult":
		return &HealthResult{}
	case "HealthRun":
		return &HealthRun{}
	case "HealthRequest":
		return &HealthRequest{}
	case "SlurmTable":
		return &SlurmTable{}
	case "JobRecord":
		return &JobRecord{}
	case "JobSummary":
		return &JobSummary{}
	case "JobEvent":
		return &JobEvent{}
	case "NodeState":
		return &NodeState{}
	case "ClusterState":
		return &ClusterState{}
	case "JobSample":
		return &JobSample{}
	case "JobKernelEvent":
		return &JobKernelEvent{}
	case "Finding":
		return &Finding{}
	case "DrainAction":
		return &DrainAction{}
	case "DrainCommand":
		return &DrainCommand{}
	case "DrainQuestion":
		return &DrainQuestion{}
	case "DrainAnswer":
		return &DrainAnswer{}
	case "DeadLetter":
		return &DeadLetter{}
	default:
		return nil
	}
}

// Types are the names of all message types.
func Types() []string {
	return []string{
		"GpuSample", "IbSample", "HostSample", "SwitchSample", "KernelEvent", "AgentStatus", "Inventory", "PrologEvent",
		"HealthResult", "HealthRun", "HealthRequest", "JobEvent", "NodeState",
		"ClusterState", "SlurmTable", "JobRecord", "JobSummary", "JobSample", "JobKernelEvent", "Finding", "DrainAction",
		"DrainCommand", "DrainQuestion", "DrainAnswer", "DeadLetter",
	}
}

// Encode checks m and returns its payload.
func Encode(m Message) ([]byte, error) {
	if m.version() != Version {
		return nil, fmt.Errorf("%s: version is %d, not %d", m.Type(), m.version(), Version)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Type(), err)
	}
	data, err := m.MarshalMsg(make([]byte, 0, m.Msgsize()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Type(), err)
	}
	return data, nil
}

// Decode reads a payload into m, which should be empty.
func Decode(payload []byte, m Message) error {
	clean, err := scan(payload, required(m.Type()))
	if err != nil {
		return fmt.Errorf("%s: %w", m.Type(), err)
	}
	if _, err := m.UnmarshalMsg(clean); err != nil {
		return fmt.Errorf("%s: %w", m.Type(), err)
	}
	if m.version() != Version {
		return fmt.Errorf("%s: version is %d, not %d", m.Type(), m.version(), Version)
	}
	m.settle()
	if err := m.check(); err != nil {
		return fmt.Errorf("%s: %w", m.Type(), err)
	}
	return nil
}

// DecodeAs reads a payload whose type the Heeler-Type header names, such as "GpuSample/1".
func DecodeAs(typeHeader string, payload []byte) (Message, error) {
	for _, name := range Types() {
		if m := New(name); TypeHeader(m) == typeHeader {
			return m, Decode(payload, m)
		}
	}
	return nil, fmt.Errorf("no message type %q", typeHeader)
}

// Type implements [Message].
func (*GpuSample) Type() string { return "GpuSample" }

// Type implements [Message].
func (*IbSample) Type() string { return "IbSample" }

// Type implements [Message].
func (*HostSample) Type() string { return "HostSample" }

// Type implements [Message].
func (*SwitchSample) Type() string { return "SwitchSample" }

// Type implements [Message].
func (*KernelEvent) Type() string { return "KernelEvent" }

// Type implements [Message].
func (*AgentStatus) Type() string { return "AgentStatus" }

// Type implements [Message].
func (*Inventory) Type() string { return "Inventory" }

// Type implements [Message].
func (*PrologEvent) Type() string { return "PrologEvent" }

// Type implements [Message].
func (*HealthResult) Type() string { return "HealthResult" }

// Type implements [Message].
func (*HealthRun) Type() string { return "HealthRun" }

// Type implements [Message].
func (*HealthRequest) Type() string { return "HealthRequest" }

// Type implements [Message].
func (*SlurmTable) Type() string { return "SlurmTable" }

// Type implements [Message].
func (*JobRecord) Type() string { return "JobRecord" }

// Type implements [Message].
func (*JobSummary) Type() string { return "JobSummary" }

// Type implements [Message].
func (*JobEvent) Type() string { return "JobEvent" }

// Type implements [Message].
func (*NodeState) Type() string { return "NodeState" }

// Type implements [Message].
func (*ClusterState) Type() string { return "ClusterState" }

// Type implements [Message].
func (*JobSample) Type() string { return "JobSample" }

// Type implements [Message].
func (*JobKernelEvent) Type() string { return "JobKernelEvent" }

// Type implements [Message].
func (*Finding) Type() string { return "Finding" }

// Type implements [Message].
func (*DrainAction) Type() string { return "DrainAction" }

// Type implements [Message].
func (*DeadLetter) Type() string { return "DeadLetter" }

func (h *Header) version() int        { return h.V }
func (m *JobEvent) version() int      { return m.V }
func (m *HealthResult) version() int  { return m.V }
func (m *HealthRun) version() int     { return m.V }
func (m *HealthRequest) version() int { return m.V }
func (m *SlurmTable) version() int    { return m.V }
func (m *JobRecord) version() int     { return m.V }
func (m *JobSummary) version() int    { return m.V }
func (m *NodeState) version() int     { return m.V }
func (m *ClusterState) version() int  { return m.V }
func (m *Finding) version() int       { return m.V }
func (m *DrainAction) version() int   { return m.V }
func (m *DeadLetter) version() int    { return m.V }

// Subject implements [Message].
func (m *GpuSample) Subject() (string, error) { return subject(m.Cluster, "gpu.sample", m.Node) }

// Subject implements [Message].
func (m *IbSample) Subject() (string, error) { return subject(m.Cluster, "ib.sample", m.Node) }

// Subject implements [Message].
func (m *HostSample) Subject() (string, error) { return subject(m.Cluster, "host.sample", m.Node) }

// Subject implements [Message].
func (m *SwitchSample) Subject() (string, error) { return subject(m.Cluster, "switch.sample", m.Node) }

// Subject implements [Message].
func (m *KernelEvent) Subject() (string, error) { return subject(m.Cluster, "kernel.event", m.Node) }

// Subject implements [Message].
func (m *AgentStatus) Subject() (string, error) { return subject(m.Cluster, "agent.status", m.Node) }

// Subject implements [Message].
func (m *Inventory) Subject() (string, error) { return subject(m.Cluster, "agent.inventory", m.Node) }

// Subject implements [Message].
func (m *PrologEvent) Subject() (string, error) { return subject(m.Cluster, "prolog.event", m.Node) }

// Subject implements [Message].
func (m *HealthResult) Subject() (string, error) { return subject(m.Cluster, "health.result", m.Node) }

// Subject implements [Message].
func (m *HealthRun) Subject() (string, error) { return subject(m.Cluster, "health.run", m.Node) }

// Subject implements [Message].
func (m *HealthRequest) Subject() (string, error) {
	return subject(m.Cluster, "health.request", m.Node)
}

// Subject implements [Message].
func (m *SlurmTable) Subject() (string, error) {
	return subject(m.Cluster, "slurm.table", m.Table, m.Feed, strconv.FormatUint(m.Part, 10))
}

// Subject implements [Message].
func (m *JobRecord) Subject() (string, error) {
	return subject(m.Cluster, "slurm.record", m.JobID, m.Run)
}

// Subject implements [Message].
func (m *JobSummary) Subject() (string, error) {
	return subject(m.Cluster, "job.summary", m.JobID, m.Run)
}

// Subject implements [Message].
func (m *JobEvent) Subject() (string, error) { return subject(m.Cluster, "slurm.job", m.JobID) }

// Subject implements [Message].
func (m *NodeState) Subject() (string, error) { return subject(m.Cluster, "slurm.node", m.Node) }

// Subject implements [Message].
func (m *ClusterState) Subject() (string, error) {
	return subject(m.Cluster, "slurm.cluster", m.Feed)
}

// Subject implements [Message].
func (m *JobSample) Subject() (string, error) {
	return subject(m.Cluster, "job.sample", strconv.FormatUint(m.Shard, 10), m.Node)
}

// Subject implements [Message].
func (m *JobKernelEvent) Subject() (string, error) {
	return subject(m.Cluster, "job.event", strconv.FormatUint(m.Shard, 10), m.Node)
}

// Subject implements [Message].
func (m *Finding) Subject() (string, error) {
	node := m.Node
	if node == "" {
		node = "_"
	}
	return subject(m.Cluster, "finding", m.Kind, node, m.ID)
}

// Subject implements [Message].
func (m *DrainAction) Subject() (string, error) { return subject(m.Cluster, "drain.action", m.Node) }

// Subject implements [Message]: dead letters of no stream go to dead._.
func (m *DeadLetter) Subject() (string, error) {
	stream := m.Stream
	if stream == "" {
		stream = "_"
	}
	return subject(m.Cluster, "dead", stream)
}
