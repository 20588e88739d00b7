package line.norrsund.refunds;

import java.time.Duration;
import java.time.Instant;

/**
 * Works out how much goes back to a traveller. Pure: no clock, no database, no calls.
 *
 * <p>The only place that knows the fare conditions' consequences.
 */
final class RefundCalculator {

    private static final Duration HALF_UNTIL = Duration.ofHours(24);

    private RefundCalculator() {}

    /**
     * The refund in øre for a booking that the traveller cancelled.
     *
     * @param paid what was paid, split into fare, tax and emission levy
     * @param conditions flex, standard or saver
     * @param departure expected departure of the sailing
     * @param cancelledAt when the traveller gave the booking up
     */
    static long amount(Paid paid, Conditions conditions, Instant departure, Instant cancelledAt) {
        var left = Duration.between(cancelledAt, departure);
        long fare = switch (conditions) {
            case FLEX -> left.isNegative() ? 0 : paid.fare();
            case STANDARD -> left.compareTo(HALF_UNTIL) >= 0 ? paid.fare() / 2 : 0;
            case SAVER -> 0;
        };
        return fare + paid.tax() + paid.emissionLevy();
    }

    /** What is owed when Norrsund cancels: everything, and half the fare on top for faults of our own. */
    static long amountForCancelledSailing(Paid paid, boolean compensationDue) {
        return paid.total() + (compensationDue ? paid.fare() / 2 : 0);
    }

    /** Compensation for a late arrival: a quarter of the fare after one hour, half after two. */
    static long delayCompensation(Paid paid, Duration late) {
        if (late.toMinutes() < 60) {
            return 0;
        }
        return late.toMinutes() < 120 ? paid.fare() / 4 : paid.fare() / 2;
    }
}
