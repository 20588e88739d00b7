package line.norrsund.bookings;

import java.time.Clock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;

/** Frees the capacity of holds that lapsed. */
@Component
class HoldSweeper {

    private static final Logger LOG = LoggerFactory.getLogger(HoldSweeper.class);

    private final BookingRepository repository;
    private final Clock clock;

    HoldSweeper(BookingRepository repository, Clock clock) {
        this.repository = repository;
        this.clock = clock;
    }

    /** Runs every twenty seconds; at most five hundred holds at a time, so that the table is not locked for long. */
    @Scheduled(fixedDelay = 20_000)
    void sweep() {
        int freed = repository.deleteLapsed(clock.instant(), 500);
        if (freed > 0) {
            LOG.info("freed {} lapsed holds", freed);
        }
    }
}
