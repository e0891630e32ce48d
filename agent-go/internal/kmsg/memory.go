package kmsg

import (
	"regexp"
	"strings"

	"heeler.dev/schemas/go/heelerv1"
)

// Machine checks, memory errors, and what the firmware reports through APEI.
var (
	mceCPU  = regexp.MustCompile(`^CPU (\d{1,5}): Machine Check(?: Exception| Event)?: +(\S+) Bank (\d{1,3}): (?:0x)?([0-9a-fA-F]{1,16})`)
	mceMore = regexp.MustCompile(`\b(ADDR|MISC|SOCKET|APIC|microcode|SYND|IPID) ([0-9a-fA-F]{1,16})`)
	mceTail = regexp.MustCompile(`^(?:TSC |ADDR |RIP|PROCESSOR |Machine check: |Run the above|This is not a software|PPIN|MISC |SYND |cache level|` +
		`Error Addr|IPID|Some CPUs didn't answer)`)
	amdWord   = regexp.MustCompile(`^(Corrected|Deferred|Uncorrected|Fatal)\b.*\berror\b`)
	amdStatus = regexp.MustCompile(`^CPU:(\d{1,5}) \([^)]*\) MC(\d{1,3})_STATUS\[([^\]]*)\]: 0x([0-9a-fA-F]{1,16})`)
	amdAddr   = regexp.MustCompile(`^Error Addr: 0x([0-9a-fA-F]{1,16})`)
	amdUnit   = regexp.MustCompile(`^(.{1,64}) Ext\. Error Code: (\d{1,5})(?:, (.*))?$`)
	mceUser   = regexp.MustCompile(`^Uncorrected hardware memory error in (\S+)-access at ([0-9a-fA-F]{1,16})`)

	memoryKilled   = regexp.MustCompile(`^Memory failure: 0x([0-9a-fA-F]{1,16}): (?:Killing|Sending SIGBUS to) (.{1,64}):(\d{1,10}) due to hardware memory corruption`)
	memoryRecovery = regexp.MustCompile(`^Memory failure: 0x([0-9a-fA-F]{1,16}): (?:recovery action for )?(.{1,64}): (\w+)$`)

	apeiLine   = regexp.MustCompile(`^(\{\d{1,10}\})?\[Hardware Error\]:\s*(.*)$`)
	apeiSource = regexp.MustCompile(`^Hardware error from APEI Generic Hardware Error Source: (\d{1,10})$`)
	apeiField  = regexp.MustCompile(`^([A-Za-z][A-Za-z _]{1,40}): ?(.*)$`)

	edacNew   = regexp.MustCompile(`^EDAC (\S{1,16}): (\d{1,10}) (CE|UE) (.*)$`)
	edacOld   = regexp.MustCompile(`^EDAC (MC\d{1,3}): (CE|UE) ((?:page|row|-|on) ?.*)$`)
	edacDev   = regexp.MustCompile(`^EDAC (DEVICE\d{1,3}): (?:\S+ )?(CE|UE): (.*)$`)
	edacPlace = regexp.MustCompile(`^(?:(.*?) )?on (.*?) \((.*)\)$`)
	edacLabel = regexp.MustCompile(`labels? "([^"]*)"`)
	edacPart  = regexp.MustCompile(`\b(channel|slot|csrow|row|rank|page|offset|syndrome|node|card|module)[: ]\s*(0x[0-9a-fA-F]{1,16}|\d{1,18})\b`)
)

const (
	mceThread      = "mce"
	uncorrectedBit = 61 // of a bank's status
)

// parseMCE: the line that names the bank opens an event, or, on AMD, the one that says how bad it is; the others of the
// same error add to it.
func parseMCE(text string) (Fact, bool) {
	rest := text
	for _, mark := range []string{"mce: ", "MCE: ", "[Hardware Error]: "} {
		rest = strings.TrimPrefix(rest, mark)
	}
	f := Fact{Kind: heelerv1.KindMce, Text: text, thread: mceThread}
	if m := mceCPU.FindStringSubmatch(rest); m != nil {
		f.part = opens
		f.setNumber("cpu", m[1])
		f.setNumber("bank", m[3])
		f.mceStatus(m[4])
		return f, true
	}
	if rest == text { // no mark, and no line that names a bank
		return Fact{}, false
	}
	if strings.HasPrefix(rest, "Machine check events logged") {
		f.thread = ""
		f.set("event", "logged")
		return f, true
	}
	if m := mceUser.FindStringSubmatch(rest); m != nil {
		f.thread = ""
		f.set("corrected", false)
		f.setHex("address", m[2])
		return f, true
	}
	return f.mceMore(text, rest)
}

func (f *Fact) mceStatus(digits string) {
	if status, ok := hexNumber(digits); ok {
		f.set("status", status)
		f.set("corrected", status>>uncorrectedBit&1 == 0)
	}
}

func (f *Fact) mceMore(text, rest string) (Fact, bool) {
	if m := amdWord.FindStringSubmatch(rest); m != nil {
		f.part = opens
		f.set("severity", strings.ToLower(m[1]))
		f.set("corrected", m[1] == "Corrected")
		return *f, true
	}
	if m := amdStatus.FindStringSubmatch(rest); m != nil {
		f.part, f.once = either, "bank"
		f.setNumber("cpu", m[1])
		f.setNumber("bank", m[2])
		f.mceStatus(m[4])
		return *f, true
	}
	f.part = continues
	if m := amdAddr.FindStringSubmatch(rest); m != nil {
		f.setHex("address", m[1])
		return *f, true
	}
	if m := amdUnit.FindStringSubmatch(rest); m != nil {
		f.set("unit", m[1])
		f.setNumber("extended_code", m[2])
		f.setText("error", m[3])
		return *f, true
	}
	if mceTail.MatchString(rest) {
		for _, m := range mceMore.FindAllStringSubmatch(rest, -1) {
			switch m[1] {
			case "ADDR":
				f.setHex("address", m[2])
			case "SOCKET":
				f.setNumber("socket", m[2])
			case "MISC":
				f.setHex("misc", m[2])
			}
		}
		return *f, true
	}
	return parseAPEI(text) // firmware of an earlier boot speaks without a number
}

func parseMemoryFailure(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindMce, Text: text}
	if m := memoryKilled.FindStringSubmatch(text); m != nil {
		f.setHex("page", m[1])
		f.set("corrected", false)
		f.Comm, f.PID = m[2], number(m[3])
		return f, true
	}
	if m := memoryRecovery.FindStringSubmatch(text); m != nil {
		f.setHex("page", m[1])
		f.set("corrected", false)
		f.set("recovery", strings.ToLower(m[3]))
		return f, true
	}
	return Fact{}, false
}

// parseBERT announces what the firmware kept from the time before this boot.
func parseBERT(text string) (Fact, bool) {
	if !strings.HasPrefix(text, "BERT: Error records from previous boot") {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindMce, Text: text, part: opens, thread: "apei"}
	f.set("previous_boot", true)
	return f, true
}

// parseAPEI takes the lines of an error that the firmware reports. They bear a number, "{3}[Hardware Error]:", and the
// third says what the error is about: memory, PCIe or the processor.
func parseAPEI(text string) (Fact, bool) {
	m := apeiLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindMce, Text: text, thread: "apei" + m[1]}
	if s := apeiSource.FindStringSubmatch(m[2]); s != nil {
		f.part = opens
		f.setNumber("source", s[1])
		return f, true
	}
	f.part = continues
	field := apeiField.FindStringSubmatch(m[2])
	if field == nil {
		return f, m[1] != "" || strings.HasPrefix(m[2], "node:")
	}
	return f, f.apeiField(field[1], field[2]) || m[1] != ""
}

func (f *Fact) apeiField(name, value string) bool {
	switch name {
	case "event severity":
		f.set("severity", value)
		f.set("corrected", value == "corrected")
	case "section_type":
		switch {
		case strings.HasPrefix(value, "memory"):
			f.Kind = heelerv1.KindEdac
		case strings.HasPrefix(value, "PCIe"):
			f.Kind = heelerv1.KindAer
		}
		f.set("section", value)
	case "physical_address":
		f.setHex("address", strings.TrimSpace(value))
	case "error_type":
		_, text, _ := strings.Cut(value, ", ")
		f.setText("error", text)
	case "DIMM location":
		f.set("dimm", strings.TrimSpace(value))
	case "device_id":
		return f.address(strings.TrimSpace(value))
	case "vendor_id":
		vendor, device, _ := strings.Cut(value, ", device_id: ")
		f.setText("vendor", strings.TrimPrefix(vendor, "0x"))
		f.setText("device", strings.TrimPrefix(device, "0x"))
	case "aer_uncor_status":
		status, _, _ := strings.Cut(value, ",")
		f.setHex("status", status)
	case "TLP Header":
		f.set("tlp_header", value)
	case "error_status", "port_type", "version", "command", "slot", "secondary_bus", "class_code", "bridge",
		"aer_uncor_severity", "precise tstamp", "imprecise tstamp", "fru_text", "processor_type", "processor_isa":
	default:
		return strings.HasPrefix(name, "Error ") || strings.HasPrefix(name, "fru")
	}
	return true
}

func parseEDAC(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindEdac}
	var controller, errors, kind string
	if m := edacNew.FindStringSubmatch(text); m != nil {
		controller, errors, kind, f.Text = m[1], m[2], m[3], m[4]
	} else if m := edacOld.FindStringSubmatch(text); m != nil {
		controller, errors, kind, f.Text = m[1], "1", m[2], m[3]
	} else if m := edacDev.FindStringSubmatch(text); m != nil {
		controller, kind, f.Text = m[1], m[2], m[3]
	} else {
		return Fact{}, false
	}
	f.set("controller", controller)
	f.setNumber("errors", errors)
	f.set("corrected", kind == "CE")
	parts := f.Text
	if m := edacPlace.FindStringSubmatch(f.Text); m != nil {
		f.setText("error", m[1])
		f.set("dimm", m[2])
		parts = m[3]
	} else if m := edacLabel.FindStringSubmatch(f.Text); m != nil {
		f.setText("dimm", m[1])
	}
	for _, m := range edacPart.FindAllStringSubmatch(parts, -1) {
		if v, ok := anyNumber(m[2]); ok && f.Detail[m[1]] == nil {
			f.set(m[1], v)
		}
	}
	return f, true
}
