//go:build cgo

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

func TestAnAgentWithoutAStateDirectoryRunsAndSaysSo(t *testing.T) {
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.config.StateDir = filepath.Join(file, "state")
	s.run()
	wait(s, "a sample", anySample)
	time.Sleep(time.Second) // the log's backlog is read
	s.log("4,7,5,-;NVRM: Xid (PCI:0000:0a:00): 48, pid=1, name=a, words")
	wait(s, "an event", func(m *heelerv1.KernelEvent) bool { return m.Kind == heelerv1.KindXid })
	status := wait(s, "a status that says so", func(m *heelerv1.AgentStatus) bool {
		return m.Collectors["spool"].State == heelerv1.CollectorFailing && m.Collectors["bus"].State == heelerv1.CollectorOK
	})
	if why := status.Collectors["spool"].Why; !strings.Contains(why, "not a directory") {
		t.Errorf("why: %s", why)
	}
	if kmsg := status.Collectors["kmsg"]; kmsg.State != heelerv1.CollectorOK {
		t.Errorf("kmsg: %+v", kmsg)
	}
}
