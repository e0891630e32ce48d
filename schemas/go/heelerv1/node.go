package heelerv1

// Version is the version of every message type in this package.
const Version = 1

// Header is what each message of a node agent begins with.
type Header struct {
	// V is the version of the message type.
	V int `msg:"v"`
	// Cluster is the cluster's name as the site spells it.
	Cluster string `msg:"cluster"`
	// Node is the node's name as Slurm spells it.
	Node string `msg:"node"`
	// TS is nanoseconds since the epoch, UTC; for samples the end of the window.
	TS int64 `msg:"ts"`
	// Boot is the boot id of the node.
	Boot string `msg:"boot"`
	// Seq rises with each message of one type in one boot; (node, boot, seq) names a message.
	Seq uint64 `msg:"seq"`
}

// GpuSample is one node, one window, all its GPUs, as columns: each array has one entry per GPU in the order of
// GPU.UUID.
type GpuSample struct {
	Header `msg:",flatten"`
	// WindowNS is the length of the window.
	WindowNS uint64 `msg:"window_ns"`
	// Reads is the number of readings in the window.
	Reads uint64 `msg:"reads"`
	// GPU says who the GPUs are.
	GPU GpuColumns `msg:"gpu"`
	// Mean, Min and Max are over the readings of the window; Last holds counters and states at its end.
	Mean map[string]Column `msg:"mean"`
	Min  map[string]Column `msg:"min,omitempty,allownil"`
	Max  map[string]Column `msg:"max,omitempty,allownil"`
	Last map[string]Column `msg:"last"`
	// Absent says why a column could not be read.
	Absent map[string]string `msg:"absent,omitempty,allownil"`
	// State is one of the GpuState values per GPU, nil where not known.
	State []*GpuState `msg:"state,omitempty,allownil"`
	// Procs are the compute processes.
	Procs []Proc `msg:"procs,omitempty,allownil"`
	// NVLinks are the links that are not up, could not be read or have counted something.
	NVLinks []NVLinkRow `msg:"nvlinks,omitempty,allownil"`
}

// Column has one Value per GPU.
type Column []Value

// GpuColumns says who the GPUs of a sample are.
type GpuColumns struct {
	// UUID is the only stable name of a GPU.
	UUID []string `msg:"uuid"`
	// Index is the NVML index, which may shift when a GPU is lost.
	Index []*int64 `msg:"index,omitempty,allownil"`
	// PCI is the address as 0000:3b:00.
	PCI []*string `msg:"pci,omitempty,allownil"`
	// Minor is N of /dev/nvidiaN, which is what Slurm's IDX counts.
	Minor []*int64 `msg:"minor,omitempty,allownil"`
	// Model is the product name.
	Model []*string `msg:"model,omitempty,allownil"`
	// Parent is, for a MIG device, the UUID of its GPU.
	Parent []*string `msg:"parent,omitempty,allownil"`
	// GI, CI and Profile are those of a MIG device.
	GI      []*int64  `msg:"gi,omitempty,allownil"`
	CI      []*int64  `msg:"ci,omitempty,allownil"`
	Profile []*string `msg:"profile,omitempty,allownil"`
	// PowerKind says what power_w is: average or instant.
	PowerKind []*string `msg:"power_kind,omitempty,allownil"`
}

// GpuState says whether a GPU answers.
type GpuState string

// The states of a GPU.
const (
	GpuOK      GpuState = "ok"
	GpuLost    GpuState = "lost"
	GpuHung    GpuState = "hung"
	GpuUnknown GpuState = "unknown"
)

// IbSample holds all InfiniBand and RoCE ports of a node.
type IbSample struct {
	Header `msg:",flatten"`
	// WindowNS is the time since the previous sample of this writer.
	WindowNS *uint64 `msg:"window_ns,omitempty"`
	// Ports are in the order of device and port.
	Ports []IbPort `msg:"ports"`
	// Bonds are those of the ports' netdevs.
	Bonds []Bond `msg:"bonds,omitempty,allownil"`
	// Absent says what could not be read at all, and why.
	Absent map[string]string `msg:"absent,omitempty,allownil"`
}

// IbPort is one port as the kernel shows it.
type IbPort struct {
	Device    string      `msg:"device"`
	Port      uint64      `msg:"port"`
	GUID      string      `msg:"guid,omitempty"`
	Netdev    string      `msg:"netdev,omitempty"`
	LinkLayer LinkLayer   `msg:"link_layer,omitempty"`
	State     IbState     `msg:"state,omitempty"`
	PhysState IbPhysState `msg:"phys_state,omitempty"`
	// RateGbps means something only while the port is active.
	RateGbps *Number `msg:"rate_gbps,omitempty"`
	// Counters are as the kernel counts, except that port_xmit_data and port_rcv_data are bytes here.
	Counters map[string]uint64 `msg:"counters,omitempty,allownil"`
	// Saturated names counters that stand at the top of their width and say nothing any more.
	Saturated []string `msg:"saturated,omitempty,allownil"`
	// Absent names counters and files that could not be read, and why.
	Absent map[string]string `msg:"absent,omitempty,allownil"`
	// PCI is the address as 0000:3b:00.
	PCI   string  `msg:"pci,omitempty"`
	LID   *uint64 `msg:"lid,omitempty"`
	SMLID *uint64 `msg:"sm_lid,omitempty"`
	// Carrier and what follows are of the netdev.
	Carrier          *bool   `msg:"carrier,omitempty"`
	Operstate        string  `msg:"operstate,omitempty"`
	CarrierChanges   *uint64 `msg:"carrier_changes,omitempty"`
	CarrierDownCount *uint64 `msg:"carrier_down_count,omitempty"`
	SpeedMbps        *uint64 `msg:"speed_mbps,omitempty"`
	// Bond is the bond that the netdev belongs to.
	Bond string `msg:"bond,omitempty"`
}

// Bond is a bonding interface.
type Bond struct {
	Name      string      `msg:"name"`
	Mode      string      `msg:"mode,omitempty"`
	MIIStatus string      `msg:"mii_status,omitempty"`
	Slaves    []BondSlave `msg:"slaves,omitempty,allownil"`
}

// BondSlave is a member of a bond.
type BondSlave struct {
	Netdev       string  `msg:"netdev"`
	MIIStatus    string  `msg:"mii_status,omitempty"`
	LinkFailures *uint64 `msg:"link_failures,omitempty"`
}

// LinkLayer is infiniband, ethernet or unknown.
type LinkLayer string

// IbState is the logical state of a port: nop, down, init, armed, active, active_defer or unknown.
type IbState string

// IbPhysState is the physical state of a port: sleep, polling, disabled, training, link_up, link_error_recovery,
// phy_test or unknown.
type IbPhysState string

// HostSample is what a node's processors, memory and PCIe are doing.
type HostSample struct {
	Header `msg:",flatten"`
	// WindowNS is the time since the previous sample of this writer.
	WindowNS *uint64 `msg:"window_ns,omitempty"`
	CPUs     *uint64 `msg:"cpus,omitempty"`
	// CPURatio is the share of all CPU time in the window, by kind.
	CPURatio map[string]Number `msg:"cpu_ratio,omitempty,allownil"`
	Load1    *Number           `msg:"load1,omitempty"`
	Load5    *Number           `msg:"load5,omitempty"`
	Load15   *Number           `msg:"load15,omitempty"`
	// ProcsRunning and ProcsBlocked are threads, as /proc/stat counts them.
	ProcsRunning *uint64 `msg:"procs_running,omitempty"`
	ProcsBlocked *uint64 `msg:"procs_blocked,omitempty"`
	// ThreadsUninterruptible are in state D; Uninterruptible names some of their processes.
	ThreadsUninterruptible *uint64               `msg:"threads_uninterruptible,omitempty"`
	Uninterruptible        []UninterruptibleProc `msg:"uninterruptible,omitempty,allownil"`
	MemoryBytes            map[string]uint64     `msg:"memory_bytes,omitempty,allownil"`
	// Pressure is by resource and degree, such as memory_full.
	Pressure map[string]Pressure `msg:"pressure,omitempty,allownil"`
	Aer      []AerCounters       `msg:"aer,omitempty,allownil"`
	// Absent says what could not be read, and why.
	Absent map[string]string `msg:"absent,omitempty,allownil"`
}

// UninterruptibleProc is a process with a thread in state D.
type UninterruptibleProc struct {
	PID   uint64 `msg:"pid"`
	Comm  string `msg:"comm,omitempty"`
	JobID string `msg:"job_id,omitempty"`
}

// Pressure is how much tasks waited for a resource.
type Pressure struct {
	Avg10Ratio  *Number `msg:"avg10_ratio,omitempty"`
	Avg60Ratio  *Number `msg:"avg60_ratio,omitempty"`
	Avg300Ratio *Number `msg:"avg300_ratio,omitempty"`
	TotalS      *Number `msg:"total_s,omitempty"`
}

// AerCounters are the PCIe errors of a device since boot.
type AerCounters struct {
	// PCI is the address with its function, as 0000:3b:00.0.
	PCI string `msg:"pci"`
	// Class is gpu, network, infiniband, nvme, bridge or other.
	Class string `msg:"class,omitempty"`
	// Parent is the port above it.
	Parent      string  `msg:"parent,omitempty"`
	Correctable *uint64 `msg:"correctable,omitempty"`
	Nonfatal    *uint64 `msg:"nonfatal,omitempty"`
	Fatal       *uint64 `msg:"fatal,omitempty"`
	// Errors are the kinds that have counted something, as the kernel names them.
	Errors map[string]uint64 `msg:"errors,omitempty,allownil"`
}

// SwitchSample holds the NVSwitches of a node, as DCGM shows them.
type SwitchSample struct {
	Header `msg:",flatten"`
	// WindowNS is the time since the previous sample of this writer.
	WindowNS *uint64        `msg:"window_ns,omitempty"`
	Switches []NVSwitch     `msg:"switches"`
	Links    []NVSwitchLink `msg:"links,omitempty,allownil"`
	// Absent says what could not be read, and why.
	Absent map[string]string `msg:"absent,omitempty,allownil"`
}

// NVSwitch is one switch; the names of its values tell their units.
type NVSwitch struct {
	Switch uint64           `msg:"switch"`
	UUID   string           `msg:"uuid,omitempty"`
	PCI    string           `msg:"pci,omitempty"`
	Values map[string]Value `msg:"values,omitempty,allownil"`
}

// NVSwitchLink is one link of a switch.
type NVSwitchLink struct {
	Switch uint64           `msg:"switch"`
	Link   uint64           `msg:"link"`
	Values map[string]Value `msg:"values,omitempty,allownil"`
}

// KernelEvent is a kernel log line that matters, parsed into facts.
type KernelEvent struct {
	Header `msg:",flatten"`
	// ApproximateTS is true when TS was computed from the time since boot.
	ApproximateTS *bool `msg:"approximate_ts,omitempty"`
	// Kind says what the line is about.
	Kind EventKind `msg:"kind"`
	// Code is the XID or SXid number.
	Code *uint64 `msg:"code,omitempty"`
	// PCI is the address as 0000:3b:00.
	PCI string `msg:"pci,omitempty"`
	// UUID is that of the GPU, where known.
	UUID string `msg:"uuid,omitempty"`
	// GI and CI are the MIG instances.
	GI *uint64 `msg:"gi,omitempty"`
	CI *uint64 `msg:"ci,omitempty"`
	// PID and Comm are the process that the driver names.
	PID  *uint64 `msg:"pid,omitempty"`
	Comm string  `msg:"comm,omitempty"`
	// Text is the line after the code.
	Text string `msg:"text,omitempty"`
	// Detail holds the parsed parts of the text.
	Detail map[string]any `msg:"detail,omitempty,allownil"`
	// KmsgSeq is the sequence number of the kernel log record.
	KmsgSeq *uint64 `msg:"kmsg_seq,omitempty"`
	// TSMonoUS is microseconds since boot.
	TSMonoUS *uint64 `msg:"ts_mono_us,omitempty"`
	// Witness says who saw it: kmsg, nvml.
	Witness []string `msg:"witness,omitempty,allownil"`
	// Trusted is false when the record did not come from the kernel itself.
	Trusted *bool `msg:"trusted,omitempty"`
	// Count is how many equal lines this stands for.
	Count *uint64 `msg:"count,omitempty"`
	// Raw is the line as read, at most 1 KiB.
	Raw string `msg:"raw,omitempty"`
	// GpuState is what a fresh reading of that GPU said right after the line.
	GpuState GpuState `msg:"gpu_state,omitempty"`
}

// EventKind says what a kernel log line is about.
type EventKind string

// The kinds of kernel events.
const (
	KindXid        EventKind = "xid"
	KindSxid       EventKind = "sxid"
	KindGpuLost    EventKind = "gpu_lost"
	KindGpuUUID    EventKind = "gpu_uuid"
	KindAer        EventKind = "aer"
	KindMce        EventKind = "mce"
	KindEdac       EventKind = "edac"
	KindOom        EventKind = "oom"
	KindHungTask   EventKind = "hung_task"
	KindSoftLockup EventKind = "soft_lockup"
	KindLink       EventKind = "link"
	KindMlx5       EventKind = "mlx5"
	KindNvme       EventKind = "nvme"
	KindFsReadonly EventKind = "fs_readonly"
	KindRmInit     EventKind = "rm_init"
	KindPeermem    EventKind = "peermem"
	KindGpuEvent   EventKind = "gpu_event" // an event of NVML that is no XID
	KindThermal    EventKind = "thermal"
	KindRaid       EventKind = "raid"
	KindNvlink     EventKind = "nvlink"
	KindGap        EventKind = "gap"
	KindFlood      EventKind = "flood"
	KindUnknown    EventKind = "unknown"
)

// AgentStatus says how each collector of a node agent is doing.
type AgentStatus struct {
	Header `msg:",flatten"`
	// Version is that of the agent.
	Version string `msg:"version,omitempty"`
	// StartedTS is when this agent process started.
	StartedTS *int64 `msg:"started_ts,omitempty"`
	// IntervalNS is the time to the next status: silence of several intervals means that the agent is gone.
	IntervalNS *uint64 `msg:"interval_ns,omitempty"`
	// ClockOffsetNS is the clock of the node minus that of the bus server.
	ClockOffsetNS *int64 `msg:"clock_offset_ns,omitempty"`
	// ClockOffsetErrorNS is how far off that may be.
	ClockOffsetErrorNS *uint64 `msg:"clock_offset_error_ns,omitempty"`
	// Inventory is the digest of the newest Inventory.
	Inventory string `msg:"inventory,omitempty"`
	// Collectors are by name.
	Collectors map[string]CollectorStatus `msg:"collectors"`
	// DroppedSamples and DroppedEvents count what was lost since the agent started.
	DroppedSamples *uint64 `msg:"dropped_samples,omitempty"`
	SpoolEvents    *uint64 `msg:"spool_events,omitempty"`
	SpoolBytes     *uint64 `msg:"spool_bytes,omitempty"`
	DroppedEvents  *uint64 `msg:"dropped_events,omitempty"`
	// CPUS is the CPU time used since start, in seconds.
	CPUS     *Number `msg:"cpu_s,omitempty"`
	RSSBytes *uint64 `msg:"rss_bytes,omitempty"`
	// Goroutines and OpenFDs are the agent's own.
	Goroutines *uint64 `msg:"goroutines,omitempty"`
	OpenFDs    *uint64 `msg:"open_fds,omitempty"`
}

// CollectorStatus is how one collector is doing.
type CollectorStatus struct {
	State CollectorState `msg:"state,omitempty"`
	// Why is the reason when the state is not ok.
	Why           string  `msg:"why,omitempty"`
	LastSuccessTS *int64  `msg:"last_success_ts,omitempty"`
	DurationNS    *uint64 `msg:"duration_ns,omitempty"`
	Readings      *uint64 `msg:"readings,omitempty"`
	Failures      *uint64 `msg:"failures,omitempty"`
	Skipped       *uint64 `msg:"skipped,omitempty"`
	// Counts are the collector's own counters, such as rejected readings.
	Counts map[string]uint64 `msg:"counts,omitempty,allownil"`
}

// CollectorState is the state of a collector.
type CollectorState string

// The states of a collector.
const (
	CollectorOK      CollectorState = "ok"
	CollectorAbsent  CollectorState = "absent"
	CollectorFailing CollectorState = "failing"
	CollectorHung    CollectorState = "hung"
	CollectorOff     CollectorState = "off"
	CollectorUnknown CollectorState = "unknown"
)

// Inventory is what a node is made of.
type Inventory struct {
	Header `msg:",flatten"`
	// Digest changes when anything below does.
	Digest string `msg:"digest,omitempty"`
	Driver string `msg:"driver,omitempty"`
	CUDA   string `msg:"cuda,omitempty"`
	NVML   string `msg:"nvml,omitempty"`
	Kernel string `msg:"kernel,omitempty"`
	GPUs   []Gpu  `msg:"gpus"`
	HCAs   []Hca  `msg:"hcas,omitempty,allownil"`
}

// Gpu is one GPU of an inventory.
type Gpu struct {
	UUID         string  `msg:"uuid"`
	Index        *uint64 `msg:"index,omitempty"`
	PCI          string  `msg:"pci,omitempty"`
	Minor        *uint64 `msg:"minor,omitempty"`
	Model        string  `msg:"model,omitempty"`
	Serial       string  `msg:"serial,omitempty"`
	VBIOS        string  `msg:"vbios,omitempty"`
	FBTotalBytes *uint64 `msg:"fb_total_bytes,omitempty"`
	MIG          *bool   `msg:"mig,omitempty"`
	NUMA         *int64  `msg:"numa,omitempty"`
	Architecture string  `msg:"architecture,omitempty"`
	BoardPart    string  `msg:"board_part,omitempty"`
	// MIGDevices are there where MIG mode is on.
	MIGDevices []MIGDevice `msg:"mig_devices,omitempty,allownil"`
	NVLinks    []NVLink    `msg:"nvlinks,omitempty,allownil"`
}

// MIGDevice is a part of a GPU that works as one of its own.
type MIGDevice struct {
	UUID         string  `msg:"uuid"`
	GI           *uint64 `msg:"gi,omitempty"`
	CI           *uint64 `msg:"ci,omitempty"`
	Profile      string  `msg:"profile,omitempty"`
	FBTotalBytes *uint64 `msg:"fb_total_bytes,omitempty"`
}

// NVLink is a link of a GPU and what it leads to.
type NVLink struct {
	Link      uint64  `msg:"link"`
	Version   *uint64 `msg:"version,omitempty"`
	RemotePCI string  `msg:"remote_pci,omitempty"`
	// RemoteType is gpu, switch, npu or unknown.
	RemoteType string `msg:"remote_type,omitempty"`
}

// Hca is one port of a host channel adapter.
type Hca struct {
	Device    string  `msg:"device"`
	Port      *uint64 `msg:"port,omitempty"`
	GUID      string  `msg:"guid,omitempty"`
	Firmware  string  `msg:"firmware,omitempty"`
	Board     string  `msg:"board,omitempty"`
	PCI       string  `msg:"pci,omitempty"`
	LinkLayer string  `msg:"link_layer,omitempty"`
	RateGbps  *Number `msg:"rate_gbps,omitempty"`
}

// PrologEvent says that a job begins or ends on a node.
type PrologEvent struct {
	Header `msg:",flatten"`
	Event  PrologKind `msg:"event"`
	JobID  string     `msg:"job_id"`
	// UUIDs are those of the GPUs that the job got here.
	UUIDs []string `msg:"uuids,omitempty,allownil"`
	// Indices are Slurm's, which are device minors.
	Indices []int64 `msg:"indices,omitempty,allownil"`
}

// PrologKind is started, ended or unknown.
type PrologKind string

// JobSample is a GpuSample with the job of each GPU.
type JobSample struct {
	GpuSample `msg:",flatten"`
	// Job is the job id per GPU, nil when no job holds it.
	Job []*string `msg:"job"`
	// JobSource says how the job is known: process, prolog, slurm_index, whole_node.
	JobSource []*string `msg:"job_source,omitempty,allownil"`
	// Jobs is what the ids in Job stand for: user, account, partition, qos, name.
	Jobs map[string]map[string]any `msg:"jobs,omitempty,allownil"`
	// Several holds the jobs, by GPU position, where more than one runs on a GPU.
	Several map[string][]string `msg:"several,omitempty,allownil"`
	// Shard is [Shard] of the job, or of the node without one.
	Shard uint64 `msg:"shard"`
}

// JobKernelEvent is a KernelEvent with the jobs that it concerns.
type JobKernelEvent struct {
	KernelEvent `msg:",flatten"`
	Jobs        []string `msg:"jobs"`
	JobsSource  string   `msg:"jobs_source,omitempty"`
	Shard       uint64   `msg:"shard"`
}
