package ib

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
)

func makeDir(s *tree, path string) error { return os.MkdirAll(filepath.Join(s.root, path), 0o755) }

// refuse replaces a file by one that really answers with an error: this machine's own.
func (s *tree) refuse(path string, with error) {
	s.t.Helper()
	s.must(os.Remove(path))
	switch {
	case errors.Is(with, syscall.EINVAL):
		s.must(os.Symlink("/sys/class/net/lo/speed", path))
	case errors.Is(with, syscall.EIO):
		s.must(os.Symlink("/proc/self/mem", path))
	case errors.Is(with, syscall.ENXIO):
		short, err := os.MkdirTemp("", "s") // the path of a socket has 108 bytes
		s.must(err)
		s.t.Cleanup(func() { _ = os.RemoveAll(short) })
		socket, err := net.Listen("unix", filepath.Join(short, "s"))
		s.must(err)
		s.t.Cleanup(func() { _ = socket.Close() })
		s.must(os.Symlink(filepath.Join(short, "s"), path))
	case errors.Is(with, syscall.ENOENT):
	default:
		s.t.Fatalf("no file gives %v", with)
	}
	if _, err := os.ReadFile(path); !errors.Is(err, with) {
		s.t.Skipf("here it gives %v", err)
	}
}

func TestARefusedFileIsLeftAloneForHours(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, with(full(), "ports/1/counters/port_rcv_errors", "N/A (no PMA)"))
	path := s.file(slot, "mlx5_0", "ports/1/counters/port_xmit_wait")
	s.refuse(path, syscall.EINVAL)
	now := time.Unix(1000, 0)
	c := New(Options{Sys: s.root, Now: func() time.Time { return now }})
	check := func(when string) {
		t.Helper()
		p := onePort(t, c)
		if p.Absent["port_xmit_wait"] != "invalid" || p.Absent["port_rcv_errors"] != "no_pma" || p.Counters["port_xmit_data"] != 4000 {
			t.Errorf("%s: %+v", when, p)
		}
		if got := c.Counts()["files_refused"]; got != 2 {
			t.Errorf("%s: %d refused", when, got)
		}
	}
	check("at first")
	// From here on they could be read, which only shows when they are.
	s.must(os.Remove(path))
	s.must(os.WriteFile(path, []byte("12\n"), 0o600))
	s.must(os.WriteFile(s.file(slot, "mlx5_0", "ports/1/counters/port_rcv_errors"), []byte("9\n"), 0o600))
	for range 3 * describeEvery { // a new listing doesn't forget
		now = now.Add(10 * time.Second)
		check(now.String())
	}
	now = now.Add(refusedTime)
	if p := onePort(t, c); p.Counters["port_xmit_wait"] != 12 || p.Counters["port_rcv_errors"] != 9 || len(p.Absent) != 0 {
		t.Errorf("after hours: %+v", p)
	}
}

func TestADeviceThatIsPluggedInAgainIsReadAnew(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, with(full(), "ports/1/counters/port_rcv_errors", "N/A (no PMA)"))
	c := New(Options{Sys: s.root})
	if p := onePort(t, c); p.Absent["port_rcv_errors"] != "no_pma" {
		t.Fatalf("got %+v", p)
	}
	// The new one comes before a reading could see that the old one was gone.
	s.plug("mlx5_0", slot2, with(full(), "ports/1/counters/port_rcv_errors", "0", "fw_ver", "28.40.1000"))
	if p := onePort(t, c); p.Counters["port_rcv_errors"] != 0 || p.Absent["port_rcv_errors"] != "" {
		t.Errorf("got %+v", p)
	}
	if c.devices["mlx5_0"].firmware != "28.40.1000" {
		t.Errorf("firmware %s", c.devices["mlx5_0"].firmware)
	}
}

func TestAPortThatGoesAwayBetweenListAndRead(t *testing.T) {
	for _, fault := range []struct {
		err       error
		file, why string
	}{
		{syscall.ENOENT, "state", "not_present"}, {syscall.EIO, "state", "io_error"}, {syscall.ENXIO, "state", "gone"},
		{syscall.ENXIO, "counters/symbol_error", "gone"},
	} {
		t.Run(fault.file+" "+fault.err.Error(), func(t *testing.T) {
			s := newTree(t)
			s.plug("mlx5_0", slot, full())
			s.plug("mlx5_1", slot2, with(full(), "node_guid", "b83f:d203:0012:9999"))
			c := New(Options{Sys: s.root})
			if m := well(t, c); len(m.Ports) != 2 {
				t.Fatalf("%d ports", len(m.Ports))
			}
			path := s.file(slot, "mlx5_0", "ports/1/"+fault.file)
			s.refuse(path, fault.err)
			m := well(t, c)
			if len(m.Ports) != 1 || m.Ports[0].Device != "mlx5_1" || m.Absent["mlx5_0/1"] != fault.why {
				t.Fatalf("%d ports, absent %v", len(m.Ports), m.Absent)
			}
			_ = os.Remove(path)
			s.must(os.WriteFile(path, []byte("4: ACTIVE\n"), 0o600))
			if m := well(t, c); len(m.Ports) != 2 || len(m.Absent) != 0 {
				t.Errorf("then %d ports, absent %v", len(m.Ports), m.Absent)
			}
		})
	}
}

func TestOneCounterThatFailsCostsOneCounter(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	s.refuse(s.file(slot, "mlx5_0", "ports/1/counters/symbol_error"), syscall.EIO)
	p := onePort(t, New(Options{Sys: s.root}))
	if p.Absent["symbol_error"] != "io_error" || p.Counters["link_downed"] != 3 {
		t.Errorf("got %+v", p)
	}
}

func TestDevicesThatGoAwayAreMissedAndComeBack(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	c := New(Options{Sys: s.root})
	onePort(t, c)
	s.unplug("mlx5_0", slot)
	if m := well(t, c); len(m.Ports) != 0 {
		t.Errorf("got %+v", m)
	}
	if _, err := collect(t, c); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("then %v", err)
	}
	s.plug("mlx5_0", slot, with(full(), "ports/1/counters/link_downed", "0"))
	if p := onePort(t, c); p.Counters["link_downed"] != 0 {
		t.Errorf("back with %+v", p)
	}
}

func TestAFolderThatLosesItsDeviceInTheMiddle(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	c := New(Options{Sys: s.root})
	onePort(t, c)
	// The link in the class is there, what it points to is not.
	s.must(os.RemoveAll(filepath.Join(s.root, function(slot))))
	if m := well(t, c); len(m.Ports) != 0 || m.Absent["mlx5_0"] != "not_present" {
		t.Errorf("got %+v", m)
	}
}

func TestADeviceWhoseFilesNeverReturnStopsNobody(t *testing.T) {
	s := newTree(t)
	s.plug("mlx5_0", slot, full())
	s.plug("mlx5_1", slot2, with(full(), "node_guid", "b83f:d203:0012:9999"))
	c := New(Options{Sys: s.root, Patience: 50 * time.Millisecond})
	if m := well(t, c); len(m.Ports) != 2 {
		t.Fatalf("%d ports", len(m.Ports))
	}
	path := s.file(slot, "mlx5_0", "ports/1/counters/symbol_error")
	s.must(os.Remove(path))
	s.must(syscall.Mkfifo(path, 0o600)) // to open it waits for a writer
	for range 3 {
		m, err := collect(t, c)
		if !errors.Is(err, collector.ErrHung) || !strings.Contains(err.Error(), "mlx5_0") {
			t.Errorf("got %v", err)
		}
		if m == nil || len(m.Ports) != 1 || m.Ports[0].Device != "mlx5_1" || m.Absent["mlx5_0"] != "hung" {
			t.Errorf("got %+v", m)
		}
		if c.Counts()["devices_hung"] != 1 {
			t.Errorf("counts %v", c.Counts())
		}
	}
	s.must(os.WriteFile(path, []byte("7\n"), 0o600)) // the one that waits goes on
	s.must(os.Remove(path))
	s.must(os.WriteFile(path, []byte("7\n"), 0o600))
	deadline := time.Now().Add(5 * time.Second)
	for {
		m, err := collect(t, c)
		if err == nil && len(m.Ports) == 2 && m.Ports[0].Counters["symbol_error"] == 7 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it stays %+v, %v", m, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
