package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	log   *slog.Logger

	nc *nats.Conn
	js jetstream.JetStream

	mu     sync.Mutex
	latest map[string]envelope // newest message of types of which only that counts
	stir   chan struct{}

	pulses  pulses
	refused atomic.Uint64
	reached atomic.Int64 // when the bus last took something, unix nanoseconds
}

// NewPublisher returns a publisher for a connection.
func NewPublisher(nc *nats.Conn, ring *Ring, sp *spool.Spool, log *slog.Logger) (*Publisher, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2*batch))
	if err != nil {
		return nil, err
	}
	return &Publisher{
		Ring: ring, Spool: sp, log: log, nc: nc, js: js,
		latest: map[string]envelope{}, stir: make(chan struct{}, 1),
	}, nil
}

const (
	batch      = 64 // events on their way at a time
	ackTime    = 5 * time.Second
	syncTime   = 200 * time.Millisecond
	awayPause  = 200 * time.Millisecond
	longPause  = 10 * time.Second
	headerRoom = 512 // what headers and subject add to a payload, generously
)

// Run sends until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, loop := range []func(context.Context){p.samples, p.events, p.newest, p.syncing} {
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

// fits tells whether the server will take it. One that is too large would end the connection.
func (p *Publisher) fits(m *nats.Msg) bool {
	most := p.nc.MaxPayload()
	return most == 0 || int64(len(m.Data)+headerRoom) <= most
}

// samples sends samples as they come due.
func (p *Publisher) samples(ctx context.Context) {
	for ctx.Err() == nil {
		beat(&p.pulses.samples)
		s, ok := p.Ring.Peek()
		if !ok {
			wait(ctx, p.Ring.more, time.Minute)
			continue
		}
		if early := time.Until(s.Due); early > 0 {
			wait(ctx, nil, early)
			continue
		}
		if !p.nc.IsConnected() {
			wait(ctx, nil, awayPause)
			continue
		}
		m := message(s.Subject, s.Type, "", s.Data)
		if !p.fits(m) {
			p.refused.Add(1)
			p.Ring.Refuse(s)
			p.log.Error("sample is too large for the bus", "type", s.Type, "bytes", len(s.Data))
			continue
		}
		if err := p.nc.PublishMsg(m); err != nil {
			wait(ctx, nil, awayPause)
			continue
		}
		p.Ring.Take(s)
		p.reached.Store(time.Now().UnixNano())
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

// events sends what is in the spool, in order, some at a time.
func (p *Publisher) events(ctx context.Context) {
	connected := false
	pause := awayPause
	for ctx.Err() == nil {
		beat(&p.pulses.events)
		if !p.nc.IsConnected() {
			connected = false
			wait(ctx, nil, awayPause)
			continue
		}
		if !connected {
			// The bus may have lost what it acknowledged last; what it still has it will know again by its id.
			p.Spool.Rewind(true)
			connected = true
		}
		sent, err := p.sendBatch(ctx)
		if err != nil && ctx.Err() == nil {
			if pause == awayPause { // once for each time of trouble
				p.log.Warn("events are not taken; trying on", "error", err)
			}
			p.Spool.Rewind(false)
			wait(ctx, nil, pause)
			pause = min(2*pause, longPause)
			continue
		}
		pause = awayPause
		if err := p.Spool.Tidy(time.Now()); err != nil {
			p.log.Error("spool cannot be tidied", "error", err)
		}
		if sent == 0 {
			wait(ctx, p.Spool.More(), p.idle())
		}
	}
}

// syncing brings the spool to the disk, some records at a time. It is apart from sending, since a busy disk may take
// longer than the bus.
func (p *Publisher) syncing(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, nil, syncTime)
		if err := p.Spool.Sync(); err != nil {
			p.log.Error("spool cannot be synced", "error", err)
		}
	}
}

// idle is how long to wait for the next event: not long while acknowledged ones are still to be removed.
func (p *Publisher) idle() time.Duration {
	if p.Spool.Stats().Bytes > 0 {
		return time.Second
	}
	return time.Minute
}

// sendBatch sends some events and waits for their acknowledgements.
func (p *Publisher) sendBatch(ctx context.Context) (int, error) {
	entries, err := p.Spool.Next(batch)
	if err != nil {
		return 0, err
	}
	type flight struct {
		index  uint64
		future jetstream.PubAckFuture
	}
	var flights []flight
	for _, e := range entries {
		env, err := decodeEnvelope(e.Data)
		if err != nil {
			p.refuse(e.Index, err)
			continue
		}
		m := message(env.Subject, env.Type, env.ID, env.Data)
		if !p.fits(m) {
			p.refuse(e.Index, fmt.Errorf("%d bytes are too many for the bus", len(env.Data)))
			continue
		}
		future, err := p.js.PublishMsgAsync(m)
		if err != nil {
			return 0, err
		}
		flights = append(flights, flight{e.Index, future})
	}
	deadline, cancel := context.WithTimeout(ctx, ackTime)
	defer cancel()
	var errs []error
	for _, f := range flights {
		if err := await(deadline, f.future); err != nil {
			errs = append(errs, err)
			continue
		}
		p.Spool.Ack(f.index, time.Now())
		p.reached.Store(time.Now().UnixNano())
	}
	return len(entries), errors.Join(errs...)
}

// await waits for an acknowledgement. One that says "duplicate" is as good: the bus has the message.
func await(ctx context.Context, future jetstream.PubAckFuture) error {
	select {
	case <-future.Ok():
		return nil
	case err := <-future.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refuse gives up an event that the bus will never take.
func (p *Publisher) refuse(index uint64, err error) {
	p.refused.Add(1)
	p.log.Error("event cannot be sent", "error", err)
	p.Spool.Ack(index, time.Time{})
}

// SetLatest replaces the newest message of a type, which is sent until the bus acknowledges it.
func (p *Publisher) SetLatest(key, subject, typeHeader, id string, data []byte) {
	p.mu.Lock()
	p.latest[key] = envelope{Subject: subject, Type: typeHeader, ID: id, Data: data}
	p.mu.Unlock()
	select {
	case p.stir <- struct{}{}:
	default:
	}
}

func (p *Publisher) newest(ctx context.Context) {
	for ctx.Err() == nil {
		beat(&p.pulses.newest)
		left := p.sendLatest(ctx)
		pause := time.Minute
		if left {
			pause = time.Second
		}
		wait(ctx, p.stir, pause)
	}
}

// sendLatest sends what is newest of each type, and tells whether something is left to send.
func (p *Publisher) sendLatest(ctx context.Context) bool {
	p.mu.Lock()
	todo := make(map[string]envelope, len(p.latest))
	for key, env := range p.latest {
		todo[key] = env
	}
	p.mu.Unlock()
	left := false
	for key, env := range todo {
		m := message(env.Subject, env.Type, env.ID, env.Data)
		if p.fits(m) {
			short, cancel := context.WithTimeout(ctx, ackTime)
			_, err := p.js.PublishMsg(short, m, jetstream.WithRetryAttempts(0))
			cancel()
			if err != nil {
				left = true
				continue
			}
			p.reached.Store(time.Now().UnixNano())
		} else {
			p.refused.Add(1)
		}
		p.mu.Lock()
		if p.latest[key].ID == env.ID {
			delete(p.latest, key)
		}
		p.mu.Unlock()
	}
	return left
}

// Refused is how many messages the bus could never take.
func (p *Publisher) Refused() uint64 { return p.refused.Load() }

// Drain waits until all is sent, but not longer than ctx.
func (p *Publisher) Drain(ctx context.Context) {
	for ctx.Err() == nil {
		p.mu.Lock()
		waiting := len(p.latest)
		p.mu.Unlock()
		if p.nc.IsConnected() && waiting == 0 && p.Ring.Len() == 0 && p.Spool.Stats().Waiting == 0 {
			break
		}
		wait(ctx, nil, 20*time.Millisecond)
	}
	if p.nc.IsConnected() {
		_ = p.nc.FlushTimeout(time.Second)
	}
}
