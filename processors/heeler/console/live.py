"""The fleet's state, kept up to date from the bus, and how far it can be believed: for pages and terminals."""

from heeler.bus import Bus, Consumer, Delivery, decoder_for
from heeler.console.model import CHOICES, Model
from heeler.console.settings import ConsoleSettings
from heeler.engine.intake import Refused, intake, too_far_ahead
from heeler.engine.live import BrokerClock
from heeler.engine.step import Counters

SILENT_S = 6.0  # the bus says something every two seconds, or is not well


class Live:
    """A model that takes in what consumers read. What can't be used is counted; nothing is written to the bus."""

    def __init__(self, bus: Bus, settings: ConsoleSettings) -> None:
        self.bus, self.settings = bus, settings
        self.model = Model(settings)
        self.clock = BrokerClock()
        self.counters = Counters()
        self.ready = False  # all that is known has been read
        self.clusters: set[str] = set()  # that something was heard of
        self._consumers: list[Consumer] = []
        self._decode = decoder_for(CHOICES)

    async def on(self, delivery: Delivery) -> None:
        """Take a message in."""
        self.counters.received += 1
        try:
            message = intake(delivery.subject, delivery.headers, delivery.data, delivery.ts_ns, self._decode)
        except Refused as refused:
            self.counters.dead += 1
            self.counters.count(refused.why)
            return
        if self.ready:
            self.clock.learn(delivery.ts_ns)
        if too_far_ahead(message):
            self.counters.ignored += 1
            return
        self.clusters.add(message.data["cluster"])
        try:
            self.model.on(message)
        except Exception as error:  # noqa: BLE001 - one message that breaks the model must not take the rest away
            self.counters.dead += 1
            self.counters.count("poison")
            self.broken(delivery, error)

    def broken(self, delivery: Delivery, error: Exception) -> None:
        """Hear of a message that broke the model."""

    def quiet_s(self) -> float:
        """Return for how long the bus has said nothing at all."""
        return min((consumer.quiet_s for consumer in self._consumers), default=0.0)

    def bus_good(self) -> bool:
        """Say whether the bus is connected and says something."""
        return bool(self.bus.client.is_connected) and self.quiet_s() < SILENT_S
