package nvml

import (
	"errors"
	"testing"
	"time"
)

// counted counts how often it is opened and closed.
type counted struct {
	Library
	opened, closed int
	fail           error
}

func (c *counted) Init() error {
	if c.fail != nil {
		return c.fail
	}
	c.opened++
	return nil
}
func (c *counted) Shutdown() { c.closed++ }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func left(leave <-chan struct{}) bool {
	select {
	case <-leave:
		return true
	default:
		return false
	}
}

func TestALibraryIsOpenedOnceForBoth(t *testing.T) {
	lib := &counted{}
	s := Share(lib)
	owner, guest := s.Owner(), s.Guest()
	must(t, owner.Init())
	must(t, guest.Init())
	must(t, guest.Init())
	guest.Shutdown()
	guest.Shutdown()
	if lib.opened != 1 || lib.closed != 0 {
		t.Errorf("opened %d, closed %d times", lib.opened, lib.closed)
	}
	owner.Shutdown()
	if lib.closed != 1 {
		t.Errorf("closed %d times", lib.closed)
	}
}

func TestAnOwnerOpensAnewOnceTheGuestHasLeft(t *testing.T) {
	lib := &counted{}
	s := Share(lib)
	owner, guest := s.Owner(), s.Guest()
	must(t, owner.Init())
	must(t, guest.Init())
	leave := guest.Leave()
	owner.Shutdown()
	if !left(leave) || lib.closed != 0 {
		t.Fatalf("asked %v, closed %d", left(leave), lib.closed)
	}
	if err := s.Guest().Init(); err == nil {
		t.Error("a guest comes while the library is being closed")
	}
	done := make(chan error)
	go func() { done <- owner.Init() }()
	time.Sleep(20 * time.Millisecond)
	guest.Shutdown()
	must(t, <-done)
	if lib.opened != 2 || lib.closed != 1 {
		t.Errorf("opened %d, closed %d times", lib.opened, lib.closed)
	}
	must(t, guest.Init())
	if left(guest.Leave()) {
		t.Error("a guest is asked to leave a library that was just opened")
	}
}

func TestAGuestThatHangsDoesNotKeepTheOwnerOut(t *testing.T) {
	lib := &counted{}
	s := Share(lib)
	owner := s.Owner()
	must(t, owner.Init())
	must(t, s.Guest().Init())
	owner.Shutdown()
	must(t, owner.Init()) // takes its time
	other := s.Guest()
	must(t, other.Init())
	if left(other.Leave()) {
		t.Error("another guest is asked to leave")
	}
}

func TestALibraryThatDoesNotOpenIsTriedAgain(t *testing.T) {
	lib := &counted{fail: errors.New("no")}
	s := Share(lib)
	owner, guest := s.Owner(), s.Guest()
	if owner.Init() == nil || guest.Init() == nil {
		t.Fatal("opened")
	}
	lib.fail = nil
	must(t, guest.Init())
	must(t, owner.Init())
	guest.Shutdown()
	owner.Shutdown()
	if lib.opened != 1 || lib.closed != 1 {
		t.Errorf("opened %d, closed %d times", lib.opened, lib.closed)
	}
}
