package nvml

// ClockKind is one of a GPU's clocks.
type ClockKind int

// The clocks.
const (
	ClockSM ClockKind = iota
	ClockMemory
)

// Violation is a reason for which time slowed down is counted, by NVML's own numbers.
type Violation int

// The violations.
const (
	ViolationPower          Violation = 0
	ViolationThermal        Violation = 1
	ViolationSyncBoost      Violation = 2
	ViolationBoardLimit     Violation = 3
	ViolationLowUtilization Violation = 4
	ViolationReliability    Violation = 5
	ViolationAppClocks      Violation = 10
	ViolationBaseClocks     Violation = 11
)

// Threshold is a temperature at which something happens, by NVML's own numbers.
type Threshold int

// The thresholds.
const (
	ThresholdShutdown  Threshold = 0
	ThresholdSlowdown  Threshold = 1
	ThresholdMemoryMax Threshold = 2
	ThresholdGPUMax    Threshold = 3
)

// LinkError is a kind of error that an NVLink before the fifth generation counts, by NVML's own numbers.
type LinkError int

// The kinds.
const (
	LinkReplay   LinkError = 0
	LinkRecovery LinkError = 1
	LinkCRCFlit  LinkError = 2
	LinkCRCData  LinkError = 3
)

// Device is one GPU, or one MIG device, which has less to tell. Any call may hang for ever, and only one runs at a time.
type Device interface {
	UUID() (string, Status)
	Name() (string, Status)
	Serial() (string, Status)
	VBIOS() (string, Status)
	BoardPart() (string, Status)
	// Architecture is a word, such as hopper.
	Architecture() (string, Status)
	// PCI is the address as NVML writes it.
	PCI() (string, Status)
	Minor() (int, Status)
	NUMANode() (int, Status)

	// PowerMilliwatts is a mean over a second or the power now, depending on the board.
	PowerMilliwatts() (uint64, Status)
	PowerLimitMilliwatts() (uint64, Status)
	PowerLimitDefaultMilliwatts() (uint64, Status)
	// PowerLimitsMilliwatts are the lowest and the highest limit that can be set.
	PowerLimitsMilliwatts() (least, most uint64, status Status)
	EnergyMillijoules() (uint64, Status)
	Temperature() (uint64, Status)
	TemperatureThreshold(kind Threshold) (uint64, Status)
	// TemperatureMargin is how many degrees are left before the GPU slows down. It may be below zero.
	TemperatureMargin() (int64, Status)
	ClockMHz(kind ClockKind) (uint64, Status)
	ClockMaxMHz(kind ClockKind) (uint64, Status)
	// UtilizationPercent is the GPU's and its memory's.
	UtilizationPercent() (gpu, memory uint64, status Status)
	EncoderPercent() (uint64, Status)
	DecoderPercent() (uint64, Status)
	Memory() (Memory, Status)
	BAR1UsedBytes() (uint64, Status)
	FanPercent() (uint64, Status)
	PState() (uint64, Status)
	Persistence() (bool, Status)
	ClockEventReasons() (uint64, Status)
	ViolationNanoseconds(kind Violation) (uint64, Status)
	ECCMode() (bool, Status)
	ECC(corrected, aggregate bool) (uint64, Status)
	RemappedRows() (RemappedRows, Status)
	RetiredPages(doubleBit bool) (uint64, Status)
	PCIeGeneration() (uint64, Status)
	PCIeWidth() (uint64, Status)
	PCIeGenerationMax() (uint64, Status)
	PCIeWidthMax() (uint64, Status)
	PCIeReplays() (uint64, Status)
	// Fabric is how far the GPU is with joining the NVLink fabric, and how that ended.
	Fabric() (state, result uint64, status Status)

	// NVLinkUp tells whether a link is up; InvalidArgument says that there is no such link.
	NVLinkUp(link int) (bool, Status)
	NVLinkVersion(link int) (uint64, Status)
	// NVLinkRemotePCI is the address of the other end as NVML writes it, NVLinkRemoteType gpu, switch, npu or unknown.
	NVLinkRemotePCI(link int) (string, Status)
	NVLinkRemoteType(link int) (string, Status)
	NVLinkErrors(link int, kind LinkError) (uint64, Status)
	// Fields fills in the value and status of each.
	Fields(fields []Field) Status

	// Processes are those with a compute context, MPSProcesses those that share one.
	Processes() ([]Process, Status)
	MPSProcesses() ([]Process, Status)

	// MIG tells whether the GPU is in MIG mode. MIGPlaces is how many MIG devices there can be, and MIGDevice is the
	// one at a place, or NotFound.
	MIG() (bool, Status)
	MIGPlaces() (int, Status)
	MIGDevice(place int) (Device, Status)
	// Instance says which GPU and compute instance a MIG device is.
	Instance() (gi, ci uint64, status Status)
	// Slices are those of the GPU and of the instance that a MIG device has.
	Slices() (Slices, Status)

	// Profiler opens the GPU's performance monitor, InstanceProfiler that of one of its GPU instances.
	Profiler() (Profiler, Status)
	InstanceProfiler(gi uint64) (Profiler, Status)
}

// Memory is the frame buffer. Reserved is what the driver keeps for itself; an old one counts it as used and Apart is
// false.
type Memory struct {
	Total, Used, Reserved uint64
	Apart                 bool
}

// RemappedRows is what NVML says of remapped memory rows.
type RemappedRows struct {
	Correctable, Uncorrectable uint64
	Pending, Failed            bool
}

// Slices are the parts that make up a MIG device.
type Slices struct {
	GPU, Compute uint64
	MemoryBytes  uint64
}

// Process is a compute process on a GPU.
type Process struct {
	PID uint64
	// MemoryBytes is nil when the driver does not say.
	MemoryBytes *uint64
	// GI and CI are the MIG instance that it runs in, nil outside of MIG.
	GI, CI *uint64
}

// Metric is the number of a performance monitor metric.
type Metric uint32

// The metrics that the agent reads: percents, and MiB a second.
const (
	MetricGraphicsActive Metric = 1
	MetricSMActive       Metric = 2
	MetricSMOccupancy    Metric = 3
	MetricIntActive      Metric = 4
	MetricTensorActive   Metric = 5
	MetricDRAMActive     Metric = 10
	MetricFP64Active     Metric = 11
	MetricFP32Active     Metric = 12
	MetricFP16Active     Metric = 13
	MetricPCIeTx         Metric = 20
	MetricPCIeRx         Metric = 21
	MetricNVLinkRx       Metric = 60
	MetricNVLinkTx       Metric = 61
)

// MetricValue is the average of a metric over the time between two samples.
type MetricValue struct {
	Metric Metric
	Value  float64
	Status Status
}

// Profiler averages metrics between samples.
type Profiler interface {
	// Sample takes a sample and keeps the one before.
	Sample() Status
	// Read fills in the averages between the last two samples.
	Read(metrics []MetricValue) Status
	Close()
}
