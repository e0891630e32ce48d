package gpu

import (
	"heeler.dev/agent-go/internal/nvml"
)

const none = nvml.NotSupported

// lacking is a device that supports nothing.
type lacking struct{}

func (lacking) UUID() (string, nvml.Status)                               { return "", none }
func (lacking) Name() (string, nvml.Status)                               { return "", none }
func (lacking) Serial() (string, nvml.Status)                             { return "", none }
func (lacking) VBIOS() (string, nvml.Status)                              { return "", none }
func (lacking) BoardPart() (string, nvml.Status)                          { return "", none }
func (lacking) Architecture() (string, nvml.Status)                       { return "", none }
func (lacking) PCI() (string, nvml.Status)                                { return "", none }
func (lacking) Minor() (int, nvml.Status)                                 { return 0, none }
func (lacking) NUMANode() (int, nvml.Status)                              { return 0, none }
func (lacking) PowerMilliwatts() (uint64, nvml.Status)                    { return 0, none }
func (lacking) PowerLimitMilliwatts() (uint64, nvml.Status)               { return 0, none }
func (lacking) PowerLimitDefaultMilliwatts() (uint64, nvml.Status)        { return 0, none }
func (lacking) PowerLimitsMilliwatts() (uint64, uint64, nvml.Status)      { return 0, 0, none }
func (lacking) EnergyMillijoules() (uint64, nvml.Status)                  { return 0, none }
func (lacking) Temperature() (uint64, nvml.Status)                        { return 0, none }
func (lacking) TemperatureThreshold(nvml.Threshold) (uint64, nvml.Status) { return 0, none }
func (lacking) TemperatureMargin() (int64, nvml.Status)                   { return 0, none }
func (lacking) ClockMHz(nvml.ClockKind) (uint64, nvml.Status)             { return 0, none }
func (lacking) ClockMaxMHz(nvml.ClockKind) (uint64, nvml.Status)          { return 0, none }
func (lacking) UtilizationPercent() (uint64, uint64, nvml.Status)         { return 0, 0, none }
func (lacking) EncoderPercent() (uint64, nvml.Status)                     { return 0, none }
func (lacking) DecoderPercent() (uint64, nvml.Status)                     { return 0, none }
func (lacking) Memory() (nvml.Memory, nvml.Status)                        { return nvml.Memory{}, none }
func (lacking) BAR1UsedBytes() (uint64, nvml.Status)                      { return 0, none }
func (lacking) FanPercent() (uint64, nvml.Status)                         { return 0, none }
func (lacking) PState() (uint64, nvml.Status)                             { return 0, none }
func (lacking) Persistence() (bool, nvml.Status)                          { return false, none }
func (lacking) ClockEventReasons() (uint64, nvml.Status)                  { return 0, none }
func (lacking) ViolationNanoseconds(nvml.Violation) (uint64, nvml.Status) { return 0, none }
func (lacking) ECCMode() (bool, nvml.Status)                              { return false, none }
func (lacking) ECC(bool, bool) (uint64, nvml.Status)                      { return 0, none }
func (lacking) RemappedRows() (nvml.RemappedRows, nvml.Status)            { return nvml.RemappedRows{}, none }
func (lacking) RetiredPages(bool) (uint64, nvml.Status)                   { return 0, none }
func (lacking) PCIeGeneration() (uint64, nvml.Status)                     { return 0, none }
func (lacking) PCIeWidth() (uint64, nvml.Status)                          { return 0, none }
func (lacking) PCIeGenerationMax() (uint64, nvml.Status)                  { return 0, none }
func (lacking) PCIeWidthMax() (uint64, nvml.Status)                       { return 0, none }
func (lacking) PCIeReplays() (uint64, nvml.Status)                        { return 0, none }
func (lacking) Fabric() (uint64, uint64, nvml.Status)                     { return 0, 0, none }
func (lacking) NVLinkUp(int) (bool, nvml.Status)                          { return false, none }
func (lacking) NVLinkVersion(int) (uint64, nvml.Status)                   { return 0, none }
func (lacking) NVLinkRemotePCI(int) (string, nvml.Status)                 { return "", none }
func (lacking) NVLinkRemoteType(int) (string, nvml.Status)                { return "", none }
func (lacking) NVLinkErrors(int, nvml.LinkError) (uint64, nvml.Status)    { return 0, none }
func (lacking) Processes() ([]nvml.Process, nvml.Status)                  { return nil, none }
func (lacking) MPSProcesses() ([]nvml.Process, nvml.Status)               { return nil, none }
func (lacking) MIG() (bool, nvml.Status)                                  { return false, none }
func (lacking) MIGPlaces() (int, nvml.Status)                             { return 0, none }
func (lacking) MIGDevice(int) (nvml.Device, nvml.Status)                  { return nil, none }
func (lacking) Instance() (uint64, uint64, nvml.Status)                   { return 0, 0, none }
func (lacking) Slices() (nvml.Slices, nvml.Status)                        { return nvml.Slices{}, none }
func (lacking) Profiler() (nvml.Profiler, nvml.Status)                    { return nil, none }
func (lacking) InstanceProfiler(uint64) (nvml.Profiler, nvml.Status)      { return nil, none }
func (lacking) Fields(fields []nvml.Field) nvml.Status {
	for i := range fields {
		fields[i].Status = none
	}
	return none
}

func (d *scripted) Fields(fields []nvml.Field) nvml.Status {
	for i := range fields {
		if fields[i].Status = none; d.fields != nil {
			d.fields(&fields[i])
		}
	}
	return nvml.OK
}
func (d *scripted) Profiler() (nvml.Profiler, nvml.Status) {
	if d.perf == nil {
		return nil, none
	}
	return d.perf, nvml.OK
}
func (d *scripted) Architecture() (string, nvml.Status) { return d.arch, nvml.OK }

func (d *scripted) UUID() (string, nvml.Status) { return d.uuid, nvml.OK }
func (d *scripted) Name() (string, nvml.Status) { return "Model", nvml.OK }
func (d *scripted) PCI() (string, nvml.Status)  { return "00000000:3B:00.0", nvml.OK }
func (d *scripted) Minor() (int, nvml.Status)   { return 4, nvml.OK }
func (d *scripted) PowerMilliwatts() (uint64, nvml.Status) {
	if d.power == nil {
		return 0, none
	}
	return d.power()
}
func (d *scripted) PowerLimitMilliwatts() (uint64, nvml.Status)       { return 700000, nvml.OK }
func (d *scripted) Temperature() (uint64, nvml.Status)                { return 40, d.temp }
func (d *scripted) UtilizationPercent() (uint64, uint64, nvml.Status) { return d.util, 0, nvml.OK }
func (d *scripted) Memory() (nvml.Memory, nvml.Status) {
	return nvml.Memory{Total: d.total, Used: d.used}, nvml.OK
}
func (d *scripted) FanPercent() (uint64, nvml.Status) { return 0, nvml.NoPermission }
func (d *scripted) ClockEventReasons() (uint64, nvml.Status) {
	if d.reasons == nil {
		return 0, none
	}
	return d.reasons()
}
func (d *scripted) Processes() ([]nvml.Process, nvml.Status) { return d.procs, nvml.OK }
