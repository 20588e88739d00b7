package line.norrsund.checkin;

import java.time.LocalDate;
import java.util.List;

/** Which travel documents are needed. Domestic crossings need none; the night ferry leaves the customs area. */
class DocumentRules {

    private final LocalDate today;

    DocumentRules(LocalDate today) {
        this.today = today;
    }

    /** Refuses passengers whose passport or identity card is missing or has expired. */
    void require(List<Passenger> present) {
        for (var passenger : present) {
            var document = passenger.document();
            if (passenger.leavesCustomsArea() && (document == null || document.validUntil().isBefore(today))) {
                throw new DocumentMissing(passenger.name());
            }
        }
    }
}
