package line.norrsund.checkin;

import java.util.List;
import java.util.UUID;
import line.norrsund.checkin.client.BookingLookup;
import line.norrsund.checkin.client.LaneClient;
import line.norrsund.checkin.client.ManifestClient;
import org.springframework.stereotype.Service;

/** Brings a booking, the passenger list and a lane together. */
@Service
class CheckInService {

    private final CheckInRepository repository;
    private final BookingLookup bookings;
    private final ManifestClient manifest;
    private final LaneClient lanes;
    private final DocumentRules documents;

    CheckInService(CheckInRepository repository, BookingLookup bookings, ManifestClient manifest,
            LaneClient lanes, DocumentRules documents) {
        this.repository = repository;
        this.bookings = bookings;
        this.manifest = manifest;
        this.lanes = lanes;
        this.documents = documents;
    }

    /**
     * Persons first, vehicle second: a full lane must not keep a person off the manifest.
     *
     * @return what was checked in now and before
     */
    CheckIn checkIn(String key, CheckInRequest request) {
        var booking = bookings.byReference(request.bookingReference());
        var present = request.presentOf(booking.passengers());
        documents.require(present);
        present.forEach(person -> manifest.add(booking.sailingId(), person));
        var lane = booking.vehicle().map(v -> lanes.assign(booking.sailingId(), request.measured(v)));
        return repository.merge(key, booking, present, lane);
    }

    /** Takes a party off again; the manifest refuses when it is sealed. */
    void undo(UUID id) {
        var checkIn = repository.get(id);
        checkIn.entries().forEach(entry -> manifest.remove(checkIn.sailingId(), entry));
        checkIn.lane().ifPresent(lanes::release);
        repository.delete(id);
    }

    /** Checks in what was taken offline and gives a conflict back where the world has moved on. */
    Outcome replay(CheckInRequest queued) {
        try {
            return Outcome.done(checkIn(queued.key(), queued));
        } catch (BookingCancelled | ManifestSealed conflict) {
            return Outcome.conflict(queued, conflict);
        }
    }

    List<CheckIn> all(UUID sailingId) {
        return repository.ofSailing(sailingId);
    }

    List<CheckIn> incomplete(UUID sailingId) {
        return all(sailingId).stream().filter(c -> !c.missing().isEmpty()).toList();
    }
}
