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
	// continues belongs to the line before and is no event by itself.
	continues
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
	// Detail holds strings, bools, int64, uint64, and slices of uint64.
	Detail map[string]any

	part part
}

func (f *Fact) set(key string, value any) {
	if f.Detail == nil {
		f.Detail = map[string]any{}
	}
	f.Detail[key] = value
}

// family is a parser of lines that begin with, or contain, a mark.
type family struct {
	mark   string
	inside bool // the mark may stand anywhere
	parse  func(text string) (Fact, bool)
}

// families are asked in order; the first that knows the line answers. A mark at the beginning keeps a process from
// forging a line through its name, which the kernel prints only further in.
func families() []family {
	return []family{
		{"NVRM: ", false, parseNVRM},
		{"nvidia-nvswitch", false, parseSXid},
		{"nvidia-peermem", false, parsePeermem},
		{"nvidia_peermem", false, parsePeermem},
		{"nv_peer_mem", false, parsePeermem},
		{"mce: ", false, parseMCE},
		{"EDAC ", false, parseEDAC},
		{"oom-kill:", false, parseOOMKill},
		{"Out of memory: ", false, parseOOM},
		{"Memory cgroup out of memory: ", false, parseOOM},
		{"INFO: task ", false, parseHungTask},
		{"watchdog: ", false, parseLockup},
		{"nvme ", false, parseNVMe},
		{"nvme", false, parseBlock},
		{"blk_update_request: ", false, parseBlock},
		{"critical ", false, parseBlock},
		{"I/O error, dev nvme", false, parseBlock},
		{"EXT4-fs ", false, parseFilesystem},
		{"XFS ", false, parseFilesystem},
		{"BTRFS", false, parseFilesystem},
		{"mlx5_core ", false, parseMlx5},
		{"AER: ", true, parseAER},
		{"PCIe Bus Error: ", true, parseAER},
		{"pciehp: ", true, parseHotplug},
		{"ink ", true, parseLink},
	}
}

// Parser turns lines into facts. It keeps no state.
type Parser struct {
	families []family
}

// NewParser returns a parser.
func NewParser() *Parser { return &Parser{families()} }

// Parse says what a line of the kernel log means, and false when it means nothing to us. Whatever the text, it returns.
func (p *Parser) Parse(text string) (Fact, bool) {
	for i := range p.families {
		f := &p.families[i]
		if f.inside && !strings.Contains(text, f.mark) || !f.inside && !strings.HasPrefix(text, f.mark) {
			continue
		}
		if fact, ok := f.parse(text); ok {
			return fact, true
		}
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
