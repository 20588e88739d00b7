package line.norrsund.loyalty;

import java.time.LocalDate;
import java.time.Month;
import java.util.EnumSet;
import java.util.Set;

/** Points of the Tern Club as rows that are only ever added. */
class PointsLedger {

    private static final Set<Month> DOUBLE = EnumSet.of(Month.NOVEMBER, Month.FEBRUARY);

    private final LedgerRows rows;

    PointsLedger(LedgerRows rows) {
        this.rows = rows;
    }

    /** One point for ten kroner, doubled in November and February; nothing the second time for the same booking. */
    int accrue(String memberId, String bookingReference, long fareInOre, LocalDate travelled) {
        if (rows.hasAccrual(memberId, bookingReference)) {
            return 0;
        }
        int points = (int) (fareInOre / 1_000);
        if (DOUBLE.contains(travelled.getMonth())) {
            points *= 2;
        }
        rows.add(memberId, bookingReference, points);
        return points;
    }

    /** Takes points back; the balance may fall below zero. */
    void clawBack(String memberId, String refundId, int points) {
        rows.add(memberId, refundId, -points);
    }
}
