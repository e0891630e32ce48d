package kmsg

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"heeler.dev/schemas/go/heelerv1"
)

// The forms below hold for all driver generations seen so far: with and without "PCI:", with MIG instances, with 4 or 8
// digits of domain, with and without a function, and with the unknown process of old and new drivers.
var (
	xidLine = regexp.MustCompile(`^NVRM:\s*(?:GPU ?\d+ )?Xid\s*\((?:PCI:)?([0-9a-fA-F:.]{7,20})` +
		`(?: GPU-I:(\d{1,5}))?(?: GPU-CI:(\d{1,5}))?\):\s*(\d{1,5})(?:,\s*(.*))?$`)
	xidProcess = regexp.MustCompile(`^pid='?(\d{1,10}|<unknown>)'?(?:,\s*(.*))?$`)
	oldAddress = regexp.MustCompile(`^00([0-9a-fA-F]{2}:[0-9a-fA-F]{2})$`)
	uuidLine   = regexp.MustCompile(`^NVRM: GPU at (?:PCI:)?([0-9a-fA-F:.]{7,20}): (GPU-[0-9a-fA-F-]{36})$`)
	serialLine = regexp.MustCompile(`^NVRM: GPU Board Serial Number: (\S{1,32})$`)
	nvlinkLine = regexp.MustCompile(`^NVRM: (?:GPU ?(\d{1,3}) )?(k?nvlink\w+): (.*)$`)
	gpuOnBus   = regexp.MustCompile(`^NVRM: GPU (?:at (?:PCI:)?)?([0-9a-fA-F:.]{7,20}): (.*)$`)
)

func parseNVRM(text string) (Fact, bool) {
	for _, parse := range []func(string) (Fact, bool){
		parseXid, parseUUID, parseLost, parseMismatch, parseRmInit, parseNVLinkLine,
	} {
		if f, ok := parse(text); ok {
			return f, true
		}
	}
	return Fact{}, false
}

func parseXid(text string) (Fact, bool) {
	m := xidLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindXid, Code: number(m[4]), GI: number(m[2]), CI: number(m[3])}
	address := m[1]
	if old := oldAddress.FindStringSubmatch(address); old != nil {
		address = old[1] // drivers before 2012 wrote bus and device with four digits of bus
	}
	if f.Code == nil || !f.address(address) {
		return Fact{}, false
	}
	f.process(m[5])
	f.xidDetail()
	return f, true
}

// process takes the process off the front of what follows the code. Its name may hold anything, commas too.
func (f *Fact) process(rest string) {
	m := xidProcess.FindStringSubmatch(rest)
	if m == nil {
		f.Text = rest
		return
	}
	if pid := number(m[1]); pid != nil && *pid <= highestPID {
		f.PID = pid
	}
	rest, named := strings.CutPrefix(m[2], "name=")
	if !named {
		f.Text = rest
		return
	}
	comm, message := splitName(rest)
	if comm != "<unknown>" {
		f.Comm = comm
	}
	f.Text = message
}

const (
	longestComm = 15      // bytes; the kernel keeps no more of a name
	highestPID  = 1 << 22 // of the kernel; drivers write -1 as 4294967295 where there is no process
)

// splitName parts a process name from the message behind it. Names may hold ", " themselves, so of all places where
// one could end, the first is taken behind which a message begins as the driver begins one.
func splitName(s string) (comm, message string) {
	first := -1
	for at := 0; at <= min(len(s), 2*longestComm); at++ {
		if !strings.HasPrefix(s[at:], ", ") {
			continue
		}
		if first >= 0 && at > longestComm {
			break
		}
		if first < 0 {
			first = at
		}
		if beginsMessage(s[at+2:]) {
			return s[:at], s[at+2:]
		}
	}
	if first >= 0 {
		return s[:first], s[first+2:]
	}
	if len(s) <= longestComm {
		return s, ""
	}
	end := longestComm
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end], s[end:]
}

func beginsMessage(s string) bool {
	for _, beginning := range []string{
		"Ch ", "Channel ", "channel ", "GPU ", "Graphics ", "MMU ", "NVLink", "Timeout ", "DBE ", "Row Remapper", "Contained",
		"Uncontained", "caused by", "Reset ", "Unable ", "GSP ",
	} {
		if strings.HasPrefix(s, beginning) {
			return true
		}
	}
	return false
}

// parseUUID: the driver names a GPU before the first XID of it, and its board in the next line, where it has a number.
func parseUUID(text string) (Fact, bool) {
	const thread = "uuid"
	if m := uuidLine.FindStringSubmatch(text); m != nil {
		f := Fact{
			Kind: heelerv1.KindGpuUUID, UUID: "GPU-" + strings.ToLower(m[2][len("GPU-"):]),
			part: opens, thread: thread, brief: true,
		}
		return f, f.address(m[1])
	}
	if m := serialLine.FindStringSubmatch(text); m != nil {
		f := Fact{Kind: heelerv1.KindGpuUUID, part: continues, thread: thread, closes: true}
		f.set("board_serial", m[1])
		return f, true
	}
	return Fact{}, false
}

// lostText is what the driver prints on the last of the three lines of a loss at probe time.
const lostText = "fallen off the bus"

var (
	lostFirst = regexp.MustCompile(`^The NVIDIA GPU ([0-9a-fA-F:.]{7,20})\b(.*)$`)
	lostNext  = regexp.MustCompile(`^(?:\(PCI ID: |installed in this|system has fallen|fallen off the bus)`)
	pciID     = regexp.MustCompile(`\(PCI ID: ([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\)`)
)

// parseLost knows a loss without an XID: one line while the GPU is in use, up to three lines when it is first touched.
// The address stands in the first of them, and only the last says that the GPU is lost.
func parseLost(text string) (Fact, bool) {
	const thread = "lost"
	f := Fact{Kind: heelerv1.KindGpuLost, thread: thread}
	if m := gpuOnBus.FindStringSubmatch(text); m != nil && strings.HasPrefix(m[2], "GPU has "+lostText) {
		f.Text = "GPU has fallen off the bus."
		return f, f.address(m[1])
	}
	f.Text = strings.TrimPrefix(text, driverMark)
	lost := strings.Contains(text, lostText)
	if m := lostFirst.FindStringSubmatch(f.Text); m != nil {
		f.pciID(m[2])
		if !lost {
			f.part, f.weak = opens, true
		}
		return f, f.address(m[1])
	}
	if !lostNext.MatchString(f.Text) {
		return Fact{}, false
	}
	f.pciID(f.Text)
	f.part, f.text, f.weak, f.closes = continues, appendText, !lost, lost
	return f, true
}

func (f *Fact) pciID(text string) {
	if m := pciID.FindStringSubmatch(text); m != nil {
		f.set("vendor", strings.ToLower(m[1]))
		f.set("device", strings.ToLower(m[2]))
	}
}

var (
	rmInit = regexp.MustCompile(`^(?:GPU (?:at (?:PCI:)?)?([0-9a-fA-F:.]{6,19}[0-9a-fA-F]):? )?` +
		`((?:RmInitAdapter|rm_init_adapter)(?:\(\d+\))?:? (?:failed|Cannot).*|.*\balready (?:in use|bound)\b.*)$`)
	rmCodes     = regexp.MustCompile(`\((0x[0-9a-fA-F]+):(0x[0-9a-fA-F]+):(\d+)\)`)
	rmMinor     = regexp.MustCompile(`device minor number (\d{1,5})`)
	probeFailed = regexp.MustCompile(`^(?:The NVIDIA probe routine (?:failed|was not called) for (\d+) device` +
		`|None of the NVIDIA (?:devices|graphics adapters) were initialized` +
		`|This PCI I/O region assigned to your NVIDIA device is invalid|request_mem_region failed|No NVIDIA .* probed)`)
	badBAR = regexp.MustCompile(`^(BAR\d) is (\S+ @ \S+) \(PCI:([0-9a-fA-F:.]{7,20})\)`)
)

func parseRmInit(text string) (Fact, bool) {
	rest := strings.TrimPrefix(text, driverMark)
	f := Fact{Kind: heelerv1.KindRmInit, Text: rest}
	if m := rmInit.FindStringSubmatch(rest); m != nil {
		f.Text = m[2]
		f.set("event", "init_failed")
		if strings.Contains(f.Text, "already ") {
			f.set("event", "in_use")
		}
		if c := rmCodes.FindStringSubmatch(f.Text); c != nil {
			f.set("status", strings.Trim(c[0], "()"))
		}
		if n := rmMinor.FindStringSubmatch(f.Text); n != nil {
			f.setNumber("minor", n[1])
		}
		return f, m[1] == "" || f.address(m[1])
	}
	if m := probeFailed.FindStringSubmatch(rest); m != nil {
		f.set("event", "probe_failed")
		f.setNumber("devices", m[1])
		return f, true
	}
	if m := badBAR.FindStringSubmatch(rest); m != nil {
		f.set("event", "probe_failed")
		f.set("bar", m[1]+" "+m[2])
		return f, f.address(m[3])
	}
	return Fact{}, false
}

var (
	mismatchFirst = regexp.MustCompile(`^API mismatch: the client(?: '(.{1,64})')?(?: \(pid (\d{1,10})\))?(?:$| has the version (\S+?),?(?: but)?$)`)
	mismatchMore  = regexp.MustCompile(`^(?:but |has the version (\S+?), but )?this kernel module has(?: the version (\S+?)\.?)?(?:  ?Please.*)?$`)
	mismatchTail  = regexp.MustCompile(`^(?:the version (\S+?)\.  ?Please make sure that this|make sure that this kernel module and all NVIDIA driver` +
		`|kernel module and all NVIDIA driver components|components have the same version\.?|have the same version\.?)$`)
)

// parseMismatch: library and kernel module are of different versions, as after an upgrade without a reload. The driver
// says so in four or five lines.
func parseMismatch(text string) (Fact, bool) {
	rest := strings.TrimSpace(strings.TrimPrefix(text, driverMark))
	f := Fact{Kind: heelerv1.KindRmInit, Text: rest, thread: "mismatch", text: appendText}
	if m := mismatchFirst.FindStringSubmatch(rest); m != nil {
		f.part, f.Comm, f.PID = opens, m[1], number(m[2])
		f.set("event", "api_mismatch")
		f.setText("client_version", m[3])
		return f, true
	}
	f.part = continues
	if m := mismatchMore.FindStringSubmatch(rest); m != nil {
		f.setText("client_version", m[1])
		f.setText("module_version", m[2])
		return f, true
	}
	if m := mismatchTail.FindStringSubmatch(rest); m != nil {
		f.setText("module_version", m[1])
		f.closes = strings.Contains(rest, "have the same version")
		return f, true
	}
	return Fact{}, false
}

// setText sets what is not empty.
func (f *Fact) setText(key, value string) {
	if value != "" {
		f.set(key, value)
	}
}

// parseNVLinkLine takes what the driver says of NVLink apart from XIDs, such as links that never come up.
func parseNVLinkLine(text string) (Fact, bool) {
	m := nvlinkLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindNvlink, Text: m[3]}
	f.set("function", m[2])
	f.setNumber("gpu_instance", m[1])
	return f, true
}

// number reads a whole number; nil for none.
func number(s string) *uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// anyNumber reads a whole number that may be hexadecimal.
func anyNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 0, 64)
	return n, err == nil
}

// hexNumber reads a hexadecimal number without 0x.
func hexNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 16, 64)
	return n, err == nil
}

// setHex sets a hexadecimal number, written with or without 0x.
func (f *Fact) setHex(key, digits string) {
	if v, ok := hexNumber(strings.TrimPrefix(digits, "0x")); ok {
		f.set(key, v)
	}
}
