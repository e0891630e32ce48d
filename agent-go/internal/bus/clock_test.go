package bus

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func TestTheClockIsComparedWithTheServersOwn(t *testing.T) {
	h := newHub(t)
	h.start()
	s := newSender(t, h, newSpool(t, t.TempDir()), func(c *Config) { c.InboxPrefix = "_INBOX_n1" })
	until(t, "it connects", s.nc.IsConnected)
	if o, w := s.ClockOffset(); o != nil || w != nil {
		t.Errorf("known before it was measured: %v %v", *o, *w)
	}
	if err := s.askClock(context.Background()); err != nil {
		t.Fatal(err)
	}
	offset, within := s.ClockOffset()
	if offset == nil || within == nil {
		t.Fatal("not known")
	}
	// Both read the same clock.
	if *within > uint64(5*time.Second) || max(*offset, -*offset) > int64(*within)+int64(time.Millisecond) {
		t.Errorf("%s, give or take %s", time.Duration(*offset), time.Duration(*within))
	}
}

func TestAUserMayAskTheTimeWithOneRight(t *testing.T) {
	for subject, may := range map[string]bool{clockSubject: true, "other": false} {
		h := newHub(t, func(o *server.Options) {
			o.JetStream = false
			o.Users = []*server.User{{Username: "agent", Password: "p", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{subject}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_n1.>"}},
			}}}
		})
		h.start()
		s := newSender(t, h, newSpool(t, t.TempDir()), func(c *Config) {
			c.User, c.Password, c.InboxPrefix = "agent", "p", "_INBOX_n1"
		})
		until(t, "it connects", s.nc.IsConnected)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := s.askClock(ctx)
		cancel()
		if _, _, known := s.Clock.get(s.Clock.now()); known != may || (err == nil) != may {
			t.Errorf("with the right to publish to %s: known %v, %v", subject, known, err)
		}
	}
}

// later is a moment some time after another, with the wall clock set meanwhile.
func later(m moment, after, set time.Duration) moment {
	return moment{m.wall.Add(after + set), m.steady + after}
}

func TestTheOffsetIsThatOfTheMiddle(t *testing.T) {
	for _, ahead := range []time.Duration{0, 90 * time.Second, -24 * time.Hour} {
		c := NewClock()
		asked := c.now()
		answered := later(asked, 40*time.Millisecond, 0)
		if err := c.set(asked, answered, asked.wall.Add(20*time.Millisecond-ahead)); err != nil {
			t.Fatal(err)
		}
		offset, within, known := c.get(answered)
		if !known || offset != ahead || within != 20*time.Millisecond {
			t.Errorf("%s: got %s, give or take %s, %v", ahead, offset, within, known)
		}
		if _, _, known := c.get(later(answered, clockLasts+time.Second, 0)); known {
			t.Error("still known after too long")
		}
	}
}

func TestAClockThatIsSetMakesTheOffsetUnknown(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		c := NewClock()
		asked := c.now()
		if err := c.set(asked, later(asked, time.Millisecond, step), asked.wall); err == nil {
			t.Error("measured while the clock was set")
		}
		answered := later(asked, time.Millisecond, 0)
		if err := c.set(asked, answered, asked.wall); err != nil {
			t.Fatal(err)
		}
		if c.forgetIfSet(later(answered, time.Minute, 0)) {
			t.Error("forgotten without a reason")
		}
		after := later(answered, time.Minute, step)
		if _, _, known := c.get(after); known || !c.forgetIfSet(after) || c.forgetIfSet(after) {
			t.Error("it is not asked again, once")
		}
	}
}
