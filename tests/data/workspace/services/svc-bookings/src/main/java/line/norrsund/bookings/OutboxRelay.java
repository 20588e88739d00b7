package line.norrsund.bookings;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Transactional;

/** Sends rows of the outbox table to Kafka in order and marks them as sent. See decision 0005. */
@Component
class OutboxRelay {

    private final Outbox outbox;
    private final KafkaTemplate<String, String> kafka;

    OutboxRelay(Outbox outbox, KafkaTemplate<String, String> kafka) {
        this.outbox = outbox;
        this.kafka = kafka;
    }

    /**
     * Relays up to a hundred rows. A row that fails stops the batch, so that the order of a booking is kept; it is sent
     * again with the next run, hence twice at times.
     */
    @Scheduled(fixedDelay = 250)
    @Transactional
    void relay() throws InterruptedException {
        for (var row : outbox.unsent(100)) {
            try {
                kafka.send(row.topic(), row.key(), row.payload()).get(2, TimeUnit.SECONDS);
            } catch (ExecutionException | TimeoutException broken) {
                return;
            }
            outbox.markSent(row);
        }
    }
}
