package bus

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"heeler.dev/agent-go/internal/spool"
	"heeler.dev/schemas/go/heelerv1"
)

// Publisher sends what the collectors made.
type Publisher struct {
	Ring  *Ring
	Spool *spool.Spool
	Clock *Clock
	log   *slog.Logger

	nc *Conn
	js jetstream.JetStream

	mu     sync.Mutex
	latest map[string]Envelope // newest message of types of which only that counts
	stir   chan struct{}
	why    string // events are not taken, or empty
	epoch  uint64 // of the connection that the ring's samples were sent on

	confirmEvery, answerWithin time.Duration

	pulses  pulses
	refused atomic.Uint64
	reached atomic.Int64 // when the bus last took something, unix nanoseconds
	said    sync.Map     // types of which a message was too large
}

// NewPublisher returns a publisher for a connection.
func NewPublisher(nc *Conn, ring *Ring, sp *spool.Spool, log *slog.Logger) (*Publisher, error) {
	js, err := jetstream.New(
		nc.Conn, jetstream.WithPublishAsyncMaxPending(2*mostInFlight), jetstream.WithPublishAsyncTimeout(ackTime),
	)
	if err != nil {
		return nil, err
	}
	return &Publisher{
		Ring: ring, Spool: sp, Clock: NewClock(), log: log, nc: nc, js: js,
		latest: map[string]Envelope{}, stir: make(chan struct{}, 1),
		confirmEvery: confirmTime, answerWithin: answerTime,
	}, nil
}

const (
	ackTime     = 5 * time.Second
	syncTime    = 200 * time.Millisecond
	lookTime    = 2 * time.Second // between looks at a disk that was not well
	awayPause   = 200 * time.Millisecond
	confirmTime = 20 * time.Second // between questions whether the bus is still there
	answerTime  = 10 * time.Second
	// backlogPause is the mean time between two samples of a backlog: that of a fleet of 10,000 comes in with 40,000
	// messages a second, not all at once.
	backlogPause = 250 * time.Millisecond
	headerRoom   = 512 // what headers and subject add to a payload, generously
)

// Run sends until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, loop := range []func(context.Context){p.samples, p.confirming, p.events, p.newest, p.syncing, p.clock} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			loop(ctx)
		}()
	}
	wg.Wait()
}

// message makes the message of an envelope's parts.
func message(subject, typeHeader, id string, data []byte) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = data
	m.Header.Set(heelerv1.HeaderContentType, heelerv1.ContentType)
	m.Header.Set(heelerv1.HeaderType, typeHeader)
	if id != "" {
		m.Header.Set(heelerv1.HeaderMsgID, id)
	}
	return m
}

// Room is how large a payload may be, by what the server said last.
func (p *Publisher) Room() int {
	most := p.nc.MaxPayload()
	if most <= 0 {
		most = 1 << 20 // the server's default
	}
	return int(most) - headerRoom
}

// fits tells whether the server will take a message; one that is too large it never will. That is said once a type.
func (p *Publisher) fits(m *nats.Msg) bool {
	if len(m.Data) <= p.Room() {
		return true
	}
	p.refused.Add(1)
	kind := m.Header.Get(heelerv1.HeaderType)
	if _, again := p.said.LoadOrStore(kind, true); !again {
		p.log.Error("message is too large for the bus", "type", kind, "bytes", len(m.Data), "max_payload", p.nc.MaxPayload())
	}
	return false
}

// tookOne notes that the bus took something.
func (p *Publisher) tookOne() { p.reached.Store(time.Now().UnixNano()) }

// connection counts the connections that were made: one may break and come back between two looks at it.
func (p *Publisher) connection() uint64 { return p.nc.Stats().Reconnects }

// restore puts back the samples that a connection which broke may have lost. It returns the number of the present one.
func (p *Publisher) restore() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.connection(); now != p.epoch {
		p.Ring.Restore()
		p.epoch = now
	}
	return p.epoch
}

// samples sends samples as they come due, and a backlog at a pace of its own.
func (p *Publisher) samples(ctx context.Context) {
	connected := false
	var next time.Time // for the backlog
	for ctx.Err() == nil {
		beat(&p.pulses.samples)
		if !p.nc.IsConnected() {
			connected = false
			wait(ctx, nil, awayPause)
			continue
		}
		p.restore()
		now := time.Now()
		if !connected {
			connected, next = true, now.Add(paced())
		}
		s, pause, ok := p.Ring.Next(now, !now.Before(next))
		if !ok {
			if p.Ring.Len() > 0 {
				pause = min(pause, max(time.Until(next), time.Millisecond))
			}
			wait(ctx, p.Ring.more, pause)
			continue
		}
		if now.Sub(s.Due) >= freshTime {
			next = now.Add(paced())
		}
		if err := p.sendSample(s); err != nil {
			wait(ctx, nil, awayPause)
		}
	}
}

// paced is a time around backlogPause.
func paced() time.Duration { return backlogPause/2 + rand.N(backlogPause) }

func (p *Publisher) sendSample(s Sample) error {
	m := message(s.Subject, s.Type, "", s.Data)
	if !p.fits(m) || !p.nc.denied.allow(s.Subject, time.Now()) {
		p.Ring.Refuse(s)
		return nil
	}
	if err := p.nc.PublishMsg(m); err != nil {
		return err
	}
	p.Ring.Take(s)
	return nil
}

// confirming asks the server now and then whether it is still there: what was sent before is then no longer needed.
// One that does not answer is left, or the samples of a minute would go nowhere.
func (p *Publisher) confirming(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, nil, p.confirmEvery)
		if !p.nc.IsConnected() {
			continue
		}
		connection := p.restore()
		mark, open := p.Ring.Mark()
		if !open {
			continue
		}
		short, cancel := context.WithTimeout(ctx, p.answerWithin)
		err := p.nc.FlushWithContext(short)
		cancel()
		switch {
		case err == nil && p.connection() == connection:
			p.Ring.Confirm(mark)
			p.tookOne()
		case err == nil: // it is another connection that answered
		case ctx.Err() == nil && p.nc.IsConnected():
			p.log.Warn("the bus server does not answer; connecting anew", "error", err)
			_ = p.nc.ForceReconnect()
		}
	}
}

// wait waits for a signal, but not longer than so long.
func wait(ctx context.Context, signal <-chan struct{}, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-signal:
	case <-timer.C:
	}
}

// SetLatest replaces the newest message of a type, which is sent until the bus acknowledges it.
func (p *Publisher) SetLatest(key, subject, typeHeader, id string, data []byte) {
	p.mu.Lock()
	p.latest[key] = Envelope{Subject: subject, Type: typeHeader, ID: id, Data: data}
	p.mu.Unlock()
	select {
	case p.stir <- struct{}{}:
	default:
	}
}

const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

func (p *Publisher) newest(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		beat(&p.pulses.newest)
		if !p.nc.IsConnected() {
			wait(ctx, nil, awayPause)
			continue
		}
		if !p.sendLatest(ctx) {
			pause = firstPause
			wait(ctx, p.stir, time.Minute)
			continue
		}
		wait(ctx, nil, pause/2+rand.N(pause))
		pause = min(2*pause, lastPause)
	}
}

// sendLatest sends what is newest of each type, and tells whether something is left to send.
func (p *Publisher) sendLatest(ctx context.Context) bool {
	p.mu.Lock()
	todo := make(map[string]Envelope, len(p.latest))
	for key, env := range p.latest {
		todo[key] = env
	}
	p.mu.Unlock()
	left := false
	for key, env := range todo {
		m := message(env.Subject, env.Type, env.ID, env.Data)
		if p.fits(m) {
			if err := p.sendOne(ctx, m); err != nil {
				left = true
				continue
			}
		}
		p.mu.Lock()
		if p.latest[key].ID == env.ID {
			delete(p.latest, key)
		}
		p.mu.Unlock()
	}
	return left
}

func (p *Publisher) sendOne(ctx context.Context, m *nats.Msg) error {
	if !p.nc.denied.allow(m.Subject, time.Now()) {
		return errDenied
	}
	short, cancel := context.WithTimeout(ctx, ackTime)
	defer cancel()
	_, err := p.js.PublishMsg(short, m, jetstream.WithRetryAttempts(0))
	if err == nil {
		p.tookOne()
	}
	return err
}

// Drain waits until all is sent, but not longer than ctx. While the bus is away it waits only a little: events are on
// disk.
func (p *Publisher) Drain(ctx context.Context) {
	away := time.Now()
	for ctx.Err() == nil {
		p.mu.Lock()
		waiting := len(p.latest)
		p.mu.Unlock()
		if p.nc.IsConnected() {
			away = time.Now()
			if waiting == 0 && p.Ring.Len() == 0 && p.Spool.Stats().Waiting == 0 {
				break
			}
		} else if time.Since(away) > time.Second {
			break
		}
		wait(ctx, nil, 20*time.Millisecond)
	}
	p.Settle()
}

// Settle makes sure that the bus has what was sent, before the connection is closed in good order.
func (p *Publisher) Settle() {
	if !p.nc.IsConnected() {
		return
	}
	connection := p.restore()
	mark, _ := p.Ring.Mark()
	if p.nc.FlushTimeout(time.Second) == nil && p.connection() == connection {
		p.Ring.Confirm(mark)
	}
}
