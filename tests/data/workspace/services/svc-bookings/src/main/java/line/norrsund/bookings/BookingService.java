package line.norrsund.bookings;

import java.time.Clock;
import java.time.Duration;
import java.util.List;
import java.util.UUID;
import line.norrsund.bookings.client.FareClient;
import line.norrsund.bookings.client.PaymentClient;
import line.norrsund.bookings.client.ProfileClient;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

/**
 * Life of a booking from hold to travel.
 *
 * <p>A hold keeps capacity and price together. Both are lost together, too, by {@link HoldSweeper}.
 */
@Service
class BookingService {

    static final Duration HOLD = Duration.ofMinutes(15);
    static final Duration DEFERRED_HOLD = Duration.ofHours(6);

    private final BookingRepository repository;
    private final FareClient fares;
    private final PaymentClient payments;
    private final ProfileClient profiles;
    private final Outbox outbox;
    private final Clock clock;

    BookingService(BookingRepository repository, FareClient fares, PaymentClient payments,
            ProfileClient profiles, Outbox outbox, Clock clock) {
        this.repository = repository;
        this.fares = fares;
        this.payments = payments;
        this.profiles = profiles;
        this.outbox = outbox;
        this.clock = clock;
    }

    /** Takes capacity at the quoted price; a repeated key gives back the earlier hold. */
    @Transactional
    Booking hold(String key, BookingRequest request) {
        return repository.byKey(key).orElseGet(() -> {
            var quote = fares.quote(request.quoteId());
            var travellers = request.passengers().stream().map(profiles::complete).toList();
            return repository.save(Booking.held(key, request.sailingId(), travellers, quote.total(),
                    clock.instant().plus(HOLD)));
        });
    }

    /**
     * Takes the money and confirms.
     *
     * @throws HoldLapsed when the fifteen minutes are over; the money has not been touched then
     */
    @Transactional
    Booking confirm(String reference, PaymentChoice choice) {
        var booking = repository.get(reference);
        if (booking.lapsed(clock.instant())) {
            throw new HoldLapsed(reference);
        }
        payments.authoriseAndCapture(booking.reference(), booking.price(), choice.token());
        var confirmed = repository.save(booking.confirmed());
        outbox.add("booking-confirmed", reference, confirmed);
        return confirmed;
    }

    /** Gives the capacity back; what is owed to the traveller is for svc-refunds to say. */
    @Transactional
    void cancel(String reference, String reason) {
        var booking = repository.save(repository.get(reference).cancelled(reason));
        outbox.add("booking-cancelled", reference, booking);
    }

    /** Moves a party within seven days of a disruption, at the old price whatever the new one is. */
    @Transactional
    Booking rebook(String reference, RebookingChoice choice) {
        var booking = repository.get(reference);
        if (!booking.disruptedWithin(Duration.ofDays(7), clock.instant())) {
            throw new NotDisrupted(reference);
        }
        var moved = repository.save(booking.on(choice.sailingId()));
        outbox.add("booking-amended", reference, new Amendment(booking, moved));
        return moved;
    }

    List<Booking> find(UUID sailingId, String surname, String plate) {
        return repository.search(sailingId, surname, plate, 50);
    }
}
