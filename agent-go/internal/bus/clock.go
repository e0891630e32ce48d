package bus

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// clockSubject is answered by the server that the agent is connected to, with its time and what this user may do. It
// needs no stream and no more rights than to ask about oneself.
const clockSubject = "$SYS.REQ.USER.INFO"

const (
	clockEvery  = 5 * time.Minute
	clockAnswer = 5 * time.Second
	clockLasts  = 3 * clockEvery
	clockFirst  = 10 * time.Second       // the first question comes within
	clockLook   = 5 * time.Second        // between looks whether the node's clock was set
	clockSlack  = 100 * time.Millisecond // that it may jump unseen
)

// moment is a time by the wall clock, which may be set, and by one that only goes on.
type moment struct {
	wall   time.Time
	steady time.Duration
}

// jump is by how much the wall clock was set between two moments.
func jump(from, to moment) time.Duration { return to.wall.Sub(from.wall) - (to.steady - from.steady) }

// Clock knows how far the node's clock is off that of the bus server.
type Clock struct {
	began time.Time

	mu     sync.Mutex
	known  bool
	at     moment
	offset time.Duration
	within time.Duration
}

// NewClock returns a clock that has not been compared yet.
func NewClock() *Clock { return &Clock{began: time.Now()} }

func (c *Clock) now() moment {
	t := time.Now()
	return moment{t.Round(0), t.Sub(c.began)}
}

var errSteppedClock = errors.New("the node's clock was set meanwhile")

// set takes a question's and its answer's time by the node's clock, and the server's time between them.
func (c *Clock) set(asked, answered moment, server time.Time) error {
	if jump(asked, answered).Abs() > clockSlack {
		return errSteppedClock
	}
	trip := answered.steady - asked.steady
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.at, c.within = true, answered, trip/2
	c.offset = asked.wall.Add(trip / 2).Sub(server)
	return nil
}

// get is the node's clock minus the server's, and how far off that may be. It is not known if it was not measured
// lately, or if the clock was set since.
func (c *Clock) get(now moment) (offset, within time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || now.steady-c.at.steady > clockLasts || jump(c.at, now).Abs() > clockSlack {
		return 0, 0, false
	}
	return c.offset, c.within, true
}

// forgetIfSet drops a measurement that the setting of the node's clock made void, and says so.
func (c *Clock) forgetIfSet(now moment) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || jump(c.at, now).Abs() <= clockSlack {
		return false
	}
	c.known = false
	return true
}

// clock asks for the server's time now and then, and when the node's own was set.
func (p *Publisher) clock(ctx context.Context) {
	next := time.Now().Add(rand.N(clockFirst))
	for ctx.Err() == nil {
		wait(ctx, nil, clockLook)
		now := time.Now()
		if p.Clock.forgetIfSet(p.Clock.now()) {
			next = now
		}
		if !p.nc.IsConnected() || now.Before(next) {
			continue
		}
		next = now.Add(clockEvery - rand.N(clockEvery/5))
		if err := p.askClock(ctx); err != nil {
			p.log.Debug("the bus server's time is not known", "error", err)
		}
	}
}

func (p *Publisher) askClock(ctx context.Context) error {
	if !p.nc.denied.allow(clockSubject, time.Now()) {
		return errDenied
	}
	short, cancel := context.WithTimeout(ctx, clockAnswer)
	defer cancel()
	asked := p.Clock.now()
	m, err := p.nc.RequestWithContext(short, clockSubject, nil)
	answered := p.Clock.now()
	if err != nil {
		return err
	}
	server, err := serverTime(m.Data)
	if err != nil {
		return err
	}
	return p.Clock.set(asked, answered, server)
}

func serverTime(data []byte) (time.Time, error) {
	var answer struct {
		Server struct {
			Time time.Time `json:"time"`
		} `json:"server"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return time.Time{}, err
	}
	if answer.Server.Time.Year() < 2000 {
		return time.Time{}, errors.New("the answer has no time")
	}
	return answer.Server.Time, nil
}
