package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrNever says that the bus will never take a message, however often it is tried.
var ErrNever = errors.New("the bus never takes it")

// deliverTime is how long to wait for the acknowledgements of one delivery.
const deliverTime = 2 * time.Second

// Connection is the number of the present connection, and whether it stands.
func (p *Publisher) Connection() (number uint64, up bool) { return p.connection(), p.nc.IsConnected() }

// Deliver publishes events that someone else keeps, and waits for the acknowledgement of each. It returns an error for
// each event that the stream doesn't have.
func (p *Publisher) Deliver(ctx context.Context, events []Envelope) []error {
	errs := make([]error, len(events))
	futures := make([]jetstream.PubAckFuture, len(events))
	for i, e := range events {
		m := message(e.Subject, e.Type, e.ID, e.Data)
		switch {
		case !p.fits(m):
			errs[i] = fmt.Errorf("%w: %d bytes", ErrNever, len(e.Data))
		case !p.nc.denied.allow(e.Subject, time.Now()):
			errs[i] = errDenied
		default:
			futures[i], errs[i] = p.js.PublishMsgAsync(m)
		}
	}
	deadline, cancel := context.WithTimeout(ctx, deliverTime)
	defer cancel()
	for i, future := range futures {
		if future == nil || errs[i] != nil {
			continue
		}
		err := await(deadline, future)
		switch {
		case never(err):
			errs[i] = fmt.Errorf("%w: %w", ErrNever, err)
		case err != nil:
			errs[i] = explain(err, flight{subject: events[i].Subject, kind: events[i].Type})
		default:
			p.tookOne()
		}
	}
	return errs
}
