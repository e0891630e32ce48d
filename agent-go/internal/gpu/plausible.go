package gpu

import "heeler.dev/schemas/go/heelerv1"

const (
	powerLimits       = 3     // times the limit: no board draws that
	highestPowerW     = 20000 // where the limit is not known
	highestTempC      = 200
	lowestMarginC     = -100
	highestClockMHz   = 20000
	highestPCIeGen    = 16
	highestBytesPerS  = 1 << 43 // nine times what eighteen links of the fifth generation carry
	highestSmall      = 64      // lanes, links, performance states
	highestState      = 1000    // of states and actions, of which newer drivers have more
	highestRatio      = 1.02    // the performance monitor's ends of a window aren't those of its counters
	highestFanRatio   = 2       // drivers report more than 100 % for fans above their nominal speed
	highestErrorRatio = 1
)

// limits are what a column can hold at most; columns without one hold any number that is not below zero.
var limits = [allColumns]float64{
	powerLimitW: highestPowerW, powerLimitDefaultW: highestPowerW, powerLimitMinW: highestPowerW,
	powerLimitMaxW: highestPowerW,
	tempC:          highestTempC, tempMarginC: highestTempC, memTempC: highestTempC, tempShutdownC: highestTempC,
	tempSlowdownC: highestTempC, tempGPUMaxC: highestTempC, tempMemMaxC: highestTempC,
	smClockMHz: highestClockMHz, memClockMHz: highestClockMHz, smClockMaxMHz: highestClockMHz,
	memClockMaxMHz: highestClockMHz,
	utilRatio:      1, memUtilRatio: 1, encoderUtilRatio: 1, decoderUtilRatio: 1, graphicsActiveRatio: highestRatio,
	smActiveRatio: highestRatio, smOccupancyRatio: highestRatio, tensorActiveRatio: highestRatio,
	dramActiveRatio: highestRatio, intActiveRatio: highestRatio, fp64ActiveRatio: highestRatio,
	fp32ActiveRatio: highestRatio, fp16ActiveRatio: highestRatio, fanRatio: highestFanRatio,
	pcieTx: highestBytesPerS, pcieRx: highestBytesPerS, nvlinkTx: highestBytesPerS, nvlinkRx: highestBytesPerS,
	pcieGen: highestPCIeGen, pcieGenMax: highestPCIeGen, pcieWidth: highestSmall, pcieWidthMax: highestSmall,
	pstate: highestSmall, nvlinkLinks: highestSmall, nvlinkLinksUp: highestSmall, retiredPagesPending: 1,
	recoveryAction: highestState, fabricState: highestState, fabricStatus: highestState,
	nvlinkEffectiveBER: highestErrorRatio, nvlinkSymbolBER: highestErrorRatio,
}

// plausible tells whether a value can be true, and gives it back: a ratio that the monitor has just above 1 is 1.
func (m *meter) plausible(c column, v heelerv1.Value) (heelerv1.Value, bool) {
	f, ok := v.Float()
	if !ok {
		return v, false
	}
	least, most := 0.0, limits[c]
	switch c {
	case tempMarginC:
		least = lowestMarginC
	case powerW, powerInstantW:
		most = highestPowerW
		if m.limitW > 0 {
			most = powerLimits * m.limitW
		}
	case powerLimitW, powerLimitDefaultW, powerLimitMaxW:
		ok = f > 0
	}
	if !ok || f < least || most > 0 && f > most {
		return v, false
	}
	if most == highestRatio && f > 1 {
		return heelerv1.FloatValue(1), true
	}
	return v, true
}
