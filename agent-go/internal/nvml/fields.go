package nvml

import "math"

// FieldID is the number of a field value.
type FieldID uint32

// The fields that the agent reads. Those of one link take its number as their scope.
const (
	FieldRetiredPending       FieldID = 31
	FieldNVLinkCRCFlit        FieldID = 38 // of all links, as the next three
	FieldNVLinkCRCData        FieldID = 45
	FieldNVLinkReplay         FieldID = 52
	FieldNVLinkRecovery       FieldID = 59
	FieldSWPowerCapNS         FieldID = 74
	FieldSyncBoostNS          FieldID = 76
	FieldMemoryTemperature    FieldID = 82
	FieldNVLinkCount          FieldID = 91
	FieldNVLinkTxKiB          FieldID = 138
	FieldNVLinkRxKiB          FieldID = 139
	FieldLinkReplay           FieldID = 161 // of one link, as the next two
	FieldLinkRecovery         FieldID = 162
	FieldLinkCRC              FieldID = 163
	FieldPCIeRecoveries       FieldID = 169
	FieldPCIeCorrectable      FieldID = 173
	FieldPCIeNonfatal         FieldID = 179
	FieldPCIeFatal            FieldID = 180
	FieldPowerAverage         FieldID = 185 // milliwatts
	FieldPowerInstant         FieldID = 186
	FieldPCIeTxBytes          FieldID = 197 // 32 bits on some boards, and then of no use
	FieldPCIeRxBytes          FieldID = 198
	FieldLinkTxBytes          FieldID = 202 // fifth generation, of one link, to 222
	FieldLinkRxBytes          FieldID = 204
	FieldLinkMalformed        FieldID = 206
	FieldLinkOverruns         FieldID = 207
	FieldLinkReceiveErrors    FieldID = 208
	FieldLinkRemoteErrors     FieldID = 209
	FieldLinkGeneralErrors    FieldID = 210
	FieldLinkIntegrityErrors  FieldID = 211
	FieldLinkXmitDiscards     FieldID = 212
	FieldLinkRecoveriesOK     FieldID = 213
	FieldLinkRecoveriesFailed FieldID = 214
	FieldLinkRecoveryEvents   FieldID = 215
	FieldLinkEffectiveErrors  FieldID = 219
	FieldLinkEffectiveBER     FieldID = 220
	FieldLinkSymbolErrors     FieldID = 221
	FieldLinkSymbolBER        FieldID = 222
	FieldRecoveryAction       FieldID = 230
	FieldSWThermalNS          FieldID = 269
	FieldHWThermalNS          FieldID = 270
	FieldHWPowerBrakeNS       FieldID = 271
)

// AllLinks is the scope of a field that is asked for all links together.
const AllLinks uint32 = 0xFFFFFFFF

// Field asks for one field value.
type Field struct {
	ID    FieldID
	Scope uint32
	Value uint64
	// Wide says that the driver keeps it in 64 bits.
	Wide   bool
	Status Status
}

// The parts of a bit error rate.
const (
	berExponentMask  = 0xFF
	berMantissaShift = 8
	berMantissaMask  = 0xF
)

// BER is the bit error rate that a field holds: a mantissa, and the negative exponent of ten.
func BER(field uint64) float64 {
	mantissa := float64(field >> berMantissaShift & berMantissaMask)
	return mantissa / math.Pow10(int(field&berExponentMask))
}
