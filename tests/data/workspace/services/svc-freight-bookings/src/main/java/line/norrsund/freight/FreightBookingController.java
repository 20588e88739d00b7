package line.norrsund.freight;

import java.time.LocalDate;
import java.util.List;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.*;

/** Lane metres for hauliers. Not to be taken for the passenger bookings, which have the same path elsewhere. */
@RestController
@RequestMapping("/bookings")
class FreightBookingController {

    private final FreightDesk desk;

    FreightBookingController(FreightDesk desk) {
        this.desk = desk;
    }

    /** Books within the allotment or puts the haulier on the waiting list. */
    @PostMapping
    @ResponseStatus(HttpStatus.CREATED)
    FreightBooking create(@RequestBody FreightBookingRequest request) {
        return desk.bookOrWaitList(request);
    }

    @GetMapping
    List<FreightBooking> list(@RequestParam String accountNumber, @RequestParam LocalDate from, @RequestParam LocalDate to) {
        return desk.ofAccount(accountNumber, from, to);
    }

    @PutMapping("/{bookingNumber}/units")
    FreightBooking replaceUnits(@PathVariable String bookingNumber, @RequestBody List<FreightUnit> units) {
        return desk.replaceUnits(bookingNumber, units);
    }
}
