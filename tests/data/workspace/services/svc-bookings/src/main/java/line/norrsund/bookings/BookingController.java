package line.norrsund.bookings;

import java.util.List;
import java.util.UUID;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.*;

/** HTTP door of the bookings service; everything of substance is in {@link BookingService}. */
@RestController
@RequestMapping("/bookings")
class BookingController {

    private final BookingService bookings;

    BookingController(BookingService bookings) {
        this.bookings = bookings;
    }

    /** Holds a crossing for fifteen minutes. */
    @PostMapping
    @ResponseStatus(HttpStatus.CREATED)
    Booking create(@RequestHeader("Idempotency-Key") String key, @RequestBody BookingRequest request) {
        return bookings.hold(key, request);
    }

    /** Lists bookings for the ticket hall; refuses a search without any filter. */
    @GetMapping
    List<Booking> search(
            @RequestParam(required = false) UUID sailingId,
            @RequestParam(required = false) String surname,
            @RequestParam(required = false) String plate) {
        if (sailingId == null && surname == null && plate == null) {
            throw new BadRequest("give a sailing, a surname or a plate");
        }
        return bookings.find(sailingId, surname, plate);
    }

    @PostMapping("/{reference}/confirmation")
    Booking confirm(@PathVariable String reference, @RequestBody PaymentChoice choice) {
        return bookings.confirm(reference, choice);
    }

    @DeleteMapping("/{reference}")
    @ResponseStatus(HttpStatus.NO_CONTENT)
    void cancel(@PathVariable String reference, @RequestParam String reason) {
        bookings.cancel(reference, reason);
    }

    /** Moves a disrupted party to a later sailing without charge. */
    @PostMapping("/{reference}/rebooking")
    Booking rebook(@PathVariable String reference, @RequestBody RebookingChoice choice) {
        return bookings.rebook(reference, choice);
    }
}
