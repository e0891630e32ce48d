package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// mostInFlight is how many events are on their way at a time. After a connection it begins with fewer, and falls
	// when the bus is slow, so that the backlogs of a fleet don't make it slower.
	mostInFlight  = 64
	firstInFlight = 8
	quickAck      = 250 * time.Millisecond
	slowAck       = time.Second
	longPause     = 10 * time.Second
	// eventPause is how long to wait for each event of a backlog that takes more than one batch.
	eventPause = time.Millisecond
)

// tooLarge is JetStream's answer to a message that is larger than the stream takes.
const tooLarge = 10054

var errDenied = errors.New("the bus refuses the subject")

// events sends what is in the spool, in order, some at a time.
func (p *Publisher) events(ctx context.Context) {
	var connection uint64 // the number of the one that Rewind was done for
	connected := false
	pause, most := awayPause, firstInFlight
	for ctx.Err() == nil {
		beat(&p.pulses.events)
		if !p.nc.IsConnected() {
			connected = false
			wait(ctx, nil, awayPause)
			continue
		}
		if now := p.connection(); !connected || now != connection {
			// The bus may have lost what it acknowledged last; what it still has it will know again by its id.
			p.Spool.Rewind(true)
			connected, connection, most = true, now, firstInFlight
		}
		began := time.Now()
		sent, err := p.sendBatch(ctx, most)
		took := time.Since(began)
		if err != nil && ctx.Err() == nil {
			p.stuck(err)
			most = max(1, most/2)
			p.Spool.Rewind(false)
			wait(ctx, nil, pause/2+rand.N(pause))
			pause = min(2*pause, longPause)
			continue
		}
		switch {
		case took > slowAck:
			most = max(1, most/2)
		case took < quickAck:
			most = min(2*most, mostInFlight)
		}
		pause = awayPause
		p.stuck(nil)
		if p.connection() == connection {
			p.Spool.Tidy(time.Now())
		}
		switch {
		case sent == 0:
			wait(ctx, p.Spool.More(), p.idle())
		case sent >= firstInFlight && p.Spool.Stats().Waiting > 0:
			pause := time.Duration(sent) * eventPause
			wait(ctx, nil, pause/2+rand.N(pause))
		}
	}
}

// stuck remembers why events are not taken, and says it once for each time of trouble.
func (p *Publisher) stuck(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil && p.why != "":
		p.log.Info("events are taken again")
		p.why = ""
	case err != nil && p.why == "":
		p.log.Warn("events are not taken; trying on", "error", err)
	}
	if err != nil {
		p.why = err.Error()
	}
}

// syncing brings the spool to the disk, some records at a time. It is apart from sending, since a busy disk may take
// longer than the bus.
func (p *Publisher) syncing(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, p.Spool.Written(), lookTime)
		wait(ctx, nil, syncTime) // what is written meanwhile is synced with it
		p.Spool.Sync()
	}
}

// idle is how long to wait for the next event: not long while acknowledged ones are still to be removed.
func (p *Publisher) idle() time.Duration {
	if p.Spool.Stats().Bytes > 0 {
		return time.Second
	}
	return time.Minute
}

// flight is an event on its way.
type flight struct {
	entry   int
	subject string
	kind    string
	future  jetstream.PubAckFuture
}

// sendBatch sends some events and waits for their acknowledgements.
func (p *Publisher) sendBatch(ctx context.Context, most int) (int, error) {
	entries := p.Spool.Next(most)
	var flights []flight
	var errs []error
	for i, e := range entries {
		env, err := DecodeEnvelope(e.Data)
		if err != nil {
			p.refused.Add(1)
			p.log.Error("an event is no event", "error", err)
			p.Spool.Ack(e, time.Time{})
			continue
		}
		m := message(env.Subject, env.Type, env.ID, env.Data)
		if !p.fits(m) {
			p.Spool.Ack(e, time.Time{})
			continue
		}
		if !p.nc.denied.allow(env.Subject, time.Now()) {
			errs = append(errs, errDenied)
			continue
		}
		future, err := p.js.PublishMsgAsync(m)
		if err != nil {
			errs = append(errs, err)
			break
		}
		flights = append(flights, flight{i, env.Subject, env.Type, future})
	}
	deadline, cancel := context.WithTimeout(ctx, ackTime)
	defer cancel()
	for _, f := range flights {
		err := await(deadline, f.future)
		if never(err) {
			p.refused.Add(1)
			p.log.Error("the stream never takes an event", "subject", f.subject, "error", err)
			p.Spool.Ack(entries[f.entry], time.Time{})
			continue
		}
		if err != nil {
			errs = append(errs, explain(err, f))
			continue
		}
		p.Spool.Ack(entries[f.entry], time.Now())
		p.tookOne()
	}
	return len(entries), first(errs)
}

// first is the first error: the others of a batch say the same.
func first(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// never tells whether trying again cannot help.
func never(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == tooLarge
}

// explain says what an operator can do about it.
func explain(err error, f flight) error {
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	stream := "EVENTS"
	if kind, _, _ := strings.Cut(f.kind, "/"); kind == "AgentStatus" || kind == "Inventory" {
		stream = "AGENTS"
	}
	return fmt.Errorf("no stream takes %s; `heeler bus init` makes %s: %w", f.subject, stream, err)
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
