package kmsg

import (
	"strings"

	"heeler.dev/agent-go/internal/pci"
	"heeler.dev/schemas/go/heelerv1"
)

// part says what a line is within an event of several lines.
type part int

const (
	whole part = iota
	// opens may be continued by the next lines.
	opens
	// continues belongs to a line before and is no event by itself.
	continues
	// either belongs to a line before, if there is one, and else opens an event.
	either
)

// Fact is what one line says.
type Fact struct {
	Kind heelerv1.EventKind
	Code *uint64
	PCI  string
	UUID string
	GI   *uint64
	CI   *uint64
	PID  *uint64
	Comm string
	Text string
	// Detail holds strings, bools, int64, uint64, and slices and maps of them.
	Detail map[string]any
	// Count is how many lines the text says it stands for; 0 for itself alone.
	Count uint64

	part part
	// thread is what the lines of one event have in common.
	thread string
	// closes says that nothing of the event follows.
	closes bool
	// weak says that the line alone is no event.
	weak bool
	// brief says that the next line decides: nothing else may come between.
	brief bool
	// once is a key of the detail that an event has from one line only.
	once string
	// text says what the text of a continuation does to that of the event.
	text textRule
}

// textRule is what becomes of the text of a line that continues an event.
type textRule int

const (
	dropText textRule = iota
	appendText
	replaceText
)

func (f *Fact) set(key string, value any) {
	if f.Detail == nil {
		f.Detail = map[string]any{}
	}
	f.Detail[key] = value
}

// family is a parser of lines that begin with a mark.
type family struct {
	mark  string
	parse func(text string) (Fact, bool)
}

// families are the lines that begin in a way of their own. A mark at the beginning keeps a process from forging a line
// through its name, which the kernel prints only further in.
func families() []family {
	return []family{
		{driverMark, parseNVRM},
		{"nvidia-nvswitch", parseSXid},
		{"nvidia-peermem", parsePeermem},
		{"nvidia_peermem", parsePeermem},
		{"nv_peer_mem", parsePeermem},
		{"mce: CPU", parseThermal},
		{"mce: ", parseMCE},
		{"MCE: ", parseMCE},
		{"[Hardware Error]: ", parseMCE},
		{"{", parseAPEI},
		{"BERT: ", parseBERT},
		{"CPU ", parseMCE},
		{"CPU", parseThermal},
		{"thermal ", parseThermal},
		{"Memory failure: ", parseMemoryFailure},
		{"EDAC ", parseEDAC},
		{"oom-kill:", parseOOMKill},
		{"Task in ", parseOOMTask},
		{"Out of memory", parseOOM},
		{"Memory cgroup out of memory", parseOOM},
		{"Killed process ", parseOOM},
		{"INFO: task ", parseHungTask},
		{"INFO: rcu", parseRCUStall},
		{"rcu: INFO: rcu", parseRCUStall},
		{"watchdog: ", parseLockup},
		{"NMI watchdog: ", parseLockup},
		{"BUG: soft lockup", parseLockup},
		{"nvme", parseNVMe},
		{"block nvme", parseNVMePath},
		{"blk_update_request: ", parseBlock},
		{"print_req_error: ", parseBlock},
		{"end_request: ", parseBlock},
		{"critical ", parseBlock},
		{"I/O error, dev nvme", parseBlock},
		{"Buffer I/O error on dev", parseBuffer},
		{"EXT", parseExt},
		{"JBD2: ", parseExt},
		{"Aborting journal", parseExt},
		{"XFS ", parseXFS},
		{"BTRFS", parseBtrfs},
		{"F2FS-fs ", parseExt},
		{"FAT-fs ", parseExt},
		{"md: ", parseMD},
		{"md/", parseMD},
		{"mlx5_core: ", parseMlx5Plain},
		{"NETDEV WATCHDOG: ", parseNetdevWatchdog},
		{"bonding: ", parseBond},
		{"bond", parseBond},
		{"printk: ", parseSuppressed},
	}
}

// Parser turns lines into facts. It keeps no state.
type Parser struct {
	byFirst [256][]family
}

// NewParser returns a parser.
func NewParser() *Parser {
	p := &Parser{}
	for _, f := range families() {
		first := f.mark[0]
		p.byFirst[first] = append(p.byFirst[first], f)
	}
	return p
}

// Parse says what a line of the kernel log means, and false when it means nothing to us. Whatever the text, it returns.
func (p *Parser) Parse(text string) (Fact, bool) {
	if text == "" {
		return Fact{}, false
	}
	for i := range p.byFirst[text[0]] {
		f := &p.byFirst[text[0]][i]
		if !strings.HasPrefix(text, f.mark) {
			continue
		}
		if fact, ok := f.parse(text); ok {
			return fact, true
		}
	}
	if d, ok := deviceLine(text); ok {
		if fact, ok := parseDevice(text, &d); ok {
			return fact, true
		}
	}
	return parseAnywhere(text)
}

// parseAnywhere knows the lines that begin with a name of the node's own, such as that of a network interface.
func parseAnywhere(text string) (Fact, bool) {
	if strings.Contains(text, "ink ") || strings.Contains(text, " carrier") || strings.Contains(text, "link status") {
		if f, ok := parseBond(text); ok {
			return f, true
		}
		if f, ok := parseLink(text); ok {
			return f, true
		}
	}
	if strings.Contains(text, "Slot(") {
		if f, ok := parseOldHotplug(text); ok {
			return f, true
		}
	}
	if strings.HasSuffix(text, "suppressed") {
		return parseSuppressed(text)
	}
	return Fact{}, false
}

// device is the head of a line that a driver wrote about a PCI device: "driver 0000:3b:00.0 netdev: rest".
type device struct {
	driver, address, netdev, rest string
}

const longestDriver = 32

// deviceLine parts the head of a driver's line from what it says.
func deviceLine(text string) (device, bool) {
	var d device
	at := 0
	n := addressLength(text)
	if n == 0 {
		space := strings.IndexByte(text, ' ')
		if space <= 0 || space > longestDriver {
			return d, false
		}
		d.driver, at = text[:space], space+1
		if n = addressLength(text[at:]); n == 0 {
			return d, false
		}
	}
	d.address = text[at : at+n]
	head, rest, ok := strings.Cut(text[at+n:], ": ")
	if !ok {
		return d, false
	}
	d.rest = rest
	if netdev, named := strings.CutPrefix(head, " "); named {
		d.netdev, _, _ = strings.Cut(netdev, " (") // "(unregistering)"
		return d, d.netdev != "" && !strings.Contains(d.netdev, " ")
	}
	return d, head == "" || strings.HasPrefix(head, ":pci") // 4.x kernels name the port's service
}

// addressLength is the length of the PCI address, with its function, at the beginning of s; 0 for none.
func addressLength(s string) int {
	digits := 0
	for digits < len(s) && digits <= 8 && isHex(s[digits]) {
		digits++
	}
	const rest = len(":3b:00.0")
	if digits < 4 || digits > 8 || len(s) < digits+rest {
		return 0
	}
	t := s[digits : digits+rest]
	if t[0] != ':' || t[3] != ':' || t[6] != '.' || t[7] < '0' || t[7] > '7' {
		return 0
	}
	for _, i := range []int{1, 2, 4, 5} {
		if !isHex(t[i]) {
			return 0
		}
	}
	return digits + rest
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// parseDevice knows what drivers say about their devices.
func parseDevice(text string, d *device) (Fact, bool) {
	if d.netdev == "" {
		if f, ok := parsePCIe(text, d); ok {
			return f, true
		}
	}
	switch {
	case d.driver == "mlx5_core":
		return parseMlx5(text, d)
	case d.driver == "megaraid_sas" || d.driver == "mpt3sas" || d.driver == "smartpqi":
		return parseRaidCard(text, d)
	}
	return Fact{}, false
}

// address normalises a PCI address for the event, and leaves a function that is not 0 in the detail.
func (f *Fact) address(s string) bool {
	address, function, ok := pci.Split(s)
	if !ok {
		return false
	}
	f.PCI = address
	if function != 0 {
		f.set("function", function)
	}
	return true
}

// record says what all lines of a record mean. A record is one event, whatever its lines say.
func (p *Parser) record(r *Record) []Fact {
	first, ok := p.Parse(r.Text)
	if len(r.More) == 0 {
		if !ok {
			return nil
		}
		return []Fact{first}
	}
	var facts []Fact
	if ok {
		facts = append(facts, first)
	}
	for _, line := range r.More {
		f, ok := p.Parse(line)
		if !ok {
			continue
		}
		if len(facts) > 0 && f.part != continues {
			f.part, f.thread, f.text, f.once = continues, facts[0].thread, appendText, ""
		}
		facts = append(facts, f)
	}
	if len(facts) > 1 && facts[0].part == whole {
		facts[0].part, facts[0].thread = opens, "record"
		for i := range facts[1:] {
			facts[1+i].part, facts[1+i].thread = continues, "record"
		}
	}
	return facts
}
