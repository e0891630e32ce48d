package ib

import (
	"bytes"
	"path/filepath"
	"slices"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// bonds reads the bonds of the ports' interfaces. It has a guard of its own, since these files wait for a lock that a
// driver can hold for long.
type bonds struct {
	class  string
	guard  collector.Guard
	reader hostfs.Reader
}

// of reads the bonds that the ports name.
func (b *bonds) of(ports []heelerv1.IbPort, patience time.Duration) ([]heelerv1.Bond, error) {
	var names []string
	for i := range ports {
		if name := ports[i].Bond; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	return collector.Guarded(&b.guard, patience, func() []heelerv1.Bond {
		all := make([]heelerv1.Bond, 0, len(names))
		for _, name := range names {
			all = append(all, b.read(name))
		}
		return all
	})
}

func (b *bonds) read(name string) heelerv1.Bond {
	dir := filepath.Join(b.class, name, "bonding")
	bond := heelerv1.Bond{Name: name, MIIStatus: string(b.line(dir, "mii_status"))}
	mode, _, _ := bytes.Cut(b.line(dir, "mode"), []byte(" ")) // "802.3ad 4"
	bond.Mode = string(mode)
	for _, slave := range bytes.Fields(bytes.Clone(b.line(dir, "slaves"))) {
		of := filepath.Join(b.class, string(slave), "bonding_slave")
		s := heelerv1.BondSlave{Netdev: string(slave), MIIStatus: string(b.line(of, "mii_status"))}
		if n, err := parseCounter(b.line(of, "link_failure_count")); err == nil {
			s.LinkFailures = &n
		}
		bond.Slaves = append(bond.Slaves, s)
	}
	return bond
}

func (b *bonds) line(dir, name string) []byte {
	text, err := b.reader.Line(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	return text
}
