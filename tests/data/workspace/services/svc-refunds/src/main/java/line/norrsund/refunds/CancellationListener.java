package line.norrsund.refunds;

import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.stereotype.Component;

/** Hears what gives rise to a refund. */
@Component
class CancellationListener {

    private final RefundService refunds;
    private final PaidAmounts amounts;
    private final Seen seen;

    CancellationListener(RefundService refunds, PaidAmounts amounts, Seen seen) {
        this.refunds = refunds;
        this.amounts = amounts;
        this.seen = seen;
    }

    /** A traveller cancelled. The event carries the fare conditions, so no call is made. */
    @KafkaListener(topics = "booking-cancelled", groupId = "svc-refunds")
    void onBookingCancelled(BookingCancelled event) {
        if (seen.firstTime(event.id())) {
            var paid = amounts.of(event.reference());
            refunds.start(Refund.forTraveller(event, RefundCalculator.amount(
                    paid, event.conditions(), event.departure(), event.cancelledAt())));
        }
    }

    /** The company cancelled: one refund for each confirmed booking of the sailing. */
    @KafkaListener(topics = "sailing-cancelled", groupId = "svc-refunds")
    void onSailingCancelled(SailingCancelled event) {
        for (var paid : amounts.ofSailing(event.sailingId())) {
            refunds.start(Refund.forSailing(event, paid,
                    RefundCalculator.amountForCancelledSailing(paid, event.compensationDue())));
        }
    }
}
