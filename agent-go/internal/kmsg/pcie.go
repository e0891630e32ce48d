package kmsg

import (
	"fmt"
	"regexp"
	"strings"

	"heeler.dev/schemas/go/heelerv1"
)

// The kernel's lines about PCIe, from 3.10 to 6.18. The words changed over time: Corrected and Correctable, "received:"
// and "received from", ids in hexadecimal and addresses.
var (
	aerRoot = regexp.MustCompile(`^(?:(Multiple) )?(Corrected|Correctable|Uncorrected|Uncorrectable)(?: \(([A-Za-z-]+)\))? ` +
		`error (?:message )?received(?:: | from )(?:id=([0-9a-fA-F]{4})|([0-9a-fA-F:.]{7,20}))(?: \(no details found\)?)?$`)
	aerBus = regexp.MustCompile(`^(PCIe|CXL) Bus Error: severity=([A-Za-z]+)(?: \(([A-Za-z-]+)\))?, type=([^,]+), ` +
		`(?:\(([^)]*)\)|id=[0-9a-fA-F]{4}(?:\(([^)]*)\))?)`)
	aerDevice = regexp.MustCompile(`^\s*device \[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\] error status/mask=([0-9a-fA-F]{8})/([0-9a-fA-F]{8})`)
	aerBit    = regexp.MustCompile(`^\s*\[\s*(\d{1,2})\] (\S.{0,60}?)\s*(\(First\))?$`)
	aerHeader = regexp.MustCompile(`^\s*TLP Header(?: \(Flit\))?: (.*)$`)
	aerCPER   = regexp.MustCompile(`^aer_status: (0x[0-9a-fA-F]{8}), aer_mask: (0x[0-9a-fA-F]{8})$`)
	aerLayer  = regexp.MustCompile(`^aer_layer=([^,]+), aer_agent=(.+)$`)
	aerMore   = regexp.MustCompile(`^\s*(?:Error of this Agent.* is reported first|can't find device of ID[0-9a-fA-F]{4}|` +
		`found no error details for .*|aer_uncor_severity: .*|TLP Prefix.*)$`)
	aerRecovery = regexp.MustCompile(`^(?:device recovery (successful|failed)|.*(?:link|Link|bus) has been (reset).*|` +
		`subordinate device reset (failed).*)$`)

	dpcEvent = regexp.MustCompile(`^(?:DPC )?containment event, status:(0x[0-9a-fA-F]{1,4})(?: source:(0x[0-9a-fA-F]{1,4}))?` +
		`(?:: (.*?) detected|, (\S+) received from ([0-9a-fA-F:.]{7,20}))?$`)
	dpcReason = regexp.MustCompile(`^(?:DPC )?(.{1,60}) detected$`)

	hotplug = regexp.MustCompile(`^[Ss]lot\(([^)]{1,32})\): (Link Down|Link Up|Card not present|Card present|Power fault|` +
		`Surprise .*|No link|Link Down/Up ignored.*)`)
	hotplugOld = regexp.MustCompile(`^(Card (?:not )?present|Surprise Removal|Power fault) (?:bit )?on [Ss]lot ?\(([^)]{1,32})\)`)
	hotplugMid = regexp.MustCompile(`^[Ss]lot\(([^)]{1,32})\): (Link (?:Up|Down)) event`)
	notThere   = regexp.MustCompile(`^(?:Unable to change power state from \S+ to \S+, (device inaccessible)|` +
		`(not ready) \d+ms after .*; giving up|(broken device), .*)$`)
)

// parsePCIe knows the lines of AER, of containment, of hot-plug ports, and of devices that do not answer.
func parsePCIe(text string, d *device) (Fact, bool) {
	rest, ofAER := strings.CutPrefix(d.rest, "AER: ")
	if f, ok := parseAER(text, d, rest, ofAER); ok {
		return f, true
	}
	if after, ok := strings.CutPrefix(rest, "DPC: "); ok || strings.HasPrefix(rest, "DPC ") {
		return parseDPC(text, d, after)
	}
	if after, ok := strings.CutPrefix(rest, "pciehp: "); ok || d.driver == "pciehp" {
		return parseHotplug(text, d, after)
	}
	if m := notThere.FindStringSubmatch(rest); m != nil {
		f := Fact{Kind: heelerv1.KindLink, Text: text}
		f.set("bus", "pcie")
		f.set("state", m[1]+m[2]+m[3])
		return f, f.address(d.address)
	}
	return Fact{}, false
}

// parseAER: the port says that it got a message, and of whom; the device then says what is wrong, in up to a dozen
// lines. They make one event of the device.
func parseAER(text string, d *device, rest string, ofAER bool) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindAer, Text: text}
	if !f.address(d.address) {
		return Fact{}, false
	}
	f.thread = "aer " + f.PCI
	if ofAER {
		if m := aerRoot.FindStringSubmatch(rest); m != nil {
			return aerReceived(text, d, m)
		}
		if m := aerRecovery.FindStringSubmatch(rest); m != nil {
			f.set("recovery", m[1]+m[2]+m[3])
			f.thread = ""
			return f, true
		}
	}
	if m := aerBus.FindStringSubmatch(rest); m != nil {
		f.part, f.once = either, "layer"
		f.set("bus", strings.ToLower(m[1]))
		f.set("severity", aerSeverity(m[2], m[3]))
		f.set("layer", strings.TrimSpace(m[4]))
		f.setText("agent", m[5]+m[6])
		return f, true
	}
	return f.aerMore(rest, ofAER)
}

// aerReceived is the port's line. The event is about the device that sent the message.
func aerReceived(text string, d *device, m []string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindAer, Text: text, part: opens}
	sender := m[5]
	if m[4] != "" {
		sender = addressOfID(d.address, m[4])
	}
	if !f.address(sender) {
		return Fact{}, false
	}
	f.thread = "aer " + f.PCI
	f.set("reporter", d.address)
	f.set("multiple", m[1] != "")
	f.set("severity", aerSeverity(m[2], m[3]))
	return f, true
}

// addressOfID turns a requester id, as in 00e8, into an address in the domain of the port.
func addressOfID(port, id string) string {
	n, ok := hexNumber(id)
	domain, _, found := strings.Cut(port, ":")
	if !ok || !found {
		return ""
	}
	return fmt.Sprintf("%s:%02x:%02x.%x", domain, n>>8&0xFF, n>>3&0x1F, n&7)
}

// aerMore knows the lines that only add to an event.
func (f *Fact) aerMore(rest string, ofAER bool) (Fact, bool) {
	f.part = continues
	if m := aerDevice.FindStringSubmatch(rest); m != nil {
		f.set("vendor", strings.ToLower(m[1]))
		f.set("device", strings.ToLower(m[2]))
		f.setHex("status", m[3])
		f.setHex("mask", m[4])
		return *f, true
	}
	if m := aerHeader.FindStringSubmatch(rest); m != nil {
		f.setText("tlp_header", strings.TrimSpace(m[1]))
		return *f, true
	}
	if m := aerCPER.FindStringSubmatch(rest); m != nil { // what the firmware saw
		f.part, f.once = either, "status"
		f.setHex("status", m[1])
		f.setHex("mask", m[2])
		return *f, true
	}
	if m := aerLayer.FindStringSubmatch(rest); m != nil {
		f.set("layer", m[1])
		f.set("agent", m[2])
		return *f, true
	}
	if m := aerBit.FindStringSubmatch(rest); m != nil {
		f.set("errors", []any{m[2]})
		if m[3] != "" {
			f.set("first", m[2])
		}
		return *f, true
	}
	return *f, aerMore.MatchString(rest) && (ofAER || strings.HasPrefix(rest, " "))
}

// aerSeverity is corrected, nonfatal, fatal or uncorrected: what the kernel says, in one spelling.
func aerSeverity(word, degree string) string {
	if strings.HasPrefix(word, "Correct") {
		return "corrected"
	}
	if degree == "" {
		degree = word // 3.x kernels: severity=Fatal
	}
	switch strings.ToLower(strings.ReplaceAll(degree, "-", "")) {
	case "fatal":
		return "fatal"
	case "nonfatal":
		return "nonfatal"
	default:
		return "uncorrected"
	}
}

// parseDPC: the port cut the link off to contain an error.
func parseDPC(text string, d *device, rest string) (Fact, bool) {
	if rest == "" || rest == d.rest {
		rest = d.rest
	}
	f := Fact{Kind: heelerv1.KindAer, Text: text}
	if !f.address(d.address) {
		return Fact{}, false
	}
	f.thread = "dpc " + f.PCI
	if m := dpcEvent.FindStringSubmatch(rest); m != nil {
		f.part = opens
		f.set("event", "containment")
		f.set("reporter", d.address)
		f.setHex("dpc_status", m[1])
		f.setText("reason", strings.TrimSpace(m[3]+m[4]))
		if m[5] != "" {
			return f, f.address(m[5])
		}
		return f, true
	}
	if m := dpcReason.FindStringSubmatch(rest); m != nil {
		f.part, f.closes = continues, true
		f.set("reason", m[1])
		return f, true
	}
	return Fact{}, false
}

func parseHotplug(text string, d *device, rest string) (Fact, bool) {
	if rest == "" {
		rest = d.rest
	}
	f := Fact{Kind: heelerv1.KindLink, Text: text}
	f.set("bus", "pcie")
	if m := hotplugMid.FindStringSubmatch(rest); m != nil {
		f.set("slot", m[1])
		f.set("state", strings.ToLower(m[2]))
		return f, f.address(d.address)
	}
	if m := hotplug.FindStringSubmatch(rest); m != nil {
		f.set("slot", m[1])
		f.set("state", strings.ToLower(m[2]))
		return f, f.address(d.address)
	}
	if m := hotplugOld.FindStringSubmatch(rest); m != nil {
		f.set("slot", m[2])
		f.set("state", strings.ToLower(m[1]))
		return f, f.address(d.address)
	}
	return Fact{}, false
}

// parseOldHotplug knows the lines of kernels that name no device.
func parseOldHotplug(text string) (Fact, bool) {
	rest, ok := strings.CutPrefix(text, "pciehp: ")
	if !ok {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindLink, Text: text}
	f.set("bus", "pcie")
	if m := hotplug.FindStringSubmatch(rest); m != nil {
		f.set("slot", m[1])
		f.set("state", strings.ToLower(m[2]))
		return f, true
	}
	if m := hotplugOld.FindStringSubmatch(rest); m != nil {
		f.set("slot", m[2])
		f.set("state", strings.ToLower(m[1]))
		return f, true
	}
	return Fact{}, false
}
