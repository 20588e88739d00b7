package line.norrsund.sailings;

import java.time.Duration;
import java.util.UUID;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

/** Delays and cancellations with their events. */
@Service
class Disruptions {

    static final Duration SMALLEST = Duration.ofMinutes(5);

    private final SailingRepository sailings;
    private final Alternatives alternatives;
    private final Outbox outbox;

    Disruptions(SailingRepository sailings, Alternatives alternatives, Outbox outbox) {
        this.sailings = sailings;
        this.alternatives = alternatives;
        this.outbox = outbox;
    }

    /** Moves the expected departure and writes sailing-delayed, with the contacts of all lead passengers. */
    @Transactional
    Sailing announceDelay(UUID sailingId, DelayNotice notice) {
        if (notice.duration().compareTo(SMALLEST) < 0) {
            throw new TooSmall(notice.duration());
        }
        var delayed = sailings.save(sailings.notDeparted(sailingId).delayedBy(notice.duration()));
        outbox.add("sailing-delayed", sailingId, SailingDelayed.of(delayed, notice.cause(), sailings.contacts(sailingId)));
        return delayed;
    }

    /**
     * Cancels for good and writes sailing-cancelled with up to three alternatives. Whether compensation is due depends
     * on the cause alone: technical faults and our own strikes, not weather and not a closed harbour.
     */
    @Transactional
    Sailing cancelSailing(UUID sailingId, CancellationNotice notice) {
        var cancelled = sailings.save(sailings.notDeparted(sailingId).cancelled());
        boolean compensationDue = switch (notice.cause()) {
            case TECHNICAL, STRIKE -> true;
            case WEATHER, HARBOUR_CLOSED -> false;
        };
        outbox.add("sailing-cancelled", sailingId,
                new SailingCancelled(sailingId, notice.cause(), compensationDue, alternatives.after(cancelled, 3)));
        return cancelled;
    }
}
