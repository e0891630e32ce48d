package dcgm

import (
	"fmt"
	"strconv"
	"strings"
)

// node is what DCGM has numbered. Its numbers are its own: not NVML's, and valid for as long as its host engine runs.
type node struct {
	gpus map[uint64]string // number: UUID
	// instances are the MIG instances: number, and the GPU and the driver's number of the instance.
	instances map[uint64]instance
	switches  []uint64
}

type instance struct {
	uuid string
	gi   int64
}

// parseDiscovery reads dcgmi discovery -l. A table that says how many GPUs there are and then shows others is no answer.
func parseDiscovery(text string) (node, error) {
	n := node{gpus: map[uint64]string{}}
	section, want := "", map[string]int{}
	var gpu uint64
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if words := strings.Fields(line); len(words) == 3 && strings.HasPrefix(words[2], "found") {
			if count, err := strconv.Atoi(words[0]); err == nil {
				section = strings.ToLower(words[1])
				want[section] = count
			}
			continue
		}
		first, second, ok := cells(line)
		if !ok {
			continue
		}
		id, err := strconv.ParseUint(first, 10, 32)
		switch {
		case strings.HasPrefix(section, "gpu"):
			if err == nil {
				gpu = id
				n.gpus[gpu] = ""
			}
			if uuid, ok := strings.CutPrefix(second, "Device UUID: "); ok {
				if _, known := n.gpus[gpu]; !known {
					return node{}, fmt.Errorf("discovery: a UUID without a number: %.60q", line)
				}
				n.gpus[gpu] = strings.TrimSpace(uuid)
			}
		case strings.HasPrefix(section, "nvswitch") && err == nil:
			n.switches = append(n.switches, id)
		}
	}
	gpus, told := want["gpus"]
	if !told {
		gpus, told = want["gpu"]
	}
	if !told {
		return node{}, fmt.Errorf("discovery: it does not say how many GPUs were found: %.60q", text)
	}
	if len(n.gpus) != gpus {
		return node{}, fmt.Errorf("discovery: %d GPUs found, %d shown", gpus, len(n.gpus))
	}
	for id, uuid := range n.gpus {
		if !strings.HasPrefix(uuid, "GPU-") { // dcgmi could not ask it
			delete(n.gpus, id)
		}
	}
	return n, nil
}

// cells are the first two of a line of a table.
func cells(line string) (first, second string, ok bool) {
	parts := strings.Split(line, "|")
	if len(parts) < 3 {
		return "", "", false
	}
	return strings.TrimSpace(parts[1]), strings.TrimSpace(parts[2]), true
}

// parseInstances reads dcgmi discovery -c: the MIG instances below their GPUs.
func parseInstances(text string) map[uint64]instance {
	found := map[uint64]instance{}
	uuid := ""
	for line := range strings.Lines(text) {
		first, second, ok := cells(strings.TrimSpace(line))
		if !ok {
			continue
		}
		what, rest, numbered := strings.Cut(second, " (EntityID: ")
		id, err := strconv.ParseUint(strings.TrimSuffix(rest, ")"), 10, 32)
		if !numbered || err != nil {
			continue
		}
		if name, ok := strings.CutPrefix(what, "GPU GPU-"); ok {
			uuid = "GPU-" + name
			continue
		}
		place, ok := strings.CutPrefix(first, "-> I ")
		_, gi, both := strings.Cut(place, "/")
		number, err := strconv.ParseInt(gi, 10, 32)
		if what == "GPU Instance" && ok && both && err == nil && uuid != "" {
			found[id] = instance{uuid, number}
		}
	}
	return found
}

// switchLink is one link of a switch.
type switchLink struct{ Switch, Link uint64 }

// raw is DCGM's number of a link: the kind of its owner (3 is a switch), the link, the owner.
func (l switchLink) raw() uint64 { return 3 | l.Link<<8 | l.Switch<<16 }

// parseLinks reads dcgmi nvlink -s: the links that each switch has, whatever their state.
func parseLinks(text string) []switchLink {
	var links []switchLink
	var owner uint64
	inSwitches, have := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if id, ok := strings.CutPrefix(line, "physicalId "); ok && inSwitches {
			n, err := strconv.ParseUint(strings.TrimSuffix(id, ":"), 10, 16)
			owner, have = n, err == nil
			continue
		}
		if strings.HasPrefix(line, "NvSwitches:") {
			inSwitches = true
			continue
		}
		if !have || strings.Trim(line, "UDX_ ") != "" {
			continue
		}
		for i, state := range strings.Fields(line) {
			if state != "_" && len(state) == 1 && i < 256 {
				links = append(links, switchLink{owner, uint64(i)})
			}
		}
		have = false
	}
	return links
}
