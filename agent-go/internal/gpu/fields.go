package gpu

import (
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// mostFields is how many fields are asked for in one call.
const mostFields = 128

// asker asks for many field values in one call, without those that the GPU has shown it lacks.
type asker struct {
	fields []nvml.Field // with the last answers
	rests  []rest
	batch  []nvml.Field
	places []int
}

func (a *asker) add(id nvml.FieldID, scope uint32) {
	a.fields = append(a.fields, nvml.Field{ID: id, Scope: scope})
	a.rests = append(a.rests, rest{})
}

// ask fills in the answers.
func (a *asker) ask(d nvml.Device) {
	a.batch, a.places = a.batch[:0], a.places[:0]
	for i := range a.fields {
		f := &a.fields[i]
		if f.Value, f.Status = 0, nvml.NotSupported; a.rests[i].over() {
			a.batch, a.places = append(a.batch, *f), append(a.places, i)
		}
	}
	for from := 0; from < len(a.batch); from += mostFields {
		_ = d.Fields(a.batch[from:min(from+mostFields, len(a.batch))]) // each field has its own status
	}
	for n, i := range a.places {
		a.fields[i] = a.batch[n]
		a.rests[i].heard(a.batch[n].Status.Lacking())
	}
}

// The fields of each tick.
const (
	tickPowerAverage = iota
	tickPowerInstant
	tickMemoryTemperature
)

func tickFields() asker {
	var a asker
	for _, id := range []nvml.FieldID{nvml.FieldPowerAverage, nvml.FieldPowerInstant, nvml.FieldMemoryTemperature} {
		a.add(id, 0)
	}
	return a
}

// The fields of each window that need work before they are columns come first.
const (
	windowCRCFlit = iota
	windowCRCData
	windowReplay
	windowRecovery
	windowLinkCount
	windowNVLinkTx // from here in the order of traffic
	windowNVLinkRx
	windowPCIeTx
	windowPCIeRx
	windowPlain // from here plain columns
)

// plainFields are columns as they are.
var plainFields = [...]struct {
	id nvml.FieldID
	c  column
}{
	{nvml.FieldRecoveryAction, recoveryAction},
	{nvml.FieldRetiredPending, retiredPagesPending},
	{nvml.FieldPCIeRecoveries, pcieRecoveries},
	{nvml.FieldPCIeCorrectable, pcieCorrectableErrors},
	{nvml.FieldPCIeNonfatal, pcieNonfatalErrors},
	{nvml.FieldPCIeFatal, pcieFatalErrors},
	{nvml.FieldSWPowerCapNS, clockEventSWPowerCapNS},
	{nvml.FieldSyncBoostNS, clockEventSyncBoostNS},
	{nvml.FieldSWThermalNS, clockEventSWThermalNS},
	{nvml.FieldHWThermalNS, clockEventHWThermalNS},
	{nvml.FieldHWPowerBrakeNS, clockEventHWPowerBrakeNS},
}

func windowFields() asker {
	var a asker
	for _, id := range []nvml.FieldID{
		nvml.FieldNVLinkCRCFlit, nvml.FieldNVLinkCRCData, nvml.FieldNVLinkReplay, nvml.FieldNVLinkRecovery,
		nvml.FieldNVLinkCount,
	} {
		a.add(id, 0)
	}
	a.add(nvml.FieldNVLinkTxKiB, nvml.AllLinks)
	a.add(nvml.FieldNVLinkRxKiB, nvml.AllLinks)
	a.add(nvml.FieldPCIeTxBytes, 0)
	a.add(nvml.FieldPCIeRxBytes, 0)
	for _, p := range plainFields {
		a.add(p.id, 0)
	}
	return a
}

// takePlain records the plain columns.
func (a *asker) takePlain(put put) {
	for i, p := range plainFields {
		f := &a.fields[windowPlain+i]
		put(p.c, heelerv1.UintValue(f.Value), f.Status)
	}
}
